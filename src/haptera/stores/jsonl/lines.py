"""The lines of the store's files: entries in a log, commands in an inbox, damage in a quarantine.

A line of a log or an inbox is JSON with a checksum in front:
`{"crc":"9f0a31c2","seq":7,"epoch":2,"entry":{…}}`. The CRC32 covers everything after its own field
up to the end of the line. Any JSON tool can read such a line.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from haptera.model.entry_bytes import UNREADABLE
from haptera.model.known_events import KnownEntry
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import Command
from haptera.stores.stored_records import command_damage, decode_command

LINE_START = b'{"crc":"'
_CRC_END = len(LINE_START) + 8
_BODY = _CRC_END + 2

LineT = TypeVar("LineT")

_NO_ENTRY = msgspec.Raw()


# No garbage collection: lines cannot be part of a cycle, and a log has very many of them.
class LogLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of a log: an entry, with what the store has to know of it without decoding it."""

    seq: int
    epoch: int
    entry: msgspec.Raw = _NO_ENTRY
    """Empty in a line that only records consumed commands; its `seq` is then that of the head."""
    left: int = 0
    """How many lines of the same append follow. An append is read only as a whole."""
    consumed: tuple[CommandId, ...] = ()

    @property
    def has_entry(self) -> bool:
        """Whether the line holds an entry."""
        return self.entry != _NO_ENTRY


class EntryLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A line with an entry, decoded in one pass; its fields are in the order of `encode_append`."""

    crc: str
    seq: int
    epoch: int
    left: int = 0
    consumed: tuple[CommandId, ...] = ()
    entry: KnownEntry


class EntryHeader(msgspec.Struct, frozen=True):
    """The fields that an entry and a pointer to a blob have in common."""

    kind: str
    time: int


class _InboxLine(msgspec.Struct, frozen=True, kw_only=True):
    command: msgspec.Raw


class DamagedBytes(msgspec.Struct, frozen=True):
    """Bytes of a file that cannot be read."""

    offset: int
    length: int
    reason: str


class _QuarantineLine(msgspec.Struct, frozen=True, kw_only=True):
    """A piece that was cut off a log; JSON has `content` in base64."""

    offset: int
    length: int
    reason: str
    content: bytes = b""


_log_decoder = msgspec.json.Decoder(LogLine)
_entry_list_decoder = msgspec.json.Decoder(list[EntryLine])
_header_decoder = msgspec.json.Decoder(EntryHeader)
_inbox_decoder = msgspec.json.Decoder(_InboxLine)
_quarantine_decoder = msgspec.json.Decoder(_QuarantineLine)
_encode = msgspec.json.encode


def encode_append(
    bodies: Sequence[tuple[int, bytes]], *, epoch: int, consumed: Sequence[CommandId] = ()
) -> bytes:
    """Encode the lines of one append, given as pairs of `seq` and stored entry."""
    lines = []
    for left, (seq, body) in zip(range(len(bodies) - 1, -1, -1), bodies, strict=True):
        fields = b'"seq":%d,"epoch":%d,' % (seq, epoch)
        if left:
            fields += b'"left":%d,' % left
        # In the last line: commands are consumed by an append that is whole, or not at all.
        elif consumed:
            fields += b'"consumed":' + _encode(list(consumed)) + b","
        lines.append(_with_checksum(fields + b'"entry":' + body + b"}"))
    return b"".join(lines)


def encode_consumed(consumed: Sequence[CommandId], *, head: int, epoch: int) -> bytes:
    """Encode the line of an append without entries."""
    return _with_checksum(
        b'"seq":%d,"epoch":%d,"consumed":%s}' % (head, epoch, _encode(list(consumed)))
    )


def parse_log_line(line: bytes) -> LogLine | None:
    """Parse a line of a log without its line end; None when it is damaged."""
    return _parse(line, _log_decoder)


def parse_entry_lines(lines: Sequence[bytes]) -> list[EntryLine] | None:
    """Parse lines and their entries; None unless each is intact and holds what we would write.

    What a later version wrote, a pointer to a blob or a line without an entry is none of that.
    """
    joined = b"[%s]" % b",".join(lines)
    try:
        parsed = _entry_list_decoder.decode(joined)
    except UNREADABLE:
        return None
    is_known = all(line.entry.raw is None for line in parsed)
    # msgspec drops fields that it does not know. Encoding again shows whether there were any, and
    # entries with such fields have to be decoded in the way that keeps them.
    is_same = len(parsed) == len(lines) and _encode(parsed) == joined
    return parsed if is_known and is_same and all(map(_is_intact, lines)) else None


def entry_header(line: LogLine) -> EntryHeader | None:
    """Decode kind and time of an entry and nothing else of it; None when it is damaged."""
    try:
        return _header_decoder.decode(line.entry)
    except UNREADABLE:
        return None


def kind_of(line: LogLine) -> str:
    """Return the kind of an entry; an empty text when it is damaged."""
    header = entry_header(line)
    return "" if header is None else header.kind


def encode_command(command: Command) -> bytes:
    """Encode one line of an inbox."""
    return _with_checksum(b'"command":' + _encode(command) + b"}")


def commands_in(content: bytes) -> dict[CommandId, Command]:
    """Return the commands of an inbox by id, in the order in which they came."""
    commands: dict[CommandId, Command] = {}
    for _, line in _lines_of(content):
        parsed = _parse(line, _inbox_decoder)
        command = None if parsed is None else decode_command(bytes(parsed.command))
        if command is not None:
            # A sender that got no answer leaves its command again, and the first one counts.
            commands.setdefault(command.id, command)
    return commands


def damaged_commands(content: bytes) -> list[DamagedBytes]:
    """Return the lines of an inbox that hold no command of any version."""
    damage = []
    # A last line without its end was cut off by a crash, before `put` returned: no damage.
    ended = content[: content.rfind(b"\n") + 1]
    for offset, line in _lines_of(ended):
        parsed = _parse(line, _inbox_decoder)
        if line and parsed is None:
            damage.append(DamagedBytes(offset, len(line), "a command cannot be read"))
        elif parsed is not None and (reason := command_damage(bytes(parsed.command))):
            damage.append(DamagedBytes(offset, len(line), reason))
    return damage


def encode_quarantined(damage: DamagedBytes, content: bytes) -> bytes:
    """Encode a line of a quarantine: where a piece of a log was, and the piece itself."""
    record = _QuarantineLine(
        offset=damage.offset, length=damage.length, reason=damage.reason, content=content
    )
    # The line end in front keeps a line that a crash cut off from spoiling this one.
    return b"\n" + _encode(record) + b"\n"


def quarantined_in(content: bytes) -> list[DamagedBytes]:
    """Return what a quarantine holds, without the pieces themselves."""
    pieces = []
    for line in content.splitlines():
        try:
            record = _quarantine_decoder.decode(line) if line else None
        except UNREADABLE:
            reason = "what is said of a piece that was cut off cannot be read"
            pieces.append(DamagedBytes(0, len(line), reason))
            continue
        if record is not None:
            pieces.append(DamagedBytes(record.offset, record.length, record.reason))
    return pieces


def _lines_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each line without its end, with its offset."""
    offset = 0
    for line in content.split(b"\n"):
        yield offset, line
        offset += len(line) + 1


def _with_checksum(body: bytes) -> bytes:
    return b'%s%08x",%s\n' % (LINE_START, zlib.crc32(body), body)


def _parse(line: bytes, decoder: msgspec.json.Decoder[LineT]) -> LineT | None:
    if not _is_intact(line):
        return None
    try:
        return decoder.decode(line)
    except UNREADABLE:
        return None


def _is_intact(line: bytes) -> bool:
    """Return whether a line begins with the checksum of the rest of it."""
    return line[:_BODY] == b'%s%08x",' % (LINE_START, zlib.crc32(line[_BODY:]))
