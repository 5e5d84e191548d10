"""A reply that says it is JSON where a stream was asked for: the whole body is one frame.

Some servers answer at once although they were asked to stream, some report errors like that, and
some send a stream under the wrong name.
"""

from holdfast.providers.transport.pending_bytes import FRAME_LIMIT, PendingBytes
from holdfast.providers.transport.sse import SseParser
from holdfast.providers.wire.protocol import Frame


class JsonBodyParser:
    """Keeps a body until it ends; one that does not begin as JSON is read as a stream after all."""

    def __init__(self, *, limit: int = FRAME_LIMIT) -> None:
        self.is_json = False
        """Whether the body began as JSON."""
        self._pending = PendingBytes(limit)
        self._stream: SseParser | None = None

    @property
    def copied(self) -> int:
        """How many bytes were copied while frames were put together."""
        return self._pending.copied + (self._stream.copied if self._stream else 0)

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Keep `data`; a stream's frames are appended to `out` as they are completed."""
        if self._stream is not None:
            self._stream.feed(data, out)
            return
        self._pending.add(data)
        start = data.lstrip()[:1]
        if self.is_json or not start:
            return
        if start in {b"{", b"["}:
            self.is_json = True
        else:
            self._stream = SseParser(takes_json_blocks=True)
            self._stream.feed(self._pending.take(), out)

    def flush(self, out: list[Frame]) -> None:
        """Append the whole body, or what is left of a stream, as a frame."""
        if self._stream is not None:
            self._stream.flush(out)
        elif body := self._pending.take().strip():
            out.append(Frame(body))
