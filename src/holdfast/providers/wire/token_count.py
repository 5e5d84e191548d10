"""Reads the reply to a request that counts tokens."""

from holdfast.providers.wire.lenient_json import decode_lenient
from holdfast.vocabulary.errors import ErrorCode, ProviderError


def read_token_count(body: bytes, field: str) -> int:
    """Return the number under `field`; raises PROTOCOL when there is none."""
    reply = decode_lenient(body)
    count = reply.get(field) if isinstance(reply, dict) else None
    if not isinstance(count, int):
        raise ProviderError(
            ErrorCode.PROTOCOL, "the provider's token count is malformed", basis="type"
        )
    return count
