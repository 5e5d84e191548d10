"""One line of a log or an inbox: JSON with a checksum in front.

`{"crc":"9f0a31c2","seq":7,"epoch":2,"entry":{…}}`: the CRC32 covers everything after its own field
up to the end of the line. A line stays readable to any JSON tool.
"""

import zlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.vocabulary.commands import Command, CommandId

LINE_START = b'{"crc":"'
_CRC_END = len(LINE_START) + 8
_BODY = _CRC_END + 2

LineT = TypeVar("LineT")


_NO_ENTRY = msgspec.Raw()


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """An entry with what the store itself has to know of it."""

    seq: int
    epoch: int
    entry: msgspec.Raw = _NO_ENTRY
    """Empty in a line that only notes consumed commands; its `seq` is then that of the head."""
    left: int = 0
    """How many lines of the same append follow; an append counts only as a whole."""
    consumed: tuple[CommandId, ...] = ()

    @property
    def has_entry(self) -> bool:
        """Whether the line holds an entry."""
        return self.entry != _NO_ENTRY


class InboxLine(msgspec.Struct, frozen=True, kw_only=True):
    """A command that somebody left."""

    command: msgspec.Raw


_log_decoder = msgspec.json.Decoder(LogLine)
_inbox_decoder = msgspec.json.Decoder(InboxLine)
_encode = msgspec.json.encode


def encode_batch(
    bodies: Sequence[tuple[int, bytes]], *, epoch: int, consumed: Sequence[CommandId] = ()
) -> bytes:
    """Write the lines of one append, given as `seq` and entry, ready for one write to the file."""
    lines = []
    for left, (seq, body) in zip(range(len(bodies) - 1, -1, -1), bodies, strict=True):
        envelope = b'"seq":%d,"epoch":%d,' % (seq, epoch)
        if left:
            envelope += b'"left":%d,' % left
        elif consumed:
            envelope += b'"consumed":' + _encode(list(consumed)) + b","
        lines.append(_sealed(envelope + b'"entry":' + body + b"}"))
    return b"".join(lines)


def encode_consumption(consumed: Sequence[CommandId], *, head: int, epoch: int) -> bytes:
    """Write the line of an append without entries."""
    return _sealed(b'"seq":%d,"epoch":%d,"consumed":%s}' % (head, epoch, _encode(list(consumed))))


def encode_command(command: Command) -> bytes:
    """Write one line of an inbox."""
    return _sealed(b'"command":' + _encode(command) + b"}")


def parse_log_line(line: bytes) -> LogLine | None:
    """Read a line of a log without its line end; None when it is damaged."""
    return _parsed(line, _log_decoder)


def parse_inbox_line(line: bytes) -> InboxLine | None:
    """Read a line of an inbox without its line end; None when it is damaged."""
    return _parsed(line, _inbox_decoder)


def _sealed(body: bytes) -> bytes:
    return b'%s%08x",%s\n' % (LINE_START, zlib.crc32(body), body)


def _parsed(line: bytes, decoder: msgspec.json.Decoder[LineT]) -> LineT | None:
    if not line.startswith(LINE_START) or line[_CRC_END:_BODY] != b'",':
        return None
    if b"%08x" % zlib.crc32(line[_BODY:]) != line[len(LINE_START) : _CRC_END]:
        return None
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
