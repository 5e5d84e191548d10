"""What every framing provides: bytes in, whole frames out."""

from typing import Protocol

from holdfast.providers.transport.ndjson import NdjsonParser
from holdfast.providers.transport.sse import SseParser
from holdfast.providers.wire.protocol import Frame, Framing


class FrameParser(Protocol):
    """Cuts the bytes of one reply into frames; any split of the bytes gives the same frames."""

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Append the frames that `data` completes to `out`; PROTOCOL when one is too long."""
        ...

    def flush(self, out: list[Frame]) -> None:
        """Append what is left as a frame, for providers that end without its last blank line."""
        ...


def new_frame_parser(framing: Framing) -> FrameParser:
    """Make the parser of one reply."""
    return SseParser() if framing == "sse" else NdjsonParser()
