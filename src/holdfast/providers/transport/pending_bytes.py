"""The bytes of a frame that has not ended yet, joined only once and never without bound."""

from holdfast.vocabulary.errors import ErrorCode, ProviderError

FRAME_LIMIT = 32 * 1024 * 1024
"""No frame of a provider is longer than this; more is a broken or hostile peer."""


class PendingBytes:
    """Collects pieces of an unfinished frame. Does not look into them.

    Every byte is copied once when it is added and once when it is taken, whatever the size of the
    pieces; they take no more room than their bytes.
    """

    __slots__ = ("_bytes", "_limit", "copied")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = bytearray()
        self.copied = 0
        """How many bytes were copied so far: the work that must stay linear in the input."""

    def __len__(self) -> int:
        return len(self._bytes)

    def endswith(self, end: bytes) -> bool:
        """Whether what is kept ends so."""
        return self._bytes.endswith(end)

    def begins_with(self, marks: bytes) -> bool:
        """Whether the first byte that is no line end is one of `marks`."""
        return self._bytes[:8].lstrip(b"\n")[:1] in marks

    def add(self, piece: bytes, *, beside: int = 0) -> None:
        """Keep `piece`; raises PROTOCOL when it and what is kept `beside` it grow too long."""
        self._bytes += piece
        self.copied += len(piece)
        if len(self._bytes) + beside > self._limit:
            raise ProviderError(
                ErrorCode.PROTOCOL, f"the provider sent a frame of more than {self._limit} bytes"
            )

    def take(self, tail: bytes = b"") -> bytes:
        """Return everything kept, then `tail`, and keep nothing."""
        if not self._bytes:
            return tail
        joined = b"".join((self._bytes, tail))
        self._bytes = bytearray()
        self.copied += len(joined)
        return joined
