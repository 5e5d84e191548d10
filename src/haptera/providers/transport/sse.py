"""Server-sent events: splits bytes into frames as the WHATWG standard says, at any split of them.

Line ends are normalised to LF first, so that a frame ends at an empty line. Nearly every frame has
one `event:` and one `data:` line, and begins with the same bytes as the frame before it, which
takes one comparison and one search. A long read is split at these bytes. Any other frame is read
line by line.

The work is linear in the number of bytes, for any input and any split of it: a byte is searched
when it arrives and joined to what is pending at most once, when its frame ends. The lines of a long
frame are read as they arrive, so that no single read has much to do.
"""

import re

from haptera.model.errors import ErrorCode, ProviderError
from haptera.providers.wire.protocol import Frame

FRAME_LIMIT = 32 * 1024 * 1024
"""The most bytes of one frame; more comes from a broken or hostile peer."""


class PendingBytes:
    """The bytes of a frame that has not ended yet.

    Every byte is copied once when it is added and once when it is taken, whatever the size of the
    pieces, and no memory is used beside the bytes.
    """

    __slots__ = ("_limit", "copied", "held")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = bytearray()
        """What has arrived so far. Read it, but change it with `add` and `take` only."""
        self.copied = 0
        """The number of bytes copied so far; tests check that it is linear in the input."""

    def add(self, piece: bytes, *, beside: int = 0) -> None:
        """Add `piece`; raises PROTOCOL if there are more than `limit - beside` bytes then."""
        self.held += piece
        self.copied += len(piece)
        if len(self.held) + beside > self._limit:
            raise ProviderError(
                ErrorCode.PROTOCOL, f"the provider sent a frame of more than {self._limit} bytes"
            )

    def take(self, tail: bytes = b"") -> bytes:
        """Return everything that is held, followed by `tail`; nothing is held any more."""
        if not self.held:
            return tail
        joined = b"".join((self.held, tail))
        self.held = bytearray()
        self.copied += len(joined)
        return joined


_BOM = b"\xef\xbb\xbf"
_EVENT = b"event: "
_DATA = b"data: "
_LF, _CR = b"\n\r"
"""As numbers: to look for a number in bytes is much faster than to look for bytes."""
_JSON = re.compile(rb"\{|\[\s*\{")
_MANY_FRAMES = 16 * 1024
"""Of more bytes than this, so many are frames of one kind that they are split off together."""
_LONG = 64 * 1024
"""A frame of more bytes than this is read line by line, before it has ended."""


