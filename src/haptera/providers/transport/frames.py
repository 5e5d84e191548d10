"""Frame parsers: split the bytes of a reply into frames, by its framing and content type."""

from typing import Protocol

from haptera.providers.transport.sse import FRAME_LIMIT, PendingBytes, SseParser
from haptera.providers.wire.protocol import Frame, Framing


class FrameParser(Protocol):
    """Splits the bytes of one reply into frames; the result does not depend on how they arrive."""

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Append the frames that `data` completes to `out`; PROTOCOL if one is too long."""
        ...

    def flush(self, out: list[Frame]) -> None:
        """Append what is left at the end of the body as a frame."""
        ...


def new_frame_parser(framing: Framing, content_type: str = "") -> FrameParser:
    """Return the parser for one reply; its content type says whether it is a stream at all."""
    if framing == "ndjson":
        return NdjsonParser()
    if content_type.lower().startswith("application/json"):
        return JsonBodyParser()
    return SseParser(takes_json_blocks=True)


class NdjsonParser:
    """Newline-delimited JSON: every line is a frame; empty lines are ignored."""

    def __init__(self, *, limit: int = FRAME_LIMIT) -> None:
        self._pending = PendingBytes(limit)

    @property
    def copied(self) -> int:
        """The number of bytes copied so far."""
        return self._pending.copied

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Append the lines that `data` completes to `out`."""
        if b"\n" not in data:
            self._pending.add(data)
            return
        lines = (self._pending.take(data) if self._pending.held else data).split(b"\n")
        if rest := lines.pop():
            self._pending.add(rest)
        out.extend([Frame(text) for line in lines if (text := line.strip())])

    def flush(self, out: list[Frame]) -> None:
        """Append the last line, if it did not end."""
        if text := self._pending.take().strip():
            out.append(Frame(text))


class JsonBodyParser:
    """A reply with the content type of JSON: the whole body is one frame.

    Some servers do not stream although they were asked to, and some report errors this way. Others
    send a stream with the wrong content type: a body that does not begin as JSON is parsed as
    server-sent events.
    """

    def __init__(self) -> None:
        self.is_json = False
        """Whether the body began as JSON."""
        self._pending = PendingBytes(FRAME_LIMIT)
        self._stream: SseParser | None = None

    @property
    def copied(self) -> int:
        """The number of bytes copied so far."""
        return self._pending.copied + (self._stream.copied if self._stream else 0)

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Keep `data`; if the body is a stream, append the frames that it completes."""
        if self._stream is not None:
            self._stream.feed(data, out)
            return
        self._pending.add(data)
        start = data.lstrip()[:1]
        # Only white space so far: what the body is shows with the first other byte.
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
