"""Anthropic Messages: encodes messages as content blocks, for requests and exports."""

from collections.abc import Iterable

from haptera.formats.lenient_json import with_text_ids
from haptera.model.json_types import Json, JsonObject
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

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
DOCUMENT_TYPES = ("application/pdf", "text/plain")

_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})


def blocks_of(
    message: Message, *, keeps_compaction: bool, is_open: bool = False
) -> list[JsonObject]:
    """Return the content blocks of a message, tool results first; there may be none.

    `is_open` is for an answer that the model is to continue: it is sent unchanged.
    """
    is_assistant = isinstance(message, AssistantMessage)
    blocks: list[JsonObject] = []
    for index, part in enumerate(message.parts):
        if isinstance(part, TextPart):
            # The API refuses text that is only white space.
            if part.text.strip():
                blocks.append(_text(part, is_assistant=is_assistant))
        elif isinstance(part, CompactionPart):
            blocks += _compaction(part, keeps_native=is_assistant and keeps_compaction)
        elif isinstance(part, ReminderPart):
            blocks.append(_reminder(part, message.parts[index + 1 : index + 2]))
        else:
            blocks += _block(part)
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return blocks
    if not is_assistant:
        # The API refuses a user message in which anything precedes the results. The sort is stable.
        blocks.sort(key=lambda block: block["type"] != "tool_result")
    elif not is_open:
        blocks = _completed(blocks)
    return blocks


def _completed(blocks: list[JsonObject]) -> list[JsonObject]:
    """Leave out what a completed answer may not hold.

    That is a server tool call without a result, and thinking at the end.
    """
    answered = {block.get("tool_use_id") for block in blocks}
    parts = [
        block
        for block in blocks
        if block["type"] != "server_tool_use" or block.get("id") in answered
    ]
    while parts and parts[-1]["type"] in _UNMARKABLE:
        parts.pop()
    return parts


def can_be_marked(block: JsonObject) -> bool:
    """Whether a block may have a cache mark."""
    return block["type"] not in _UNMARKABLE


def _text(part: TextPart, *, is_assistant: bool) -> JsonObject:
    block: JsonObject = {"type": "text", "text": part.text}
    citations = part.native and part.native.get("citations")
    if citations and is_assistant:
        block["citations"] = citations
    return block


def _block(
    part: ReasoningPart | ToolCallPart | ToolResultPart | MediaPart | ProviderPart,
) -> Iterable[JsonObject]:
    match part:
        case ReasoningPart(signature=signature) if signature:
            # Thinking that was cut off has no signature, and the API refuses unsigned thinking.
            yield {"type": "thinking", "thinking": part.text, "signature": signature}
        case ToolCallPart():
            yield {
                "type": "tool_use",
                "id": part.call_id,
                "name": part.name,
                "input": argument_object(part),
                **(part.native or {}),
            }
        case ToolResultPart():
            yield _result(part)
        case MediaPart():
            yield _media(part)
        case ProviderPart(payload=payload) if isinstance(payload.get("type"), str):
            yield with_text_ids(payload, "id", "tool_use_id")
        case _:
            return


def _result(part: ToolResultPart) -> JsonObject:
    block: JsonObject = {"type": "tool_result", "tool_use_id": part.call_id}
    content = [_result_content(piece) for piece in part.content if _has_content(piece)]
    # The API refuses an error without content.
    if not content and part.is_error:
        content = [{"type": "text", "text": part.outcome.replace("_", " ")}]
    if content:
        is_plain = len(content) == 1 and content[0]["type"] == "text"
        block["content"] = content[0]["text"] if is_plain else content
    if part.is_error:
        block["is_error"] = True
    return block


def _result_content(piece: ResultContent) -> JsonObject:
    return {"type": "text", "text": piece.text} if isinstance(piece, TextPart) else _media(piece)


def _has_content(piece: ResultContent) -> bool:
    return not isinstance(piece, TextPart) or bool(piece.text.strip())


def _media(part: MediaPart) -> JsonObject:
    """Return an image or a document block; plain text is decoded, other content stays base64."""
    source: JsonObject
    if part.url is not None:
        source = {"type": "url", "url": part.url}
    elif part.mime.startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": part.decoded_text}
    else:
        source = {"type": "base64", "media_type": part.mime, "data": part.data or ""}
    if part.mime.startswith("image/"):
        return {"type": "image", "source": source}
    named = {"title": part.filename} if part.filename else {}
    return {"type": "document", "source": source, **named}


def _compaction(part: CompactionPart, *, keeps_native: bool) -> Iterable[JsonObject]:
    if not part.text.strip():
        return
    if keeps_native:
        yield {"type": "compaction", "content": part.text, **(part.native or {})}
    else:
        yield {"type": "text", "text": part.text}


def _reminder(part: ReminderPart, following: tuple[Part, ...]) -> JsonObject:
    """Wrap a reminder; the last one of several is separated from the content that follows."""
    is_last = bool(following) and not isinstance(following[0], ReminderPart)
    gap = "\n\n" if is_last else ""
    return {"type": "text", "text": f"{reminder_text(part.text)}{gap}"}


def marked(block: JsonObject, mark: Json) -> JsonObject:
    """Return a block with a cache mark on it."""
    return {**block, "cache_control": mark}
