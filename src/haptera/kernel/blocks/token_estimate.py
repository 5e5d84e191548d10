"""How many tokens a request holds, estimated; for when the provider does not count for us.

Owns the rule of thumb and says so in its result. Does not own exact counts: those are the model
client's. One message can be estimated alone, so that a long session need not be read again.
"""

from typing import assert_never

import msgspec

from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.tools import ToolSpec

_CHARACTERS_PER_TOKEN = 4
_FOREIGN_BYTES = bytes(range(128, 256))
_FOREIGN_BYTES_PER_TOKEN = 3
"""Outside of ASCII a character of two to four bytes is about one token."""
_TOKENS_PER_MESSAGE = 4
_TOKENS_PER_TOOL = 12
_TOKENS_PER_IMAGE = 1600
_TOKENS_PER_DOCUMENT = 3000
_DOCUMENT_BYTES_PER_TOKEN = 25
"""A page of 50 kB is about 2,000 tokens."""
_TOKENS_PER_SOUND = 300
_SOUND_BYTES_PER_TOKEN = 500
"""A second of compressed sound is about 16 kB and 32 tokens."""


def estimate_tokens(request: ModelRequest) -> TokenCount:
    """Estimate the input tokens of a whole request."""
    tokens = sum(estimate_text(text) for text in request.system)
    tokens += sum(_estimate_tool(tool) for tool in request.tools)
    tokens += sum(estimate_message(message) for message in request.messages)
    if request.output_schema is not None:
        tokens += _estimate_json(request.output_schema.schema)
    return TokenCount(tokens=tokens, exact=False)


def estimate_message(message: Message) -> int:
    """Estimate the tokens of one message, with what its frame costs."""
    return _TOKENS_PER_MESSAGE + sum(_estimate_part(part) for part in message.parts)


def estimate_text(text: str) -> int:
    """Estimate the tokens of a text, rounded up."""
    if text.isascii():
        return -(-len(text) // _CHARACTERS_PER_TOKEN)
    # Counted by `translate`: a loop over the characters of a long text would be slow.
    # A text from outside may hold lone surrogates, and an estimate must not fail.
    data = text.encode("utf-8", "surrogatepass")
    plain = len(data.translate(None, _FOREIGN_BYTES))
    foreign = len(data) - plain
    # `-(-a // b)` rounds up.
    return -(-plain // _CHARACTERS_PER_TOKEN) - (-foreign // _FOREIGN_BYTES_PER_TOKEN)


def _estimate_part(part: Part) -> int:
    match part:
        case TextPart() | ReasoningPart() | ReminderPart() | CompactionPart():
            return estimate_text(part.text)
        case ToolCallPart():
            arguments = part.invalid if part.invalid is not None else part.arguments
            return _TOKENS_PER_TOOL + estimate_text(part.name) + _estimate_json(arguments)
        case ToolResultPart():
            return _TOKENS_PER_TOOL + sum(_estimate_part(content) for content in part.content)
        case MediaPart():
            return _estimate_media(part)
        case ProviderPart():
            return _estimate_payload(part.payload)
        case _:
            assert_never(part)


def _estimate_media(part: MediaPart) -> int:
    return _estimate_content(part.mime, len(part.data or ""))


def _estimate_content(mime: str, length: int) -> int:
    """Estimate a medium from the length of its base64."""
    if mime.startswith("image/"):
        return _TOKENS_PER_IMAGE
    content = length * 3 // 4  # four characters of base64 are three bytes
    if mime.startswith(("audio/", "video/")):
        return max(_TOKENS_PER_SOUND, content // _SOUND_BYTES_PER_TOKEN)
    return max(_TOKENS_PER_DOCUMENT, content // _DOCUMENT_BYTES_PER_TOKEN)


def _estimate_payload(payload: JsonObject) -> int:
    """Estimate what only its provider understands; a medium in it, such as a picture, as one."""
    media = 0
    pending: list[Json] = [payload]
    rest: list[Json] = []
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            rest += value.keys()
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str) and (mime := _mime_of_base64(value)):
            media += _estimate_content(mime, len(value))
        else:
            rest.append(value)
    return media + _estimate_json(rest)


_SHORTEST_MEDIUM = 256
_BASE64_BEGINNINGS = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
    "JVBERi0": "application/pdf",
    "SUQz": "audio/mpeg",
    "T2dnUw": "audio/ogg",
    "ZkxhQw": "audio/flac",
}
"""How the base64 of media begins, by the first bytes of their formats."""


def _mime_of_base64(text: str) -> str | None:
    """Return what kind of medium a text is the base64 of, also in a data URL; None for no such."""
    if len(text) < _SHORTEST_MEDIUM:
        return None
    if text.startswith("data:"):
        mime, is_base64, _ = text[5:_SHORTEST_MEDIUM].partition(";base64,")
        return mime if is_base64 else None
    kinds = _BASE64_BEGINNINGS.items()
    return next((mime for begin, mime in kinds if text.startswith(begin)), None)


def _estimate_tool(tool: ToolSpec) -> int:
    texts = estimate_text(tool.name) + estimate_text(tool.description)
    examples = sum(_estimate_json(example) for example in tool.input_examples)
    return _TOKENS_PER_TOOL + texts + _estimate_json(tool.input_schema) + examples


def _estimate_json(value: Json) -> int:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return estimate_text(text)
