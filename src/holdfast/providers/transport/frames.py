"""What every framing provides: bytes in, whole frames out."""

from typing import Protocol

from holdfast.providers.transport.json_body import JsonBodyParser
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


def new_frame_parser(framing: Framing, content_type: str = "") -> FrameParser:
    """Make the parser of one reply; its content type says whether it is a stream at all."""
    if framing == "ndjson":
        return NdjsonParser()
    if content_type.lower().startswith("application/json"):
        return JsonBodyParser()
    return SseParser(takes_json_blocks=True)
