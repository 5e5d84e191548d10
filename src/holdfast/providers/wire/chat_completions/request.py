"""Writes a request in the words of one Chat Completions dialect."""

import re
from urllib.parse import quote

import msgspec

from holdfast.providers.prefix_memo import PrefixMemo, settled_length
from holdfast.providers.wire.chat_completions.dialects import GENERIC, Dialect
from holdfast.providers.wire.chat_completions.messages import (
    finish_lowered,
    join_lowered,
    lower_message,
)
from holdfast.providers.wire.chat_completions.prompt_cache import cache_mark, mark_last_message
from holdfast.providers.wire.chat_completions.schemas import asks_for_schema_in_words
from holdfast.providers.wire.chat_completions.thinking import ask_for_thinking
from holdfast.providers.wire.lenient_json import encode_lenient
from holdfast.providers.wire.message_bytes import body_with
from holdfast.providers.wire.neutral_forms import described
from holdfast.providers.wire.protocol import WireRequest
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.tools import ToolSpec

_GO_ON: JsonObject = {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
"""What is asked when the model spoke last: some servers refuse to go on from its own words."""


class _Written(msgspec.Struct, frozen=True):
    """The beginning of a conversation as it is sent; its last message may still be joined to."""

    body: bytes = b""
    last: JsonObject | None = None


class RequestEncoder:
    """Writes requests of one dialect, each message of a conversation only once.

    Owns the written beginnings of conversations it has seen.
    """

    def __init__(self, dialect: Dialect = GENERIC) -> None:
        self._dialect = dialect
        self._memo: PrefixMemo[_Written] = PrefixMemo()

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Lower `request`, whose history already meets the dialect's rules."""
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
            path=dialect.path.replace("{model}", quote(request.model, safe="")),
            body=body_with(fields, "messages", [self._messages(request)]),
        )

    def _messages(self, request: ModelRequest) -> bytes:
        messages = request.messages
        settled = settled_length(messages)
        known, head = self._memo.recall(messages)
        if head is None or known > settled:
            known, head = 0, _Written()
        head = self._extended(head, messages[known:settled])
        self._memo.keep(messages[:settled], head, weight=len(head.body))
        whole = self._extended(head, messages[settled:])
        if whole.last is None or whole.last["role"] == "assistant":
            whole = _Written(_joined(whole.body, whole.last), _GO_ON)
        mark = cache_mark(self._dialect, request)
        last = whole.last
        if mark is not None and last is not None:
            last = mark_last_message(last, request, mark)
        return _joined(_system(self._dialect, request, mark), whole.body, last)

    def _extended(self, head: _Written, messages: tuple[Message, ...]) -> _Written:
        """Write more messages after those of `head`."""
        lowered = [] if head.last is None else [head.last]
        for message in messages:
            lowered.extend(lower_message(self._dialect, message))
        if not lowered:
            return head
        *done, last = join_lowered(self._dialect, lowered)
        return _Written(_joined(head.body, *done), last)


def encode_request(request: ModelRequest, dialect: Dialect = GENERIC) -> WireRequest:
    """Lower `request`, whose history already meets the dialect's rules."""
    return RequestEncoder(dialect)(request)


def _joined(*pieces: bytes | JsonObject | None) -> bytes:
    """Join written messages and ones that are only lowered; there may be none."""
    written = (
        encode_lenient(finish_lowered(piece)) if isinstance(piece, dict) else piece
        for piece in pieces
    )
    return b",".join(piece for piece in written if piece)


def _system(dialect: Dialect, request: ModelRequest, mark: JsonObject | None) -> JsonObject | None:
    words = asks_for_schema_in_words(dialect.output, request.output_schema)
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
    if description := described(tool):
        function["description"] = description
    return {"type": "function", "function": function}


def _output(dialect: Dialect, request: ModelRequest) -> JsonObject:
    wanted = request.output_schema
    if wanted is None or dialect.output == "prompt":
        return {}
    if dialect.output == "json_object":
        # Servers with this mode refuse it beside tools, or never call them; words must do then.
        return {} if request.tools else {"response_format": {"type": "json_object"}}
    schema: JsonObject = {"name": wanted.name, "schema": wanted.schema}
    if dialect.strict_output and wanted.is_strict:
        schema["strict"] = True
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
