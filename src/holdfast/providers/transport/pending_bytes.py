"""The bytes of a frame that has not ended yet, joined only once and never without bound."""

from holdfast.vocabulary.errors import ErrorCode, ProviderError

FRAME_LIMIT = 32 * 1024 * 1024
"""No frame of a provider is longer than this; more is a broken or hostile peer."""


class PendingBytes:
    """Collects pieces of an unfinished frame. Does not look into them."""

    __slots__ = ("_limit", "_pieces", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, piece: bytes) -> None:
        """Keep `piece`; raises PROTOCOL when the frame grows too long."""
        if not piece:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            raise ProviderError(
                ErrorCode.PROTOCOL, f"the provider sent a frame of more than {self._limit} bytes"
            )

    def take(self, tail: bytes = b"") -> bytes:
        """Return everything kept, then `tail`, and keep nothing."""
        if not self._size:
            return tail
        joined = b"".join((*self._pieces, tail))
        self._pieces.clear()
        self._size = 0
        return joined
