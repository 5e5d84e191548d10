"""Frames: the lines that the Claude Code CLI prints, as far as this package reads them.

Everything else in a line is passed over. A field of an unexpected type is left out, because the
CLI is released several times a week and its lines are not a fixed format.
"""

import msgspec

from haptera.model.errors import ErrorCode, ProviderError
from haptera.model.json_types import Json, JsonObject
from haptera.model.own_name import FORMER_NAME
from haptera.model.vendors import CLAUDE_AGENT
from haptera.providers.wire.lenient_decoding import (
    DECODE_ERRORS,
    convert_leniently,
    decode_lenient,
)

OWN_SERVER = "haptera"
"""The name of the MCP server that offers our own tools."""
_OWN_PREFIXES = (f"mcp__{OWN_SERVER}__", f"mcp__{FORMER_NAME}__")
"""What the CLI puts before the names of our tools; the second in transcripts begun before."""


class Head(msgspec.Struct):
    """What decides where a line goes, read without the rest of it."""

    type: str = ""
    subtype: str | None = None
    session_id: str | None = None
    state: str | None = None


class AgentMessage(msgspec.Struct):
    """The message inside an `assistant` or a `user` frame."""

    id: str | None = None
    model: str = ""
    content: Json = None
    stop_reason: str | None = None
    usage: JsonObject | None = None


class StreamFrame(msgspec.Struct):
    """A `stream_event`: one event of the Messages API as the CLI received it."""

    event: msgspec.Raw = msgspec.Raw(b"{}")
    parent_tool_use_id: str | None = None
    api_message_id: str | None = None


class MessageFrame(msgspec.Struct):
    """An `assistant` or a `user` frame."""

    message: AgentMessage | None = None
    parent_tool_use_id: str | None = None
    error: str | None = None
    """For answers that the CLI made up because a request failed: the kind of error."""
    tool_result_meta: list[JsonObject] | None = None


class SystemFrame(msgspec.Struct):
    """A `system` frame."""

    subtype: str = ""
    session_id: str | None = None
    model: str | None = None
    tools: list[str] | None = None
    compact_metadata: JsonObject | None = None
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: float | None = None
    error_status: int | None = None
    error: Json = None
    task_id: str | None = None
    tool_use_id: str | None = None
    description: str | None = None
    status: str | None = None
    summary: str | None = None
    patch: JsonObject | None = None


class ResultFrame(msgspec.Struct):
    """A `result` frame."""

    subtype: str = "success"
    is_error: bool = False
    session_id: str | None = None
    result: str | None = None
    num_turns: int | None = None
    stop_reason: str | None = None
    terminal_reason: str | None = None
    usage: JsonObject | None = None
    model_usage: dict[str, JsonObject] | None = msgspec.field(default=None, name="modelUsage")
    total_cost_usd: float | None = None
    api_error_status: int | None = None
    errors: Json = None


_head_decoder = msgspec.json.Decoder(Head)
_stream_decoder = msgspec.json.Decoder(StreamFrame)


def read_head(line: bytes) -> Head:
    """Read what a line is.

    Raises:
        ProviderError: PROTOCOL when it is no JSON object.

    """
    try:
        return _head_decoder.decode(line)
    except msgspec.ValidationError:  # before the others, of which it is one: only a type is wrong
        return convert_leniently(decode_line(line), Head)
    except DECODE_ERRORS as error:
        raise _unreadable(line, error) from error


def read_stream_frame(line: bytes) -> StreamFrame:
    """Read a `stream_event`."""
    try:
        return _stream_decoder.decode(line)
    except DECODE_ERRORS as error:
        raise _unreadable(line, error) from error


def decode_line(line: bytes) -> JsonObject:
    """Read a whole line.

    Raises:
        ProviderError: PROTOCOL when it is no JSON object.

    """
    try:
        value = decode_lenient(line)
    except ProviderError as error:
        raise _unreadable(line, error) from error
    if not isinstance(value, dict):
        raise _unreadable(line, TypeError("not an object"))
    return value


def own_name(tool: str) -> str:
    """Return a tool's name as our log has it: our own tools without the server's name."""
    for prefix in _OWN_PREFIXES:
        if tool.startswith(prefix):
            return tool.removeprefix(prefix)
    return tool


def is_own(tool: str) -> bool:
    """Whether a tool is one of ours."""
    return tool.startswith(_OWN_PREFIXES)


def _unreadable(line: bytes, error: Exception) -> ProviderError:
    return ProviderError(
        ErrorCode.PROTOCOL,
        f"the agent printed a line of {len(line)} bytes that is not a message: {error}",
        provider=CLAUDE_AGENT,
        basis="type",
    )
