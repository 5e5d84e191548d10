"""Writes a request in the words of one Chat Completions dialect."""

import re
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from holdfast.providers.message_memo import MessageMemo
from holdfast.providers.wire.chat_completions.dialects import Dialect
from holdfast.providers.wire.chat_completions.messages import (
    finish_lowered,
    join_lowered,
    lower_message,
)
from holdfast.providers.wire.chat_completions.prompt_cache import cache_mark, mark_last_message
from holdfast.providers.wire.chat_completions.schemas import (
    asks_for_schema_in_words,
    is_strict_schema,
)
from holdfast.providers.wire.chat_completions.thinking import ask_for_thinking
from holdfast.providers.wire.protocol import WireRequest
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.tools import ToolSpec

_GO_ON: JsonObject = {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
"""What is asked when the model spoke last: some servers refuse to go on from its own words."""


class _Lowered(msgspec.Struct, frozen=True, gc=False):
    """What one message became, and the bytes of it."""

    items: tuple[JsonObject, ...]
    bodies: tuple[msgspec.Raw, ...]


class ChatEncoder:
    """Writes requests of one dialect, and remembers the messages that it has written before."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._memo: MessageMemo[_Lowered] = MessageMemo()

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Lower `request`, whose history already meets the dialect's rules."""
        dialect = self._dialect
        body: JsonObject = {
            "model": request.model,
            "messages": self._messages(request),
            "stream": True,
            **({"stream_options": {"include_usage": True}} if dialect.include_usage else {}),
            **_sampling(dialect, request),
            **ask_for_thinking(dialect, request.model, request.thinking),
            **_tools(dialect, request),
            **_output(dialect, request),
            **{name: value for name, value in request.betas.items() if name in dialect.switches},
        }
        return WireRequest(
            path=dialect.path.replace("{model}", quote(request.model, safe="")),
            body=msgspec.json.encode(body),
        )

    def _messages(self, request: ModelRequest) -> list[msgspec.Raw | JsonObject]:
        lowered = [self._lowered(message) for message in request.messages]
        items: Sequence[JsonObject] = [item for one in lowered for item in one.items]
        bodies = [body for one in lowered for body in one.bodies]
        joined = join_lowered(self._dialect, items)
        if joined is not items:
            bodies = [_body(item) for item in joined]
        last = joined[-1] if joined else _GO_ON
        if not joined or last["role"] == "assistant":
            last = _GO_ON
            bodies.append(_body(last))
        mark = cache_mark(self._dialect, request)
        if mark is not None:
            bodies[-1] = _body(mark_last_message(last, request, mark))
        return [*_system(self._dialect, request, mark), *bodies]

    def _lowered(self, message: Message) -> _Lowered:
        known = self._memo.get(message)
        if known is None:
            items = tuple(lower_message(self._dialect, message))
            known = _Lowered(items, tuple(_body(item) for item in items))
            # The bytes, and about as much again for the values that they were made of.
            size = 2 * sum(len(memoryview(body)) for body in known.bodies)
            self._memo.put(message, known, weight=size)
        return known


def encode_request(dialect: Dialect, request: ModelRequest) -> WireRequest:
    """Lower one request, remembering nothing."""
    return ChatEncoder(dialect)(request)


def _body(item: JsonObject) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(finish_lowered(item)))


def _system(dialect: Dialect, request: ModelRequest, mark: JsonObject | None) -> list[JsonObject]:
    words = asks_for_schema_in_words(dialect.output, request.output_schema)
    text = "\n\n".join(part for part in (*request.system, words) if part)
    if not text:
        return []
    pattern = dialect.developer_models
    is_developer = bool(pattern) and re.search(pattern, request.model.lower()) is not None
    marked = [{"type": "text", "text": text, "cache_control": mark}]
    content = text if mark is None else marked
    return [{"role": "developer" if is_developer else "system", "content": content}]


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
            fields["tool_choice"] = "required"
            tools = tuple(tool for tool in tools if tool.name == request.require_tool)
    if not request.parallel_tool_calls and _knows_parallel_field(dialect, request.model):
        fields["parallel_tool_calls"] = False
    return {"tools": [_tool(tool) for tool in tools], **fields}


def _knows_parallel_field(dialect: Dialect, model: str) -> bool:
    refused = dialect.no_parallel_field_models
    return dialect.parallel_tool_calls and not (refused and re.search(refused, model.lower()))


def _tool(tool: ToolSpec) -> JsonObject:
    examples = "".join(
        f"\nExample input: {msgspec.json.encode(example).decode()}"
        for example in tool.input_examples
    )
    function: JsonObject = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description or examples:
        function["description"] = f"{tool.description}{examples}".strip()
    return {"type": "function", "function": function}


def _output(dialect: Dialect, request: ModelRequest) -> JsonObject:
    wanted = request.output_schema
    if wanted is None or dialect.output == "prompt":
        return {}
    if dialect.output == "json_object":
        # Servers with this mode refuse it beside tools, or never call them; words must do then.
        return {} if request.tools else {"response_format": {"type": "json_object"}}
    schema: JsonObject = {"name": wanted.name, "schema": wanted.schema}
    if dialect.strict_output and is_strict_schema(wanted.schema):
        schema["strict"] = True
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
