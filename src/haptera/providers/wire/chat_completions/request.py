"""Chat Completions: the encoder of requests, for one dialect.

Beside the messages: sampling, tools, output schemas, thinking and prompt-cache marks.
"""

import re
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from haptera.formats.chat_completions.encoding import (
    finish_lowered,
    join_lowered,
    lower_message,
)
from haptera.formats.lenient_json import encode_lenient
from haptera.model.json_types import JsonObject
from haptera.model.messages import Message
from haptera.model.parts import ReminderPart
from haptera.model.requests import ModelRequest, OutputSchema
from haptera.model.settings import Thinking
from haptera.model.tools import ToolSpec
from haptera.providers.wire.accepted_inputs import tool_description
from haptera.providers.wire.chat_completions.dialects import (
    GENERIC,
    Dialect,
    OutputMode,
    ThinkingRule,
    ThinkingStyle,
)
from haptera.providers.wire.prefix_cache import (
    PrefixCache,
    append_joined,
    body_with_array,
    stable_length,
)
from haptera.providers.wire.protocol import WireRequest

_CONTINUE: JsonObject = {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
"""Added after an assistant message at the end: some servers refuse a history that ends so."""


class _EncodedPrefix(msgspec.Struct, frozen=True):
    """The encoded beginning of a conversation; its last message may still be joined to the next."""

    done: tuple[bytes, ...] = ()
    last: JsonObject | None = None


class RequestEncoder:
    """Encodes requests of one dialect, each message of a conversation once.

    Owns the cache of encoded messages.
    """

    def __init__(self, dialect: Dialect = GENERIC) -> None:
        self._dialect = dialect
        self._rules = dialect.messages
        self._cache: PrefixCache[_EncodedPrefix] = PrefixCache()

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Encode `request`, whose history already meets the dialect's rules."""
        dialect = self._dialect
        fields: JsonObject = {
            "model": request.model,
            "stream": True,
            **({"stream_options": {"include_usage": True}} if dialect.include_usage else {}),
            **_sampling(dialect, request),
            **ask_for_thinking(dialect, request.model, request.thinking),
            **_tools(dialect, request),
            **_output(dialect, request),
            **{name: value for name, value in request.betas.items() if name in dialect.switches},
        }
        return WireRequest(
            # A slash in a name must not become one of the path.
            path=dialect.path.replace("{model}", quote(request.model, safe="")),
            body=body_with_array(fields, "messages", self._messages(request)),
        )

    def _messages(self, request: ModelRequest) -> list[bytes]:
        messages = request.messages
        settled = stable_length(messages)
        length, head = self._cache.get(messages)
        # After a rewind, the last user message may be inside what is cached. There it may
        # be encoded already, so that nothing could be joined to it and it could not be marked.
        if head is None or length > settled:
            length, head = 0, _EncodedPrefix()
        # The last message of the head is kept open: the next one may be joined to it.
        head = self._extended(head, messages[length:settled])
        self._cache.put(messages[:settled], head, weight=sum(map(len, head.done)))
        whole = self._extended(head, messages[settled:])
        if whole.last is None or whole.last["role"] == "assistant":
            whole = _EncodedPrefix((*whole.done, *self._encoded(whole.last)), _CONTINUE)
        mark = cache_mark(self._dialect, request)
        last = whole.last
        if mark is not None and last is not None and request.caches_tail:
            last = mark_last_message(last, request, mark)
        system = _system(self._dialect, request, mark)
        return [*self._encoded(system), *whole.done, *self._encoded(last)]

    def _extended(self, head: _EncodedPrefix, messages: tuple[Message, ...]) -> _EncodedPrefix:
        """Encode more messages after those of `head`."""
        lowered = [] if head.last is None else [head.last]
        for message in messages:
            lowered.extend(lower_message(self._rules, message))
        if not lowered:
            return head
        *done, last = join_lowered(self._rules, lowered)
        return _EncodedPrefix(append_joined(head.done, self._encoded(*done)), last)

    def _encoded(self, *lowered: JsonObject | None) -> list[bytes]:
        """Encode lowered messages; None is skipped."""
        return [
            encode_lenient(finish_lowered(self._rules, message))
            for message in lowered
            if message is not None
        ]


def _system(dialect: Dialect, request: ModelRequest, mark: JsonObject | None) -> JsonObject | None:
    words = schema_instruction(dialect.output, request.output_schema)
    text = "\n\n".join(part for part in (*request.system, words) if part)
    if not text:
        return None
    pattern = dialect.developer_models
    is_developer = bool(pattern) and re.search(pattern, request.model.lower()) is not None
    marked = [{"type": "text", "text": text, "cache_control": mark}]
    content = text if mark is None else marked
    return {"role": "developer" if is_developer else "system", "content": content}


def _sampling(dialect: Dialect, request: ModelRequest) -> JsonObject:
    fields = {
        dialect.max_tokens_field: request.max_tokens,
        "temperature": request.temperature,
        "stop": list(request.stop) or None,
        dialect.seed_field: request.seed,
    }
    refused = _refused_sampling(dialect, request)
    return {
        name: value for name, value in fields.items() if value is not None and name not in refused
    }


def _refused_sampling(dialect: Dialect, request: ModelRequest) -> tuple[str, ...]:
    name = request.model.lower()
    rules = (rule for rule in dialect.refused_sampling if re.search(rule.models, name))
    rule = next(rules, None)
    return () if rule is None or request.thinking in rule.kept_at else rule.fields


def _tools(dialect: Dialect, request: ModelRequest) -> JsonObject:
    if not request.tools:
        return {}
    tools = request.tools
    fields: JsonObject = {}
    if request.require_tool is not None:
        if dialect.tool_choice == "named":
            wanted = {"type": "function", "function": {"name": request.require_tool}}
            fields["tool_choice"] = wanted
        else:
            tools = tuple(tool for tool in tools if tool.name == request.require_tool)
        if dialect.tool_choice == "required":
            fields["tool_choice"] = "required"
    if not request.parallel_tool_calls and _knows_parallel_field(dialect, request.model):
        fields["parallel_tool_calls"] = False
    return {"tools": [_tool(tool) for tool in tools], **fields}


def _knows_parallel_field(dialect: Dialect, model: str) -> bool:
    refused = dialect.no_parallel_field_models
    return dialect.parallel_tool_calls and not (refused and re.search(refused, model.lower()))


def _tool(tool: ToolSpec) -> JsonObject:
    function: JsonObject = {"name": tool.name, "parameters": tool.input_schema}
    if description := tool_description(tool):
        function["description"] = description
    return {"type": "function", "function": function}


def _output(dialect: Dialect, request: ModelRequest) -> JsonObject:
    wanted = request.output_schema
    if wanted is None or dialect.output == "prompt":
        return {}
    if dialect.output == "json_object":
        # Servers with this mode refuse it beside tools, or never call the tools. Then only the
        # system prompt asks for the schema.
        return {} if request.tools else {"response_format": {"type": "json_object"}}
    schema: JsonObject = {"name": wanted.name, "schema": wanted.schema}
    if dialect.strict_output and wanted.is_strict:
        schema["strict"] = True
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


# Thinking

_LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def ask_for_thinking(dialect: Dialect, model: str, level: Thinking | None) -> JsonObject:
    """Return the fields of a request that ask `model` to think at `level`."""
    rule = _rule_for(dialect, model)
    if level is None or rule is None or rule.style == "none":
        return {}
    if level == "off" and rule.off_by_silence:
        return {}
    effort = nearest_effort(level, rule.efforts)
    return {**_written(rule.style, effort, is_on=level != "off"), **rule.extra}


def nearest_effort(level: Thinking, efforts: Sequence[str]) -> str:
    """Return the effort nearest to `level`: the highest that is not above it, else the lowest.

    `none` is returned for `off` only.
    """
    if level == "off":
        return efforts[0]
    # Groq's Qwen models know only on and off.
    if "default" in efforts:
        return "default"
    offered = [effort for effort in efforts if effort != "none"]
    wanted = _LEVELS.index(level)
    within = [effort for effort in offered if _LEVELS.index(effort) <= wanted]
    return within[-1] if within else offered[0]


def _rule_for(dialect: Dialect, model: str) -> ThinkingRule | None:
    name = model.lower()
    return next((rule for rule in dialect.thinking if re.search(rule.models, name)), None)


def _written(style: ThinkingStyle, effort: str, *, is_on: bool) -> JsonObject:
    match style:
        case "reasoning":
            return {"reasoning": {"effort": effort}}
        case "reasoning_switch":
            return {"reasoning": {"enabled": is_on}}
        case "template":
            return {"chat_template_kwargs": {"enable_thinking": is_on}}
        case "thinking_type" if is_on:
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        case "thinking_type":
            return {"thinking": {"type": "disabled"}}
        case _:
            return {"reasoning_effort": effort}


# Prompt-cache marks


def cache_mark(dialect: Dialect, request: ModelRequest) -> JsonObject | None:
    """Return the prompt-cache mark; None if no cache is wanted or the model has no marks."""
    pattern = dialect.cache_mark_models
    if request.cache_ttl is None or not pattern or not re.search(pattern, request.model.lower()):
        return None
    mark: JsonObject = {"type": "ephemeral"}
    return {**mark, "ttl": "1h"} if request.cache_ttl == "1h" else mark


def mark_last_message(item: JsonObject, request: ModelRequest, mark: JsonObject) -> JsonObject:
    """Mark the last piece of a lowered message that the next request repeats.

    Reminders for this request only are at the end of a user message and are not repeated.
    """
    content = item["content"]
    if isinstance(content, str):
        return {**item, "content": [{"type": "text", "text": content, "cache_control": mark}]}
    # Behind these the requests differ, and a mark there would never be matched again.
    index = len(content) - _trailing_reminders(request) - 1
    if index < 0:
        return item
    marked = {**content[index], "cache_control": mark}
    return {**item, "content": [*content[:index], marked, *content[index + 1 :]]}


def _trailing_reminders(request: ModelRequest) -> int:
    count = 0
    # Of a history that says nothing, no message is left.
    last = request.messages[-1].parts if request.messages else ()
    for part in reversed(last):
        if not isinstance(part, ReminderPart) or part.persisted:
            break
        # One without text is not sent, so it takes no piece of the content.
        count += bool(part.text)
    return count


# Output schemas


def schema_instruction(mode: OutputMode, wanted: OutputSchema | None) -> str:
    """Return the instruction for servers without output schemas.

    It contains the word JSON, which such servers demand for their JSON mode.
    """
    if wanted is None or mode == "json_schema":
        return ""
    schema = encode_lenient(wanted.schema).decode()
    return f"Give the final answer as one JSON object that meets this JSON Schema: {schema}"
