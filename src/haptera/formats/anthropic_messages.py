"""Anthropic messages: a request's `system` and `messages` as one JSON document, in and out.

The content blocks are also what Claude Code keeps in its lines.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

import msgspec

from haptera.formats.bounded_input import (
    ByteStream,
    checked_count,
    document_of,
    refused,
)
from haptera.formats.forms import (
    UniqueCallIds,
    call_from,
    media_from_data,
    media_from_url,
    number_in,
    object_in,
    split_usage,
    stand_in,
    text_in,
    tool_name,
    with_content,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    SessionExport,
)
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    argument_object,
    reminder_text,
)
from haptera.model.usage import Usage

FORMAT = "anthropic"
PROVIDER = "anthropic"

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_NATIVE = frozenset(
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


def leaves_out(message: Message, part: Part) -> bool:
    """Whether a part is left out: blank text, reasoning without a signature or of others."""
    is_native = isinstance(message, AssistantMessage) and message.provider == PROVIDER
    match part:
        case TextPart(text=text) | CompactionPart(text=text) | ReminderPart(text=text):
            # The API refuses a text that is only white space.
            return not text.strip()
        case ReasoningPart(signature=signature):
            return not (is_native and signature)
        case ProviderPart(provider=provider, payload=payload):
            return not (provider == PROVIDER and text_in(payload, "type") in _NATIVE)
        case _:
            return False


def write_anthropic_messages(export: SessionExport) -> Iterator[bytes]:
    """Write `{"system": …, "messages": […]}`, ready to be sent with a model and a limit."""
    system = "\n\n".join(filter(None, export.system_prompts))
    begin = b'{"system":' + msgspec.json.encode(system) + b"," if system else b"{"
    yield begin + b'"messages":['
    writer, comma = BlockWriter(export), b"\n"
    for each in export.messages:
        blocks = writer.blocks(each.message, each.message.parts)
        if blocks:
            role = "assistant" if isinstance(each.message, AssistantMessage) else "user"
            yield comma + msgspec.json.encode({"role": role, "content": blocks})
            comma = b",\n"
    yield b"\n]}\n"


class BlockWriter:
    """Writes parts as content blocks. Owns the ids of calls across the conversation."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._ids = UniqueCallIds()

    def blocks(self, message: Message, parts: Iterable[Part]) -> list[JsonObject]:
        """Return the blocks of some parts of a message, without what the API would refuse."""
        return [self._block(part) for part in parts if not leaves_out(message, part)]

    def _block(self, part: Part) -> JsonObject:
        match part:
            case TextPart(text=text) | CompactionPart(text=text):
                return {"type": "text", "text": text}
            case ReminderPart(text=text):
                return {"type": "text", "text": reminder_text(text)}
            case ReasoningPart():
                return {"type": "thinking", "thinking": part.text, "signature": part.signature}
            case ToolCallPart():
                named = {"id": self._ids.of_call(part.call_id), "name": tool_name(part.name)}
                return {"type": "tool_use", **named, "input": argument_object(part)}
            case ToolResultPart() | MediaPart():
                return self._result_or_media(part)
            case ProviderPart(payload=payload):
                return payload
            case _:
                assert_never(part)

    def _result_or_media(self, part: ToolResultPart | MediaPart) -> JsonObject:
        if isinstance(part, MediaPart):
            return _media_block(with_content(part, self._export))
        content = [
            {"type": "text", "text": piece.text}
            if isinstance(piece, TextPart)
            else _media_block(with_content(piece, self._export))
            for piece in part.content
            if not isinstance(piece, TextPart) or piece.text.strip()
        ]
        # The API refuses an error that says nothing.
        if not content and part.is_error:
            content = [{"type": "text", "text": part.outcome.replace("_", " ")}]
        block: JsonObject = {"type": "tool_result"}
        block["tool_use_id"] = self._ids.of_result(part.call_id)
        if content:
            is_plain = len(content) == 1 and content[0]["type"] == "text"
            block["content"] = content[0]["text"] if is_plain else content
        return block | ({"is_error": True} if part.is_error else {})


def _media_block(part: MediaPart) -> JsonObject:
    source: JsonObject | None = None
    if part.url is not None:
        source = {"type": "url", "url": part.url}
    elif part.is_readable and part.data and part.mime.startswith("text/"):
        # For text the API takes no other media type.
        source = {"type": "text", "media_type": "text/plain", "data": part.decoded_text}
    elif part.is_readable and part.data:
        source = {"type": "base64", "media_type": part.mime, "data": part.data}
    if source is not None and part.mime in _IMAGES:
        return {"type": "image", "source": source}
    if source is not None and (part.mime == "application/pdf" or source["type"] == "text"):
        return {"type": "document", "source": source, **_named(part)}
    return {"type": "text", "text": stand_in(part)}


def _named(part: MediaPart) -> JsonObject:
    return {"title": part.filename} if part.filename else {}


def read_anthropic_messages(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a request's body, or the list of its messages alone.

    Raises:
        ConfigError: CONFIG_INVALID if it is no such document, or exceeds a limit.

    """
    document = document_of(stream, limits)
    given = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(given, list):
        raise refused("this is not a document of Anthropic messages: it has no list of messages")
    builder = MessageBuilder(FORMAT)
    if isinstance(document, dict):
        builder.facts.model = text_in(document, "model")
        builder.facts.system_prompts = _system_of(document.get("system"))
    for place, message in enumerate(checked_count(given, limits), start=1):
        builder.records += 1
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            builder.user(read_parts(message.get("content"), builder))
        elif role == "assistant":
            parts = read_parts(message.get("content"), builder)
            builder.assistant(parts, answer_facts(message, model=builder.facts.model))
        else:
            raw = msgspec.json.encode(message)
            builder.opaque(str(role or ""), "not understood", place=place, raw=raw)
    return builder.finish("a document of Anthropic messages")


def _system_of(system: Json) -> tuple[str, ...]:
    if isinstance(system, str):
        return (system,) if system else ()
    texts = [text_in(block, "text") for block in objects_in(system)]
    return tuple(text for text in texts if text)


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
    if kind in _NATIVE:
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
    given = block.get("content", [])
    pieces = given if isinstance(given, list) else [given]
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
