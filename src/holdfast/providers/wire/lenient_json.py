"""JSON as careless peers send it: lone surrogates, broken UTF-8, numbers where words belong."""

import json
import math

import msgspec

from holdfast.vocabulary.errors import ErrorCode, ProviderError
from holdfast.vocabulary.json_types import Json, JsonObject

_DIGITS = 300
"""A float has no more of them, and a strict decoder takes no more than a few thousand."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a strict decoder raises: no JSON, no text, another type, or nested too deeply."""


def decode_lenient(data: bytes) -> Json:
    """Decode `data`, with U+FFFD for what is no text and null for what is no number.

    Raises PROTOCOL when it is not JSON, or nested too deeply to be read.
    """
    try:
        return msgspec.json.decode(data)
    except UNREADABLE:
        pass
    try:
        value = json.loads(
            data.decode("utf-8", "replace"),
            parse_int=_whole_number,
            parse_float=_finite_number,
            parse_constant=lambda _name: None,
        )
        return without_surrogates(value)
    except (ValueError, RecursionError) as error:
        # The text may hold anything, so it is not repeated.
        words = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise ProviderError(
            ErrorCode.PROTOCOL, f"the provider sent something that is {words}", basis="type"
        ) from error


def word_of(value: Json) -> str:
    """Return an id or a name as text: some servers number them; what is neither is no word."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def with_words(value: JsonObject, *names: str) -> JsonObject:
    """Return an object whose named fields are words, without those of them that cannot be."""
    if all(isinstance(value[name], str) for name in names if name in value):
        return value
    words = {name: word_of(value[name]) for name in names if name in value}
    rest = {name: each for name, each in value.items() if name not in words}
    return rest | {name: word for name, word in words.items() if word}


def _whole_number(digits: str) -> int | None:
    """Read an integer that a log can hold; more digits than that count nothing."""
    return int(digits) if len(digits) <= _DIGITS else None


def _finite_number(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def without_surrogates(value: Json) -> Json:
    """Replace what UTF-8 cannot hold in every string of a JSON value; pairs are joined."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list() | tuple():
            return [without_surrogates(item) for item in value]
        case dict():
            return {
                without_surrogates(key): without_surrogates(item) for key, item in value.items()
            }
        case _:
            return value


def encode_lenient(value: Json) -> bytes:
    """Encode `value`; what UTF-8 cannot hold becomes U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(value))
