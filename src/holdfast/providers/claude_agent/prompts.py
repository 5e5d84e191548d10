"""Prompts: the parts of a user message as the frame that the CLI reads.

A module of its own because the session sends frames and the hand-over of a conversation is text.
"""

from collections.abc import Sequence

from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.parts import MediaPart, Part, ReminderPart, TextPart


def user_message(parts: Sequence[Part]) -> JsonObject:
    """Return the frame of one prompt; text alone stays text, so that slash commands work."""
    blocks = [block for part in parts if (block := _block(part)) is not None]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    content = "\n\n".join(texts) if len(texts) == len(blocks) else blocks
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
    }


def _block(part: Part) -> JsonObject | None:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ReminderPart(text=text):
            return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}
        case MediaPart():
            return _media(part)
        case _:
            return None


def _media(part: MediaPart) -> JsonObject:
    kind = "image" if part.mime.startswith("image/") else "document"
    if part.url is not None:
        return {"type": kind, "source": {"type": "url", "url": part.url}}
    if part.data is None:
        return {"type": "text", "text": f"[{part.filename or part.mime} is not available]"}
    source = {"type": "base64", "media_type": part.mime, "data": part.data}
    return {"type": kind, "source": source}
