"""Server-sent events: bytes to frames, true to the WHATWG standard at any split of the bytes.

All line ends become LF first, so that frames can be cut by searching for an empty line. A frame
of one `event:` and one `data:` line, which is nearly all there is, is then read with one comparison
and one search; any other goes line by line.

The work is linear in the bytes for any input and any split of it: a byte is searched when it comes
and joined to what is pending at most once, when its frame ends. A frame that grows long is read
line by line as it comes, so that no single read has much to do.
"""

import re

from holdfast.providers.transport.pending_bytes import FRAME_LIMIT, PendingBytes
from holdfast.providers.wire.protocol import Frame

_BOM = b"\xef\xbb\xbf"
_EVENT = b"event: "
_DATA = b"data: "
_JSON = re.compile(rb"\{|\[\s*\{")
_LONG = 64 * 1024
"""From here on a frame of many lines is not kept whole until it ends."""


class SseParser:
    """Cuts one stream of server-sent events into frames.

    Owns what is unfinished, the last event id and the reconnection time. Does not decode `data`.
    With `takes_json_blocks`, a block that begins like an object, or a list of them, is a frame,
    too: the standard passes such lines over, but some providers report an error in the middle of a
    stream as plain JSON.
    """

    def __init__(
        self, *, limit: int = FRAME_LIMIT, takes_json_blocks: bool = False, long: int = _LONG
    ) -> None:
        self.retry_ms: int | None = None
        """How long the sender asks clients to wait before they connect again."""
        self.last_event_id = ""
        self._pending = PendingBytes(limit)
        self._head: bytes | None = b""
        self._skip_lf = False
        self._opening = _DATA
        self._opening_event = "message"
        self._takes_json_blocks = takes_json_blocks
        self._long = long
        self._is_in_lines = False
        """Whether the lines of the frame that is arriving are read as they come."""
        self._event = b""
        self._data: bytearray | None = None

    @property
    def copied(self) -> int:
        """How many bytes were copied while frames were put together."""
        return self._pending.copied

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Append the frames that `data` completes to `out`."""
        if self._head is not None:
            data = self._without_bom(data)
        if self._skip_lf or b"\r" in data:
            data = self._with_plain_line_ends(data)
        # Only a line end can complete a frame, so long ones are joined once, not at every read.
        if b"\n" not in data:
            self._keep(data)
            return
        if self._is_in_lines:
            data = self._read_on(data, out)
        # An empty line ends a frame. It is in `data`, or half of it was the last byte before.
        if b"\n\n" not in data and not (data[:1] == b"\n" and self._pending.endswith(b"\n")):
            self._keep(data)
            if len(self._pending) > self._long and not self._is_in_lines:
                self._begin_lines(out)
            return
        blocks = self._pending.take(data).split(b"\n\n")
        self._keep(blocks.pop())
        for block in blocks:
            # Frames come in long runs of one kind, so the last one's opening is tried first.
            if block.startswith(self._opening) and block.find(b"\n", len(self._opening)) < 0:
                data = block[len(self._opening) :]
                out.append(Frame(data, self._opening_event, self.last_event_id))
            else:
                self._read_block(block, out)

    def flush(self, out: list[Frame]) -> None:
        """Append what is left as a frame; the standard would drop it, some providers need it."""
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

    def _with_plain_line_ends(self, data: bytes) -> bytes:
        if not data:
            return data
        if self._skip_lf and data.startswith(b"\n"):
            data = data[1:]
        self._skip_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read_block(self, block: bytes, out: list[Frame]) -> None:
        """Read a block; one of the usual shape teaches how to read those that follow."""
        end = block.find(b"\n") if block.startswith(_EVENT) else -1
        start = end + 1 + len(_DATA)
        if block.startswith(_DATA, end + 1) and block.find(b"\n", start) < 0:
            event = _name(block[len(_EVENT) : end]) if end >= 0 else "message"
            out.append(Frame(block[start:], event, self.last_event_id))
            self._opening, self._opening_event = block[:start], event
        else:
            self._read_lines(block, out)

    def _read_lines(self, block: bytes, out: list[Frame]) -> None:
        """Read a block that ends with an empty line, and may hold more of them at its start."""
        if self._takes_json_blocks and _JSON.match(plain := block.strip(b"\n")):
            out.append(Frame(plain, "message", self.last_event_id))
            return
        self._take_lines(block, out)
        self._end_frame(out)

    def _begin_lines(self, out: list[Frame]) -> None:
        """Read the lines that have come of a long frame; plain JSON is kept until it is whole."""
        if self._takes_json_blocks and self._pending.begins_with(b"{["):
            return
        self._is_in_lines = True
        self._keep(self._read_on(b"", out))

    def _read_on(self, data: bytes, out: list[Frame]) -> bytes:
        """Read the lines that `data` completes; returns what follows the end of the frame."""
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
                if self._data is None:
                    self._data = bytearray()
                else:
                    self._data += b"\n"
                self._data += value
            elif field == b"event":
                self._event = value
            else:
                self._read_control(field, value)

    def _end_frame(self, out: list[Frame]) -> None:
        if self._data is not None:
            out.append(Frame(bytes(self._data), _name(self._event), self.last_event_id))
        self._event, self._data = b"", None

    def _read_control(self, field: bytes, value: bytes) -> None:
        if field == b"id" and b"\0" not in value:
            self.last_event_id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry_ms = int(value)


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "replace") or "message"