class SseParser:
    """Splits one stream of server-sent events into frames.

    Owns the unfinished frame and the last event id. Does not decode `data`. With
    `takes_json_blocks`, a block of plain JSON (an object, or a list of objects) is a frame, too.
    The standard ignores such lines, but some providers report errors in a stream that way.
    """

    def __init__(
        self, *, limit: int = FRAME_LIMIT, takes_json_blocks: bool = False, long: int = _LONG
    ) -> None:
        self.last_event_id = ""
        self._pending = PendingBytes(limit)
        self._head: bytes | None = b""
        """The first bytes, until it is known whether they are a byte order mark; then None."""
        self._skip_lf = False
        # Frames come in long runs of one kind, so the bytes that the last one began with are
        # compared first.
        self._opening = _DATA
        self._opening_event = "message"
        self._takes_json_blocks = takes_json_blocks
        self._long = long
        self._is_in_lines = False
        """Whether the lines of the current frame are read as they arrive, because it is long."""
        self._event = b""
        self._data: bytearray | None = None

    @property
    def copied(self) -> int:
        """The number of bytes copied so far."""
        return self._pending.copied

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Append the frames that `data` completes to `out`."""
        # A read without any of these, as nearly all are, is not copied.
        if self._head is not None or self._skip_lf or _CR in data:
            data = self._normalised(data)
        # Only a line end can complete a frame, so long ones are joined once, not at every read.
        if _LF not in data:
            self._keep(data)
            return
        if self._is_in_lines:
            data = self._read_on(data, out)
        held = self._pending.held
        # An empty line ends a frame. It is in `data`, or its first half was the last byte before.
        if b"\n\n" not in data and not (data[:1] == b"\n" and held.endswith(b"\n")):
            self._keep(data)
            if len(held) > self._long and not self._is_in_lines:
                self._begin_lines(out)
            return
        text = self._pending.take(data) if held else data
        if len(text) > _MANY_FRAMES:
            text = self._read_run(text, out)
        blocks = text.split(b"\n\n")
        if rest := blocks.pop():
            self._keep(rest)
        opening, event, last_id = self._opening, self._opening_event, self.last_event_id
        for block in blocks:
            if block.startswith(opening) and _LF not in (data := block[len(opening) :]):
                out.append(Frame(data, event, last_id))
            else:
                self._read_block(block, out)
                opening, event, last_id = self._opening, self._opening_event, self.last_event_id

    def flush(self, out: list[Frame]) -> None:
        """Append what is left as a frame. The standard drops it, but some providers need it."""
        if self._head is not None:
            self._keep(self._head)
            self._head = None
        rest = self._pending.take()
        if self._is_in_lines:
            self._is_in_lines = False
            self._take_lines(rest, out)
            self._end_frame(out)
        elif rest:
            self._read_lines(rest, out)

    def _keep(self, data: bytes) -> None:
        self._pending.add(data, beside=len(self._data or b""))

    def _without_bom(self, data: bytes) -> bytes:
        head = (self._head or b"") + data
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _normalised(self, data: bytes) -> bytes:
        """Return `data` without a byte order mark at the beginning, and with LF as line ends."""
        if self._head is not None:
            data = self._without_bom(data)
        if not data:
            return data
        if self._skip_lf and data.startswith(b"\n"):
            data = data[1:]
        # A CR at the end of a read may be the first half of CR LF. It counts as a line end now, and
        # the LF is dropped when it comes.
        self._skip_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read_run(self, text: bytes, out: list[Frame]) -> bytes:
        """Read frames up to the last one that begins as the one before `text` did; returns it.

        It may be unfinished, and be followed by others.
        """
        opening, event = self._opening, self._opening_event
        # One split in C, instead of a test in Python for each frame of a long read.
        first, *run = text.split(b"\n\n" + opening)
        if not run:
            return text
        last = run.pop()
        for block in first.split(b"\n\n"):
            self._read_block(block, out)
        for data in run:
            if _LF not in data:
                out.append(Frame(data, event, self.last_event_id))
                continue
            for block in (opening + data).split(b"\n\n"):  # frames of other kinds follow it
                self._read_block(block, out)
        return opening + last

    def _read_block(self, block: bytes, out: list[Frame]) -> None:
        """Read a block; one of the usual form sets what the next ones are compared with."""
        end = block.find(b"\n") if block.startswith(_EVENT) else -1
        start = end + 1 + len(_DATA)
        if block.startswith(_DATA, end + 1) and block.find(b"\n", start) < 0:
            event = _name(block[len(_EVENT) : end]) if end >= 0 else "message"
            out.append(Frame(block[start:], event, self.last_event_id))
            self._opening, self._opening_event = block[:start], event
        else:
            self._read_lines(block, out)

    def _read_lines(self, block: bytes, out: list[Frame]) -> None:
        """Read a block line by line; it may begin with empty lines."""
        if self._takes_json_blocks and _JSON.match(plain := block.strip(b"\n")):
            out.append(Frame(plain, "message", self.last_event_id))
            return
        self._take_lines(block, out)
        self._end_frame(out)

    def _begin_lines(self, out: list[Frame]) -> None:
        """Read the lines of a long frame that have arrived; plain JSON is kept until it ends."""
        # The first byte that is not a line end.
        if self._takes_json_blocks and self._pending.held[:8].lstrip(b"\n")[:1] in b"{[":
            return
        self._is_in_lines = True
        self._keep(self._read_on(b"", out))

    def _read_on(self, data: bytes, out: list[Frame]) -> bytes:
        """Read the lines that `data` completes; returns what follows the last of them."""
        lines = self._pending.take(data)
        end = 0 if lines.startswith(b"\n") else lines.find(b"\n\n")
        self._is_in_lines = end < 0
        if self._is_in_lines:
            end = lines.rfind(b"\n")
            self._take_lines(lines[:end], out)
            return lines[end + 1 :]
        if end:
            self._take_lines(lines[:end], out)
        self._end_frame(out)
        return lines[end + 1 :].removeprefix(b"\n")

    def _take_lines(self, lines: bytes, out: list[Frame]) -> None:
        for line in lines.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                self._end_frame(out)
            elif field == b"data":
                # Several `data` lines of one event are joined with LF, as the standard says.
                if self._data is None:
                    self._data = bytearray()
                else:
                    self._data += b"\n"
                self._data += value
            elif field == b"event":
                self._event = value
            # The standard ignores an id with a NUL.
            elif field == b"id" and b"\0" not in value:
                self.last_event_id = value.decode("utf-8", "replace")

    def _end_frame(self, out: list[Frame]) -> None:
        if self._data is not None:
            out.append(Frame(bytes(self._data), _name(self._event), self.last_event_id))
        self._event, self._data = b"", None


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "replace") or "message"
