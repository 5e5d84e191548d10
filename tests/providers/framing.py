"""A plain frame splitter for tests, so that decoders can be tried without a transport."""

from collections.abc import Iterable, Iterator

from holdfast.providers.wire.protocol import Frame, Framing


def frames_of(framing: Framing, reads: Iterable[bytes]) -> Iterator[list[Frame]]:
    """Yield the frames that each read completes, and what is left at the end."""
    take = _take_events if framing == "sse" else _take_lines
    rest = b""
    for read in reads:
        frames, rest = take(rest + read)
        yield frames
    frames, _ = take(rest + b"\n\n")
    yield frames


def _take_lines(buffer: bytes) -> tuple[list[Frame], bytes]:
    *lines, rest = buffer.split(b"\n")
    return [Frame(line) for line in lines if line.strip()], rest


def _take_events(buffer: bytes) -> tuple[list[Frame], bytes]:
    whole = buffer[:-1] if buffer.endswith(b"\r") else buffer
    *blocks, rest = whole.replace(b"\r\n", b"\n").split(b"\n\n")
    frames = [frame for block in blocks if (frame := _event_of(block)) is not None]
    return frames, rest + buffer[len(whole) :]


def _event_of(block: bytes) -> Frame | None:
    if block.lstrip().startswith(b"{"):
        # Not an event stream any more: a server fell back to a plain JSON error.
        return Frame(block.strip())
    data: list[bytes] = []
    event = "message"
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            event = value.strip().decode()
    return Frame(b"\n".join(data), event) if data else None
