"""Finds what can be read in the bytes of a log: the good lines, the damage, and where it ends.

A damaged line is reported and skipped; later lines are still read. An append counts only as a
whole: when the end of the file cuts one off, its lines are a torn tail and no part of the log.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from haptera.model.errors import StoreError
from haptera.model.log.entry import Entry
from haptera.model.operations.operation import CommandId
from haptera.stores.jsonl.lines import (
    LINE_START,
    DamagedBytes,
    LogLine,
    kind_of,
    parse_entry_lines,
    parse_log_line,
    parse_log_lines,
)
from haptera.stores.stored_records import FindBlob, from_stored_bodies, from_stored_body

_BYTES_AT_ONCE = 128 * 1024
"""As much as is read in one step: small enough that memory is used again for the next one."""


class FoundLine(msgspec.Struct, frozen=True, gc=False):
    """A good line, its offset, and whether it is the first of an append."""

    offset: int
    line: LogLine
    starts_append: bool


class UnreadableEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Entries at the end of a log whose lines are good but whose blobs cannot be read."""

    offset: int
    """Where the append begins that holds the first of them."""
    seq: int
    """The `seq` of the first of them."""
    kept: list[tuple[int, bytes]]
    """The entries before it in the same append, as pairs of `seq` and stored entry."""
    consumed: list[CommandId]
    """The commands that were consumed from there on."""


@dataclass(slots=True)
class LogScan:
    """What a stretch of a log holds."""

    end: int
    """The offset after the last whole append."""
    head: int
    """The last `seq`."""
    lines: list[FoundLine] = field(default_factory=list)
    damaged: list[DamagedBytes] = field(default_factory=list)
    torn: DamagedBytes | None = None
    """The append that the end of the file cuts off."""
    is_unterminated: bool = False
    """Whether the last line is good and only its line end is missing."""


@dataclass(slots=True)
class WholeLog:
    """Everything that a log holds, as its writer needs it."""

    entries: list[Entry]
    consumed: set[CommandId]
    epoch: int
    """The greatest of its lines."""
    head: int
    """The last `seq`."""
    end: int
    """The offset after the last whole append."""


def read_undamaged(descriptor: int) -> WholeLog | None:
    """Read a log of lines that simply follow one another, each as this version writes it.

    Returns None for any other log, which has to be scanned. Nearly all logs are read so: their
    lines are decoded in one pass, together with their entries.
    """
    log = WholeLog(entries=[], consumed=set(), epoch=0, head=0, end=0)
    rest, left = b"", 0
    # `log.end` bytes were taken as whole lines, and `rest` is the beginning of the next line.
    while piece := os.pread(descriptor, _BYTES_AT_ONCE, log.end + len(rest)):
        *ended, rest = (rest + piece).split(b"\n")
        lines = parse_entry_lines(ended)
        if lines is None:
            return None
        for line in lines:
            if line.seq != log.head + 1 or (left and line.left != left - 1):
                return None
            log.head, left = line.seq, line.left
            log.entries.append(line.entry)
            log.consumed.update(line.consumed)
        log.epoch = max([log.epoch, *(line.epoch for line in lines)])
        log.end += sum(map(len, ended)) + len(ended)
    return None if rest or left else log


def whole_log(scan: LogScan, find_blob: FindBlob) -> WholeLog:
    """Make a `WholeLog` of what a scan found."""
    return WholeLog(
        entries=decode_scanned(scan, find_blob),
        consumed={item for found in scan.lines for item in found.line.consumed},
        epoch=max((found.line.epoch for found in scan.lines), default=0),
        head=scan.head,
        end=scan.end,
    )


def scan_log(content: bytes, *, offset: int = 0, after: int = 0) -> LogScan:
    """Scan `content`, which starts at `offset` with the append that follows `seq` `after`."""
    pieces = content.split(b"\n")
    rest = pieces.pop()
    if not rest and (scan := _scan_undamaged(pieces, offset=offset, after=after)) is not None:
        return scan
    scanner = _Scanner(LogScan(end=offset, head=after))
    position = offset
    for piece in pieces:
        scanner.take_piece(position, piece, is_ended=True)
        position += len(piece) + 1
    if rest:
        scanner.take_piece(position, rest, is_ended=False)
    return scanner.finish(offset + len(content))


def _scan_undamaged(pieces: Sequence[bytes], *, offset: int, after: int) -> LogScan | None:
    """Scan lines that simply follow one another; None for anything else.

    Nearly all logs are read so, in a fraction of the time that looking for damage takes.
    """
    lines = parse_log_lines(pieces)
    if lines is None:
        return None
    scan = LogScan(end=offset, head=after)
    left = 0
    for piece, line in zip(pieces, lines, strict=True):
        has_entry = line.has_entry
        # A line without an entry repeats the `seq` of the head.
        if line.seq != scan.head + has_entry or (left and line.left != left - 1):
            return None
        scan.lines.append(FoundLine(scan.end, line, not left))
        scan.head, left = line.seq, line.left
        scan.end += len(piece) + 1
    return None if left else scan


def decode_scanned(
    scan: LogScan,
    find_blob: FindBlob,
    *,
    after: int = 0,
    kinds: Collection[str] | None = None,
) -> list[Entry]:
    """Decode the entries after a `seq`, all or only those of some kinds.

    A good line whose entry cannot be decoded is added to the damage.
    """
    # What is not wanted is not decoded: it may have a large blob.
    wanted = [
        found
        for found in scan.lines
        if found.line.has_entry
        and found.line.seq > after
        and (kinds is None or kind_of(found.line) in kinds)
    ]
    try:
        # All at once is faster, and nearly always succeeds. Its error does not say which entry it
        # was.
        return from_stored_bodies([bytes(found.line.entry) for found in wanted], find_blob)
    except StoreError:
        return _decode_one_by_one(scan, wanted, find_blob)


