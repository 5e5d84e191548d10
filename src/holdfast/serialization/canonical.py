"""One way to write a JSON value, so that equal values have equal bytes and digests."""

import msgspec

from holdfast.vocabulary.json_types import Json

_encoder = msgspec.json.Encoder(order="deterministic")


def canonical_json(value: Json) -> bytes:
    """Write a value with sorted keys and no spaces."""
    return _encoder.encode(value)


def arguments_hash(tool: str, arguments: Json) -> str:
    """Return the digest that binds an approval to one tool and its exact arguments."""
    import hashlib  # noqa: PLC0415 - it brings OpenSSL's digests, which only tool calls need

    return hashlib.sha256(canonical_json([tool, arguments])).hexdigest()
