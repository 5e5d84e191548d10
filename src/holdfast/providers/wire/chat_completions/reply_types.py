"""What a Chat Completions server sends: typed for the common piece, salvaged when it is odd."""

from typing import Any

import msgspec

from holdfast.providers.wire.lenient_json import UNREADABLE, decode_lenient
from holdfast.providers.wire.what_fits import keep_what_fits
from holdfast.vocabulary.errors import ErrorCode, ProviderError
from holdfast.vocabulary.json_types import Json, JsonObject


class Function(msgspec.Struct, gc=False):
    """The function of a tool call, or a piece of it."""

    name: str | None = None
    arguments: str | JsonObject | list[Any] | None = None


class ToolCall(msgspec.Struct, gc=False):
    """A tool call, or a piece of it; some servers leave out the index, some the id."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: JsonObject | None = None
    """What the server wants back with the call (signatures)."""


class Delta(msgspec.Struct, gc=False):
    """What a piece adds to the answer; a whole message has the same fields."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[JsonObject] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None
    annotations: list[Any] | None = None
    audio: JsonObject | None = None
    executed_tools: list[JsonObject] | None = None


class Choice(msgspec.Struct, gc=False):
    """One of the answers; only the first is ours."""

    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    """Instead of `delta` where the server does not stream."""
    finish_reason: str | None = None
    logprobs: JsonObject | None = None
    usage: JsonObject | None = None
    error: Json = None
    """Where a router says what became of this answer alone."""


class ServerExtras(msgspec.Struct, gc=False):
    """Where one server puts usage beside the usual place."""

    usage: JsonObject | None = None


class AnswerPiece(msgspec.Struct, gc=False):
    """One frame of a streamed answer, or a whole answer."""

    id: str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: JsonObject | None = None
    x_groq: ServerExtras | None = None
    error: Json = None
    object: str | None = None
    """What this is; some servers send an error without anything around it."""
    citations: list[Any] | None = None
    search_results: list[Any] | None = None


_END_MARK = b"[DONE]"
_decode_typed = msgspec.json.Decoder(AnswerPiece).decode


def decode_piece(data: bytes) -> AnswerPiece | None:
    """Read one frame; None for the mark that ends a stream.

    A field of the wrong type is left out; what is not JSON raises PROTOCOL.
    """
    try:
        return _decode_typed(data)
    except UNREADABLE:
        # The mark is looked for here, because it is no JSON and comes once.
        return None if data.lstrip().startswith(_END_MARK) else _decode_salvaging(data)


def is_error(piece: AnswerPiece) -> bool:
    """Whether a piece reports an error instead of an answer."""
    if piece.error is not None:
        return True
    return not piece.choices and piece.object == "error"


def plain_text(piece: AnswerPiece) -> str | None:
    """Return the text of a piece that holds nothing else, which most pieces do."""
    choices = piece.choices
    if not choices or len(choices) > 1 or piece.usage is not None or piece.error is not None:
        return None
    choice = choices[0]
    delta = choice.delta
    if delta is None or choice.index or choice.finish_reason or choice.logprobs or choice.usage:
        return None
    if choice.error is not None:
        return None
    content = delta.content
    is_plain = (
        type(content) is str
        and delta.tool_calls is None
        and delta.reasoning is None
        and delta.reasoning_content is None
        and delta.reasoning_details is None
        and delta.refusal is None
        and delta.annotations is None
        and delta.audio is None
        and delta.executed_tools is None
        and delta.function_call is None
        and piece.x_groq is None
        and piece.citations is None
        and piece.search_results is None
    )
    return content if is_plain and isinstance(content, str) else None


def _decode_salvaging(data: bytes) -> AnswerPiece:
    value = decode_lenient(data)
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        raise ProviderError(
            ErrorCode.PROTOCOL, "the provider sent a frame that is no object", basis="type"
        )
    return keep_what_fits(value, AnswerPiece)
