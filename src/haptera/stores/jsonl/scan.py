"""Reads logs: the entries of good lines, the damage, and where the last whole append ends.

A damaged line is reported and skipped; later lines are still read. An append counts only as a
whole: when the end of the file cuts one off, its lines are a torn tail and no part of the log.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

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
)
from haptera.stores.stored_records import FindBlob, from_stored_bodies, from_stored_body
from haptera.system.private_files import read_range

_PIECE = 128 * 1024
"""How many bytes are read at a time: so few that memory is used again for the next ones."""
_NEAR = 16 * 1024
"""From so many bytes before a place on, reading costs less than looking for the place."""


class FoundLine(msgspec.Struct, frozen=True, gc=False):
    """A good line, its offset, and whether it is the first of an append."""

    offset: int
    line: LogLine
    starts_append: bool


_Mark: TypeAlias = FoundLine | DamagedBytes


class LostEnd(msgspec.Struct, frozen=True):
    """Entries at the end of a log whose lines are good but whose blobs cannot be read."""

    seq: int
    """The `seq` of the first of them."""
    lines: list[FoundLine]
    """All lines from the beginning of the append that holds it."""


@dataclass(slots=True)
class LogScan:
    """What a stretch of a log holds."""

    end: int = 0
    """The offset after the last whole append."""
    head: int = 0
    """The last `seq`."""
    epoch: int = 0
    """The greatest of its lines."""
    entries: list[Entry] = field(default_factory=list)
    consumed: set[CommandId] = field(default_factory=set)
    lines: list[FoundLine] = field(default_factory=list)
    """The good lines of where the log is not as plain as this version writes most of it."""
    damaged: list[DamagedBytes] = field(default_factory=list)
    torn: DamagedBytes | None = None
    """The append that the end of the file cuts off."""
    is_unterminated: bool = False
    """Whether the last line is good and only its line end is missing."""
    is_after_damage: bool = False
    """Whether it ends with damaged bytes: they explain entries that are missing behind it."""

    def add(self, following: "LogScan") -> None:
        """Add the stretch that follows."""
        self.end, self.head = following.end, following.head
        self.epoch = max(self.epoch, following.epoch)
        self.entries += following.entries
        self.consumed |= following.consumed
        self.lines += following.lines
        self.damaged += following.damaged
        self.torn, self.is_unterminated = following.torn, following.is_unterminated


def scan_whole(descriptor: int, find_blob: FindBlob) -> LogScan:
    """Read all of a log."""
    whole = LogScan()
    for piece in scan_pieces(descriptor, find_blob):
        whole.add(piece)
    return whole


def scan_pieces(
    descriptor: int,
    find_blob: FindBlob,
    *,
    after: int = 0,
    kinds: Collection[str] | None = None,
    place: tuple[int, int] | None = None,
) -> Iterator[LogScan]:
    """Read the entries of a log after a `seq`, all or those of some kinds, some appends at a time.

    Only the last piece can have a torn tail. What is appended meanwhile is not read. `place` is
    where an append ended, and its last `seq`, when the log was read before.
    """
    size, length, is_after_damage = os.fstat(descriptor).st_size, _PIECE, False
    offset, head = place or _place_before(descriptor, size, after)
    while offset < size:
        stop = min(offset + length, size)
        content = read_range(descriptor, offset, stop=stop)
        scan = _scan_plain(content, offset=offset, head=head, is_last=stop == size)
        if scan is None and place is not None:
            # Damage, or an end that was cut off meanwhile: the place may not hold.
            offset, head = _place_before(descriptor, size, after)
            place = None
            continue
        place = None
        if scan is None:
            # A line without its end is no torn one before the end of the file.
            whole = content if stop == size else content[: content.rfind(b"\n") + 1]
            scan = scan_bytes(whole, offset=offset, head=head, is_after_damage=is_after_damage)
            _decode_lines(scan, find_blob, after=after, kinds=kinds)
        elif after or kinds is not None:
            scan.entries = [
                entry
                for entry in scan.entries
                if entry.seq > after and (kinds is None or entry.kind in kinds)
            ]
        if scan.end == offset and stop < size:
            length *= 2  # one append is longer than this
            continue
        yield scan
        if stop == size:
            return
        offset, head, length = scan.end, scan.head, _PIECE
        is_after_damage = scan.is_after_damage


def scan_bytes(
    content: bytes, *, offset: int = 0, head: int = 0, is_after_damage: bool = False
) -> LogScan:
    """Find the good lines in bytes of any kind, which begin at `offset` behind the entry `head`."""
    scan = LogScan(end=offset + len(content), head=head, is_after_damage=is_after_damage)
    marks, torn_at = _marks_of(content, offset)
    if torn_at is not None:
        scan.torn = DamagedBytes(torn_at, scan.end - torn_at, "the last append was cut off")
        scan.end = torn_at
    scan.is_unterminated = torn_at is None and content[-1:] not in {b"", b"\n"}
    for mark in marks:
        if isinstance(mark, DamagedBytes):
            scan.damaged.append(mark)
            scan.is_after_damage = True
        else:
            _accept(scan, mark)
    return scan


def lost_at_end(scan: LogScan) -> LostEnd | None:
    """Return the end of a log in which no entry can be read; None when there is none.

    It has to go before a writer appends: it would give the same `seq` to other entries.
    """
    readable = scan.entries[-1].seq if scan.entries else 0
    lost = (
        index
        for index, place in enumerate(scan.lines)
        if place.line.has_entry and place.line.seq > readable
    )
    if (first := next(lost, None)) is None:
        return None
    start = first
    while start and not scan.lines[start].starts_append:
        start -= 1
    return LostEnd(seq=scan.lines[first].line.seq, lines=scan.lines[start:])


def _scan_plain(content: bytes, *, offset: int, head: int, is_last: bool) -> LogScan | None:
    """Read lines that simply follow one another, each as this version writes it.

    Returns None for anything else. Nearly all logs are read so: their lines are decoded in one
    pass, together with their entries.
    """
    *ended, rest = content.split(b"\n")
    lines = parse_entry_lines(ended)
    if lines is None or (rest and is_last):
        return None
    left = whole = 0
    for number, line in enumerate(lines, start=1):
        if line.seq != head + number or (left and line.left != left - 1):
            return None
        left = line.left
        whole = whole if left else number
    if left and is_last:
        return None
    del lines[whole:]
    return LogScan(
        end=offset + sum(map(len, ended[:whole])) + whole,
        head=head + whole,
        epoch=max((line.epoch for line in lines), default=0),
        entries=[line.entry for line in lines],
        consumed={item for line in lines for item in line.consumed},
    )


def _place_before(descriptor: int, size: int, after: int) -> tuple[int, int]:
    """Return where a line ends that is not behind an entry, perhaps long before it, and its `seq`.

    Lines are in the order of their `seq`, so the place is found in a few steps.
    """
    low, head, high = 0, 0, size
    while after > 0 and high - low > _NEAR:
        middle = (low + high) // 2
        end, line = _good_line_behind(descriptor, middle, high)
        if line is None or line.seq > after:
            high = middle
        else:
            low, head = end, line.seq
    return low, head


def _good_line_behind(descriptor: int, start: int, stop: int) -> tuple[int, LogLine | None]:
    """Return the first good line that begins behind an offset, with the offset of its end."""
    length = _NEAR
    while True:
        content = read_range(descriptor, start, stop=min(start + length, stop))
        first, *lines = content.split(b"\n")
        end = start + len(first) + 1
        for piece in lines[:-1]:
            end += len(piece) + 1
            if (line := parse_log_line(piece)) is not None:
                return end, line
        if start + length >= stop:
            return stop, None
        length *= 2


def _decode_lines(
    scan: LogScan, find_blob: FindBlob, *, after: int, kinds: Collection[str] | None
) -> None:
    """Decode the wanted entries of a scan; one that cannot be decoded is added to the damage."""
    # What is not wanted is not decoded: it may have a large blob.
    wanted = [
        place
        for place in scan.lines
        if place.line.has_entry
        and place.line.seq > after
        and (kinds is None or kind_of(place.line) in kinds)
    ]
    try:
        # All at once is faster, and nearly always succeeds. Its error does not say which entry it
        # was.
        scan.entries = from_stored_bodies([bytes(place.line.entry) for place in wanted], find_blob)
    except StoreError:
        for place in wanted:
            try:
                scan.entries.append(from_stored_body(bytes(place.line.entry), find_blob))
            except StoreError as error:
                scan.damaged.append(DamagedBytes(place.offset, 0, error.message))


def _marks_of(content: bytes, offset: int) -> tuple[list[_Mark], int | None]:
    """Return good lines and damage in order, and where an append begins that the end cuts off.

    Nothing from there on is among them. Damage inside of that append is part of it.
    """
    marks: list[_Mark] = []
    pieces = content.split(b"\n")
    open_from: int | None = None
    left = 0
    for number, piece in enumerate(pieces, start=1):
        if not piece and number == len(pieces):
            break
        skipped, line = _find_line(piece)
        if line is None and number == len(pieces):
            # A last line without its end may be one that is being written: it is torn, not damaged.
            return (marks, offset) if open_from is None else _without(marks, open_from)
        if skipped or line is None:
            marks.append(DamagedBytes(offset, skipped, _reason(piece[:skipped])))
        if line is None:
            # The damaged line was one of the append's lines, so the countdown goes on over it.
            left -= 1
        else:
            # Where another append begins, lines of the open one are missing, but not torn off.
            open_from = open_from if line.left == left - 1 else None
            mark = FoundLine(offset + skipped, line, starts_append=open_from is None)
            open_from = len(marks) if open_from is None else open_from
            marks.append(mark)
            left = line.left
        open_from = open_from if left > 0 else None
        offset += len(piece) + 1
    return (marks, None) if open_from is None else _without(marks, open_from)


def _without(marks: list[_Mark], first: int) -> tuple[list[_Mark], int]:
    return marks[:first], marks[first].offset


def _accept(scan: LogScan, found: FoundLine) -> None:
    """Take a good line; report entries that are missing before it, or that it is there twice."""
    line, head = found.line, scan.head
    if line.has_entry and line.seq <= head:
        reason = f"a second entry calls itself {line.seq}"
        scan.damaged.append(DamagedBytes(found.offset, 0, reason))
        return
    # Damage in front is in the list already, and says where the missing entries were.
    if line.has_entry and line.seq > head + 1 and not scan.is_after_damage:
        reason = f"entries {head + 1} to {line.seq - 1} are missing"
        scan.damaged.append(DamagedBytes(found.offset, 0, reason))
    scan.head = line.seq if line.has_entry else head
    scan.is_after_damage = False
    scan.epoch = max(scan.epoch, line.epoch)
    scan.consumed.update(line.consumed)
    scan.lines.append(found)


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
