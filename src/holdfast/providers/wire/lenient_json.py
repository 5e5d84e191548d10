"""JSON as it is sent by peers that are careless about text: lone surrogates, broken UTF-8."""

import json

import msgspec

from holdfast.vocabulary.errors import ErrorCode, ProviderError
from holdfast.vocabulary.json_types import Json


def decode_lenient(data: bytes) -> Json:
    """Decode `data`, with U+FFFD for what is no text; raises PROTOCOL when it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return without_surrogates(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        # The text may hold anything, so it is not repeated.
        raise ProviderError(
            ErrorCode.PROTOCOL, "the provider sent something that is not JSON", basis="type"
        ) from error


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
