"""Server-sent events: bytes to frames, true to the WHATWG standard at any split of the bytes.

All line ends become LF first, so that frames can be cut by searching for an empty line. A frame
of one `event:` and one `data:` line, which is nearly all there is, is then read with one comparison
and one search; any other goes line by line.
"""

import re

from holdfast.providers.transport.pending_bytes import FRAME_LIMIT, PendingBytes
from holdfast.providers.wire.protocol import Frame

_BOM = b"\xef\xbb\xbf"
_EVENT = b"event: "
_DATA = b"data: "
_JSON = re.compile(rb"\{|\[\s*\{")


class SseParser:
    """Cuts one stream of server-sent events into frames.

    Owns what is unfinished, the last event id and the reconnection time. Does not decode `data`.
    With `takes_json_blocks`, a block that begins like an object, or a list of them, is a frame,
    too: the standard passes such lines over, but some providers report an error in the middle of a
    stream as plain JSON.
    """

    def __init__(self, *, limit: int = FRAME_LIMIT, takes_json_blocks: bool = False) -> None:
        self.retry_ms: int | None = None
        """How long the sender asks clients to wait before they connect again."""
        self.last_event_id = ""
        self._pending = PendingBytes(limit)
        self._head: bytes | None = b""
        self._skip_lf = False
        self._opening = _DATA
        self._opening_event = "message"
        self._takes_json_blocks = takes_json_blocks

    def feed(self, data: bytes, out: list[Frame]) -> None:
        """Append the frames that `data` completes to `out`."""
        if self._head is not None:
            data = self._without_bom(data)
        if self._skip_lf or b"\r" in data:
            data = self._with_plain_line_ends(data)
        # Only a line end can complete a frame, so long ones are joined once, not at every read.
        if b"\n" not in data:
            self._pending.add(data)
            return
        blocks = self._pending.take(data).split(b"\n\n")
        self._pending.add(blocks.pop())
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
            self._pending.add(self._head)
            self._head = None
        if rest := self._pending.take():
            self._read_lines(rest, out)

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
        event = b""
        data: list[bytes] = []
        for line in (*block.split(b"\n"), b""):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                if data:
                    out.append(Frame(b"\n".join(data), _name(event), self.last_event_id))
                event, data = b"", []
            elif field == b"data":
                data.append(value)
            elif field == b"event":
                event = value
            else:
                self._read_control(field, value)

    def _read_control(self, field: bytes, value: bytes) -> None:
        if field == b"id" and b"\0" not in value:
            self.last_event_id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry_ms = int(value)


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "replace") or "message"
