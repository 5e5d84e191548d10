"""How many tokens a request holds, estimated; for when the provider does not count for us.

Owns the rule of thumb and says so in its result. Does not own exact counts: those are the model
client's. One message can be estimated alone, so that a long session need not be read again.
"""

from typing import assert_never

import msgspec

from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.parts import (
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
from holdfast.vocabulary.requests import ModelRequest, TokenCount
from holdfast.vocabulary.tools import ToolSpec

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
            return _estimate_json(part.payload)
        case _:
            assert_never(part)


def _estimate_media(part: MediaPart) -> int:
    # Four characters of base64 are three bytes.
    content = len(part.data or "") * 3 // 4
    if part.mime.startswith("image/"):
        return _TOKENS_PER_IMAGE
    if part.mime.startswith(("audio/", "video/")):
        return max(_TOKENS_PER_SOUND, content // _SOUND_BYTES_PER_TOKEN)
    return max(_TOKENS_PER_DOCUMENT, content // _DOCUMENT_BYTES_PER_TOKEN)


def _estimate_tool(tool: ToolSpec) -> int:
    texts = estimate_text(tool.name) + estimate_text(tool.description)
    examples = sum(_estimate_json(example) for example in tool.input_examples)
    return _TOKENS_PER_TOOL + texts + _estimate_json(tool.input_schema) + examples


def _estimate_json(value: Json) -> int:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return estimate_text(text)
