"""Newline-delimited JSON: one line, one frame."""

from holdfast.providers.transport.pending_bytes import FRAME_LIMIT, PendingBytes
from holdfast.providers.wire.protocol import Frame


class NdjsonParser:
    """Cuts a stream of lines into frames; empty lines are passed over."""

    def __init__(self, *, limit: int = FRAME_LIMIT) -> None:
        self._pending = PendingBytes(limit)

    @property
    def copied(self) -> int:
        """How many bytes were copied while frames were put together."""
        return self._pending.copied

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Append the lines that `data` completes to `out`."""
        if b"\n" not in data:
            self._pending.add(data)
            return
        lines = self._pending.take(data).split(b"\n")
        self._pending.add(lines.pop())
        out.extend(Frame(text) for line in lines if (text := line.strip()))

    def flush(self, out: list[Frame]) -> None:
        """Append the last line, where it did not end."""
        if text := self._pending.take().strip():
            out.append(Frame(text))
