"""pydantic-ai: the JSON of its messages (`ModelMessagesTypeAdapter`), read."""

import msgspec

from haptera.formats.bounded_input import ByteStream, checked_count, document_of, refused
from haptera.formats.forms import (
    call_from_text,
    cost_in,
    media_from_data,
    media_from_url,
    milliseconds_of,
    number_in,
    object_in,
    split_usage,
    text_in,
    value_content,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.values import LIMITS, ImportedSession, ImportLimits
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject
from haptera.model.parts import (
    MediaPart,
    Part,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolOutcome,
    ToolResultPart,
)

FORMAT = "pydantic-ai"
_RETURNS = {"tool-return", "tool-search-return", "capability-load-return"}
_CALLS = {"tool-call", "tool-search-call", "capability-load-call"}
_RETRIES = {"retry-prompt", "retry-feedback"}
_OUTCOMES: dict[str, ToolOutcome] = {"failed": "error", "retried": "error", "denied": "denied"}


def read_pydantic_ai(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read what `result.all_messages_json()` gives.

    Raises:
        ConfigError: CONFIG_INVALID if it is no such document, or exceeds a limit.

    """
    document = document_of(stream, limits)
    if not isinstance(document, list):
        raise refused("this is not a list of messages of pydantic-ai")
    builder = MessageBuilder(FORMAT)
    instructions = ""
    for place, message in enumerate(checked_count(document, limits), start=1):
        builder.records += 1
        parts = message.get("parts") if isinstance(message, dict) else None
        kind = text_in(message, "kind")
        if not isinstance(message, dict) or not isinstance(parts, list):
            builder.opaque(kind, "not understood", place=place, raw=msgspec.json.encode(message))
        elif kind == "request":
            text = text_in(message, "instructions")
            # Each request repeats them.
            if text and text != instructions:
                builder.system([text])
                instructions = text
            _read_request(parts, builder, time=milliseconds_of(message.get("timestamp")))
        elif kind == "response":
            _read_response(message, parts, builder)
        else:
            builder.opaque(kind, "not understood", place=place, raw=msgspec.json.encode(message))
    return builder.finish("a list of messages of pydantic-ai")


def _read_request(parts: list[Json], builder: MessageBuilder, *, time: int) -> None:
    for part in parts:
        kind, content = text_in(part, "part_kind"), object_or_empty(part).get("content")
        at = milliseconds_of(object_or_empty(part).get("timestamp")) or time
        if kind == "user-prompt":
            pieces = content if isinstance(content, list) else [content]
            user_parts = [_piece(piece) or builder.opaque_part(piece) for piece in pieces]
            builder.user(user_parts, time=at)
        elif kind == "system-prompt":
            builder.system([text_in(part, "content")])
        elif kind in _RETURNS | _RETRIES and text_in(part, "tool_call_id") and _names_tool(part):
            builder.user([_result(object_or_empty(part), kind, builder)], time=at)
        elif kind in _RETRIES:
            text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
            builder.user([ReminderPart(text=text, persisted=True)], time=at)
        else:
            builder.user([builder.opaque_part(part)], time=at)


def _names_tool(part: Json) -> bool:
    # A retry of pydantic-ai that answers no call has an id all the same.
    return bool(text_in(part, "tool_name")) or text_in(part, "part_kind") in _RETURNS


def _read_response(message: JsonObject, parts: list[Json], builder: MessageBuilder) -> None:
    answer: list[Part] = []
    for part in parts:
        fields = object_or_empty(part)
        if fields.get("citations"):
            builder.leave_out("lists of citations")
        answer.append(_said(fields) or builder.opaque_part(part))
    usage = object_in(message, "usage")
    read, written = number_in(usage, "cache_read_tokens"), number_in(usage, "cache_write_tokens")
    reasoning = number_in(usage, "output_reasoning_tokens")
    counted = split_usage(
        fresh=max(0, number_in(usage, "input_tokens") - read - written),
        read=read,
        written=written,
        output=number_in(usage, "output_tokens"),
        reasoning=reasoning or number_in(object_in(usage, "details"), "reasoning_tokens"),
    )
    facts = AnswerFacts(
        provider=text_in(message, "provider_name"),
        model=text_in(message, "model_name"),
        usage=counted if usage else None,
        finish_reason=text_in(message, "finish_reason") or None,
        interrupted=text_in(message, "state") in {"interrupted", "suspended"},
        cost=cost_in(usage, "cost"),
    )
    builder.facts.model = text_in(message, "model_name") or builder.facts.model
    builder.assistant(answer, facts, time=milliseconds_of(message.get("timestamp")))


def _said(part: JsonObject) -> Part | None:
    kind, content = text_in(part, "part_kind"), text_in(part, "content")
    if kind == "text":
        return TextPart(text=content)
    if kind == "thinking":
        return ReasoningPart(text=content, signature=text_in(part, "signature") or None)
    if kind == "file":
        return _piece(part.get("content"))
    call_id, name = text_in(part, "tool_call_id"), text_in(part, "tool_name")
    if kind in _CALLS and call_id and name:
        return call_from_text(call_id, name, part.get("args"))
    return None


def _result(part: JsonObject, kind: str, builder: MessageBuilder) -> ToolResultPart:
    if part.get("metadata"):
        builder.leave_out("metadata of tool results")
    outcome = _OUTCOMES.get(text_in(part, "outcome"), "ok")
    content = part.get("content")
    pieces = content if isinstance(content, list) else [content]
    media = [_piece(piece) for piece in pieces]
    # A list with media is one of pieces, any other one is a value.
    whole = value_content(content) if not any(isinstance(each, MediaPart) for each in media) else ()
    return ToolResultPart(
        call_id=CallId(text_in(part, "tool_call_id")),
        name=text_in(part, "tool_name"),
        outcome="error" if kind in _RETRIES else outcome,
        content=whole
        or tuple(
            each if isinstance(each, MediaPart | TextPart) else value_content(piece)[0]
            for each, piece in zip(media, pieces, strict=True)
            if piece is not None
        ),
    )


def _piece(piece: Json) -> Part | None:
    if isinstance(piece, str):
        return TextPart(text=piece)
    kind, mime = text_in(piece, "kind"), text_in(piece, "media_type")
    if kind.endswith("-url"):
        return media_from_url(text_in(piece, "url"), mime=mime)
    if kind == "binary":
        # pydantic writes bytes as the base64 that has no plus and no slash.
        data = text_in(piece, "data").replace("-", "+").replace("_", "/")
        return media_from_data(data, mime=mime)
    if kind == "text-content" and text_in(piece, "content"):
        return TextPart(text=text_in(piece, "content"))
    return None


def object_or_empty(value: Json) -> JsonObject:
    """Return a value that is an object; an empty one if it is not."""
    return value if isinstance(value, dict) else {}
