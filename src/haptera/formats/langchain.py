"""LangChain: the JSON of its messages, as `messages_to_dict`, `dumps` or `model_dump` write it."""

import msgspec

from haptera.formats.bounded_input import ByteStream, checked_count, document_of, refused
from haptera.formats.forms import (
    call_from_text,
    media_from_data,
    media_from_url,
    number_in,
    object_in,
    split_usage,
    text_in,
    value_content,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.values import LIMITS, ImportedSession, ImportLimits
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.parts import (
    MediaPart,
    Part,
    ReasoningPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

FORMAT = "langchain"
_KINDS = {
    **dict.fromkeys(("system", "SystemMessage", "SystemMessageChunk"), "system"),
    **dict.fromkeys(("human", "HumanMessage", "HumanMessageChunk"), "human"),
    **dict.fromkeys(("ai", "AIMessage", "AIMessageChunk"), "ai"),
    **dict.fromkeys(("tool", "ToolMessage", "ToolMessageChunk"), "tool"),
    **dict.fromkeys(("function", "FunctionMessage", "FunctionMessageChunk"), "tool"),
}
_ROLES = {"user": "human", "human": "human", "assistant": "ai", "ai": "ai", "system": "system"}
_CALL_BLOCKS = {"tool_use", "tool_call", "function_call", "input_json_delta", "invalid_tool_call"}
"""Blocks that say again what `tool_calls` says."""


def read_langchain(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a list of messages, or an object such as a state of LangGraph that has one.

    Raises:
        ConfigError: CONFIG_INVALID if it is no such document, or exceeds a limit.

    """
    document = document_of(stream, limits)
    messages = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(messages, list):
        raise refused("this is not a document of LangChain: it has no list of messages")
    builder = MessageBuilder(FORMAT)
    if isinstance(document, dict) and len(document) > 1:
        builder.leave_out("fields of the state beside its messages", len(document) - 1)
    for place, message in enumerate(checked_count(messages, limits), start=1):
        builder.records += 1
        kind, fields = _opened(message)
        if not _add(kind, fields, builder):
            raw = msgspec.json.encode(message)
            builder.opaque(kind, "not understood", place=place, raw=raw)
    return builder.finish("a list of messages of LangChain")


def _opened(message: Json) -> tuple[str, JsonObject]:
    """Return the kind of a message and its fields, whichever form it has."""
    if not isinstance(message, dict):
        return "", {}
    outer = text_in(message, "type")
    if "lc" in message:
        path = message.get("id")
        named = path[-1] if isinstance(path, list) and path else ""
        fields = object_in(message, "kwargs")
        return _kind(named if isinstance(named, str) else "", fields), fields
    fields = object_in(message, "data") if "data" in message else message
    return _kind(outer, fields), fields


def _kind(name: str, fields: JsonObject) -> str:
    if name in {"chat", "ChatMessage", "ChatMessageChunk"}:
        return _ROLES.get(text_in(fields, "role").lower(), name)
    return _KINDS.get(name, name)


def _add(kind: str, fields: JsonObject, builder: MessageBuilder) -> bool:
    content = fields.get("content")
    if kind == "system":
        parts = _parts_of(content, builder)
        builder.system(part.text for part in parts if isinstance(part, TextPart))
    elif kind == "human":
        builder.user(_parts_of(content, builder))
    elif kind == "ai":
        builder.assistant(_said(fields, builder), _facts(fields, builder))
    elif kind == "tool" and (text_in(fields, "tool_call_id", "name")):
        builder.user([_result(fields, builder)])
    else:
        return False
    return True


def _said(fields: JsonObject, builder: MessageBuilder) -> list[Part]:
    more = object_in(fields, "additional_kwargs")
    reasoning = text_in(more, "reasoning_content")
    parts: list[Part] = [ReasoningPart(text=reasoning)] if reasoning else []
    calls = [
        call_from_text(text_in(call, "id"), text_in(call, "name"), call.get("args"))
        for call in objects_in(fields.get("tool_calls"))
        if text_in(call, "id") and text_in(call, "name")
    ]
    invalid = [
        ToolCallPart(
            call_id=CallId(text_in(call, "id")),
            name=text_in(call, "name"),
            invalid=text_in(call, "args"),
        )
        for call in objects_in(fields.get("invalid_tool_calls"))
        if text_in(call, "id") and text_in(call, "name")
    ]
    unnamed = len(objects_in(fields.get("tool_calls"))) - len(calls)
    unnamed += len(objects_in(fields.get("invalid_tool_calls"))) - len(invalid)
    if unnamed:
        builder.leave_out("tool calls without an id or a name", unnamed)
    content = fields.get("content")
    if calls or invalid:
        blocks = content if isinstance(content, list) else [content]
        content = [each for each in blocks if text_in(each, "type") not in _CALL_BLOCKS]
    parts += _parts_of(content, builder)
    if refusal := text_in(more, "refusal"):
        parts.append(TextPart(text=refusal))
    return [*parts, *calls, *invalid]


def _facts(fields: JsonObject, builder: MessageBuilder) -> AnswerFacts:
    usage, response = object_in(fields, "usage_metadata"), object_in(fields, "response_metadata")
    details = object_in(usage, "input_token_details")
    read, written = number_in(details, "cache_read"), number_in(details, "cache_creation")
    counted = split_usage(
        fresh=max(0, number_in(usage, "input_tokens") - read - written),
        read=read,
        written=written,
        output=number_in(usage, "output_tokens"),
        reasoning=number_in(object_in(usage, "output_token_details"), "reasoning"),
    )
    model = text_in(response, "model_name", "model")
    builder.facts.model = model or builder.facts.model
    return AnswerFacts(
        provider=text_in(response, "model_provider"),
        model=model,
        usage=counted if usage else None,
        finish_reason=text_in(response, "finish_reason", "stop_reason") or None,
    )


def _result(fields: JsonObject, builder: MessageBuilder) -> ToolResultPart:
    if fields.get("artifact") is not None:
        builder.leave_out("artifacts of tool results")
    content = fields.get("content")
    pieces = content if isinstance(content, list) else [content]
    return ToolResultPart(
        call_id=CallId(text_in(fields, "tool_call_id", "name")),
        name=text_in(fields, "name"),
        outcome="error" if text_in(fields, "status") == "error" else "ok",
        content=tuple(each for piece in pieces for each in _result_content(piece)),
    )


def _result_content(piece: Json) -> tuple[ResultContent, ...]:
    part = _part_of(piece)
    return (part,) if isinstance(part, TextPart | MediaPart) else value_content(piece)


def _parts_of(content: Json, builder: MessageBuilder) -> list[Part]:
    pieces = content if isinstance(content, list) else [content]
    wanted = [each for each in pieces if each is not None and each != ""]
    return [_part_of(piece) or builder.opaque_part(piece) for piece in wanted]


def _part_of(piece: Json) -> Part | None:
    if isinstance(piece, str):
        return TextPart(text=piece)
    match text_in(piece, "type"):
        case "text" if isinstance(piece, dict) and isinstance(piece.get("text"), str):
            return TextPart(text=piece["text"])
        case "thinking" | "reasoning" if text_in(piece, "thinking", "reasoning"):
            return ReasoningPart(
                text=text_in(piece, "thinking", "reasoning"),
                signature=text_in(piece, "signature") or None,
            )
        case "image_url":
            url = text_in(object_in(piece, "image_url"), "url") or text_in(piece, "image_url")
            return media_from_url(url, mime="image/png")
        case "image" | "audio" | "video" | "file" | "document" | "text-plain":
            return _medium(piece)
        case _:
            return None


def _medium(piece: Json) -> Part | None:
    source = object_in(piece, "source")  # the form of Anthropic
    mime = text_in(piece, "mime_type") or text_in(source, "media_type")
    name = text_in(piece, "filename") or None
    url = text_in(piece, "url") or text_in(source, "url")
    if url:
        return media_from_url(url, mime=mime, filename=name)
    data = text_in(piece, "base64", "data") or text_in(source, "data")
    return media_from_data(data, mime=mime, filename=name)