def _decode_one_by_one(
    scan: LogScan, wanted: Sequence[FoundLine], find_blob: FindBlob
) -> list[Entry]:
    entries = []
    for found in wanted:
        try:
            entries.append(from_stored_body(bytes(found.line.entry), find_blob))
        except StoreError as error:
            scan.damaged.append(DamagedBytes(found.offset, 0, error.message))
    return entries


def find_unreadable_end(scan: LogScan, find_blob: FindBlob) -> UnreadableEnd | None:
    """Return the entries at the end of a log whose blobs are gone; None when there are none.

    They have to go before a writer appends: it would give their `seq` to other entries.
    """
    lines = scan.lines
    first = len(lines)
    # Lines that only consume have no entry. They neither end the search nor belong to what is lost.
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].line.has_entry:
            if _is_readable(lines[index].line, find_blob):
                break
            first = index
    if first == len(lines):
        return None
    start = first
    while start and not lines[start].starts_append:
        start -= 1
    return UnreadableEnd(
        offset=lines[start].offset,
        seq=lines[first].line.seq,
        kept=[(found.line.seq, bytes(found.line.entry)) for found in lines[start:first]],
        consumed=[item for found in lines[start:] for item in found.line.consumed],
    )


def _is_readable(line: LogLine, find_blob: FindBlob) -> bool:
    try:
        from_stored_body(bytes(line.entry), find_blob)
    except StoreError:
        return False
    return True


class _Scanner:
    """Takes the pieces between line ends and decides which of them belong to the log.

    Lines of an append that is not complete yet, and damage among them, are kept open.
    """

    def __init__(self, result: LogScan) -> None:
        self._result = result
        self._open: list[FoundLine] = []
        self._open_damage: list[DamagedBytes] = []
        self._open_at: int | None = None
        self._left = 0
        self._is_after_damage = False
        """Whether damaged bytes precede the next line: they explain entries that are missing."""

    def take_piece(self, offset: int, piece: bytes, *, is_ended: bool) -> None:
        """Take any piece; the last one of a file may have no line end."""
        skipped, line = _find_line(piece)
        if line is None:
            # A last line without its end may be one that is being written: it is torn, not damaged.
            if not is_ended:
                self._open_at = offset if self._open_at is None else self._open_at
                return
            self._take_damage(offset, piece)
            return
        if skipped:
            self._take_damage(offset, piece[:skipped], is_whole=False)
        self._take_line(offset + skipped, line)
        if self._open_at is None:
            self._result.end = offset + len(piece) + is_ended
            self._result.is_unterminated = not is_ended

    def finish(self, size: int) -> LogScan:
        """Return the result; what is still open is torn."""
        if self._open_at is not None:
            self._result.torn = DamagedBytes(
                self._open_at, size - self._open_at, "the last append was cut off"
            )
            # Damage before the torn lines of the same append is part of the torn tail.
            self._result.end = self._open_at
        return self._result

    def _take_line(self, offset: int, line: LogLine) -> None:
        if self._open and line.left != self._left - 1:
            # Another append begins, so lines of the open one are missing; it is not a torn tail.
            self._close_append()
        found = FoundLine(offset, line, starts_append=not self._open)
        if self._open_at is None:
            self._open_at = offset
        self._open.append(found)
        self._left = line.left
        if not line.left:
            self._close_append()

    def _take_damage(self, offset: int, piece: bytes, *, is_whole: bool = True) -> None:
        self._open_damage.append(DamagedBytes(offset, len(piece), _reason(piece)))
        # The damaged line was one of the append's lines, so the countdown goes on over it.
        if self._open and is_whole:
            self._left -= 1
        if not self._open or not self._left:
            self._close_append()
            self._result.end = offset + len(piece) + is_whole

    def _close_append(self) -> None:
        marks: list[FoundLine | DamagedBytes] = [*self._open, *self._open_damage]
        if self._open_damage:
            marks.sort(key=lambda item: item.offset)
        for mark in marks:
            if isinstance(mark, DamagedBytes):
                self._result.damaged.append(mark)
                self._is_after_damage = True
            else:
                self._accept(mark)
        self._open, self._open_damage, self._open_at = [], [], None

    def _accept(self, found: FoundLine) -> None:
        seq, head = found.line.seq, self._result.head
        if found.line.has_entry:
            if seq <= head:
                reason = f"a second entry calls itself {seq}"
                self._result.damaged.append(DamagedBytes(found.offset, 0, reason))
                return
            # Damage in front is in the list already, and says where the missing entries were.
            if seq > head + 1 and not self._is_after_damage:
                reason = f"entries {head + 1} to {seq - 1} are missing"
                self._result.damaged.append(DamagedBytes(found.offset, 0, reason))
            self._result.head = seq
        self._is_after_damage = False
        self._result.lines.append(found)


def _find_line(piece: bytes) -> tuple[int, LogLine | None]:
    """Return the line at the end of a piece, and how many damaged bytes come before it."""
    if (line := parse_log_line(piece)) is not None:
        return 0, line
    # A damaged line end joins two lines. The second one can still be read.
    for start in _line_starts(piece):
        if (line := parse_log_line(piece[start:])) is not None:
            return start, line
    return len(piece), None


def _line_starts(piece: bytes) -> Iterator[int]:
    start = piece.find(LINE_START)
    while start >= 0:
        yield start
        start = piece.find(LINE_START, start + 1)


def _reason(piece: bytes) -> str:
    # File systems leave zero bytes where a file had grown and its data was not yet written when the
    # power failed.
    if not piece.strip(b"\0"):
        return f"{len(piece)} zero bytes"
    return "the checksum does not match" if piece.startswith(LINE_START) else "not a line of a log"
