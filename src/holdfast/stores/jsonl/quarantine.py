"""Keeps what had to be cut off a log, and remembers where it was."""

import os
from pathlib import Path

import msgspec

from holdfast.stores.jsonl.scan import DamagedBytes
from holdfast.stores.private_files import open_or_create, read_or_empty


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a log that is no longer in it."""

    offset: int
    length: int
    reason: str
    content: bytes = b""
    """The piece itself; base64 in the file."""


_decoder = msgspec.json.Decoder(Quarantined)


def set_aside(path: Path, damage: DamagedBytes, content: bytes) -> None:
    """Keep a piece, durably, before the log is cut."""
    record = Quarantined(
        offset=damage.offset, length=damage.length, reason=damage.reason, content=content
    )
    descriptor = open_or_create(path, os.O_WRONLY | os.O_APPEND)
    try:
        # A line that a crash cut off must not swallow this one.
        os.write(descriptor, b"\n" + msgspec.json.encode(record) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_quarantine(path: Path) -> list[DamagedBytes]:
    """Return what was set aside, without the pieces themselves."""
    found = []
    for line in read_or_empty(path).splitlines():
        try:
            record = _decoder.decode(line) if line else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            reason = "what is said of a piece that was cut off cannot be read"
            found.append(DamagedBytes(0, len(line), reason))
            continue
        if record is not None:
            found.append(DamagedBytes(record.offset, record.length, record.reason))
    return found
