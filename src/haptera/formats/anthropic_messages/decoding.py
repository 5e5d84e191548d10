"""Anthropic Messages: decodes content blocks to parts, and what an answer says of itself."""

import base64
from collections.abc import Callable

import msgspec

from haptera.formats.forms import (
    call_from,
    media_from_data,
    media_from_url,
    number_in,
    object_in,
    split_usage,
    text_in,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject
from haptera.model.parts import (
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ResultContent,
    TextPart,
    ToolResultPart,
)
from haptera.model.usage import Usage

PROVIDER = "anthropic"

NATIVE_BLOCKS = frozenset(
    {
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
    }
)
"""Blocks of the API that we carry and replay without looking into them."""


def answer_facts(message: JsonObject, *, model: str = "") -> AnswerFacts:
    """Return what a message of the API says of itself."""
    return AnswerFacts(
        provider=PROVIDER,
        model=text_in(message, "model") or model,
        usage=_usage_of(object_in(message, "usage")),
        finish_reason=text_in(message, "stop_reason") or None,
        key=text_in(message, "id"),
    )


def _usage_of(usage: JsonObject) -> Usage | None:
    if not usage:
        return None
    return split_usage(
        fresh=number_in(usage, "input_tokens"),
        read=number_in(usage, "cache_read_input_tokens"),
        written=number_in(usage, "cache_creation_input_tokens"),
        output=number_in(usage, "output_tokens"),
        reasoning=number_in(object_in(usage, "output_tokens_details"), "thinking_tokens"),
    )


def read_parts(content: Json, builder: MessageBuilder) -> list[Part]:
    """Return the parts of a message's content, which is a text or a list of blocks."""
    if isinstance(content, str):
        return [TextPart(text=content)]
    if not isinstance(content, list):
        return [] if content is None else [builder.opaque_part(content)]
    return [_part_of(block, builder) for block in content]


def _part_of(block: Json, builder: MessageBuilder) -> Part:
    kind = text_in(block, "type")
    if isinstance(block, str):
        return TextPart(text=block)
    if kind == "tool_result":
        return _tool_result(block, builder) or builder.opaque_part(block)
    if kind in _READERS:
        return _READERS[kind](block) or builder.opaque_part(block)
    if kind in NATIVE_BLOCKS:
        return ProviderPart(provider=PROVIDER, model="", payload=block)
    return builder.opaque_part(block)


def _text(block: JsonObject) -> Part | None:
    return TextPart(text=block["text"]) if isinstance(block.get("text"), str) else None


def _thinking(block: JsonObject) -> Part | None:
    if not isinstance(block.get("thinking"), str):
        return None
    return ReasoningPart(text=block["thinking"], signature=text_in(block, "signature") or None)


def _tool_use(block: JsonObject) -> Part | None:
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
        return None
    return call_from(block["id"], block["name"], block.get("input", {}))


def _tool_result(block: JsonObject, builder: MessageBuilder) -> Part | None:
    if not isinstance(block.get("tool_use_id"), str):
        return None
    result = block.get("content", [])
    pieces = result if isinstance(result, list) else [result]
    content = [_result_content(piece, builder) for piece in pieces if piece is not None]
    return ToolResultPart(
        call_id=CallId(block["tool_use_id"]),
        name="",
        outcome="error" if block.get("is_error") is True else "ok",
        content=tuple(content),
    )


def _result_content(piece: Json, builder: MessageBuilder) -> ResultContent:
    part = _part_of(piece, builder)
    if isinstance(part, TextPart | MediaPart):
        return part
    return TextPart(text=msgspec.json.encode(piece).decode())


def _media(block: JsonObject) -> Part | None:
    default = "image/png" if block["type"] == "image" else "application/pdf"
    source, title = object_in(block, "source"), text_in(block, "title") or None
    mime, data = text_in(source, "media_type") or default, text_in(source, "data")
    match source.get("type"):
        case "base64":
            return media_from_data(data, mime=mime, filename=title)
        case "url":
            return media_from_url(text_in(source, "url"), mime=default, filename=title)
        case "text":
            encoded = base64.b64encode(data.encode()).decode()
            return media_from_data(encoded, mime="text/plain", filename=title)
        case _:
            return None


_READERS: dict[str, Callable[[JsonObject], Part | None]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_use": _tool_use,
    "image": _media,
    "document": _media,
}
