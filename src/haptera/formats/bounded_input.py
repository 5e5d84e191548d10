"""Files of others, read within limits: lines, documents and JSON that cannot exhaust the program.

Compressed files are refused, whatever they hold: nothing here expands anything. A file that is too
long, too deep or has too many records is CONFIG_INVALID, naming the limit.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import msgspec

from haptera.formats.values import ImportLimits
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import Json, has_costly_numbers, is_too_deep, writable

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"\x04\x22\x4d\x18": "LZ4",
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_READ_SIZE = 256 * 1024


class ByteStream(Protocol):
    """A binary file, or anything else that is read like one."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        ...

    def readline(self, size: int = -1, /) -> bytes:
        """Return one line with its end, or at most `size` bytes of it."""
        ...


class Line(NamedTuple):
    """A line of a file: its number from 1 on, its bytes without the line end."""

    number: int
    raw: bytes


def refused(message: str) -> ConfigError:
    """Make the error of a file that cannot be imported."""
    return ConfigError(ErrorCode.CONFIG_INVALID, message)


def bounded_lines(stream: ByteStream, limits: ImportLimits) -> Iterator[Line]:
    """Yield the lines of a file that are not blank.

    Raises:
        ConfigError: CONFIG_INVALID for a compressed file, one that is too long, a line that is too
            long, or too many lines.

    """
    total = number = records = 0
    # Two bytes more than allowed, for CR and LF.
    while raw := stream.readline(limits.line_bytes + 2):
        total, number = total + len(raw), number + 1
        if number == 1:
            refuse_compressed(raw)
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        if len(raw.rstrip(b"\r\n")) > limits.line_bytes:
            raise refused(f"line {number} has more than {limits.line_bytes:,} bytes")
        if total > limits.file_bytes:
            raise refused(f"the file has more than {limits.file_bytes:,} bytes")
        raw = raw.strip(b"\r\n")
        if not raw.strip():
            continue
        records += 1
        if records > limits.records:
            raise refused(f"the file has more than {limits.records:,} lines")
        yield Line(number, raw)


def document_of(stream: ByteStream, limits: ImportLimits) -> Json:
    """Read a file that is one JSON value.

    Raises:
        ConfigError: CONFIG_INVALID for a compressed file, one that is too long or too deep, and one
            that is not JSON.

    """
    pieces: list[bytes] = []
    total = 0
    while piece := stream.read(_READ_SIZE):
        if not pieces:
            refuse_compressed(piece)
            piece = piece.removeprefix(_BYTE_ORDER_MARK)
        total += len(piece)
        if total > limits.document_bytes:
            raise refused(f"the file has more than {limits.document_bytes:,} bytes")
        pieces.append(piece)
    try:
        return parsed(b"".join(pieces), limits)
    except NotJsonError as error:
        raise refused(f"the file is not JSON: {error}") from error


def refuse_compressed(begin: bytes) -> None:
    """Refuse a file that begins like a compressed one."""
    for mark, name in _COMPRESSED.items():
        if begin.startswith(mark):
            raise refused(f"the file is compressed ({name}); unpack it first")


class NotJsonError(Exception):
    """Bytes that are not JSON."""


def parsed(raw: bytes, limits: ImportLimits, where: str = "the file") -> Json:
    """Parse JSON from an untrusted file; lone surrogates, which JavaScript writes, are replaced.

    Raises:
        NotJsonError: if it is not JSON.
        ConfigError: CONFIG_INVALID if it is nested too deeply.

    """
    refuse_costly_numbers(raw, where)
    try:
        value = msgspec.json.decode(raw)
    except RecursionError as error:
        raise _too_deep(where, limits) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # msgspec refuses the escape of a lone surrogate. Without an escape the fault is another
        # one.
        if b"\\u" not in raw:
            raise NotJsonError(str(error)) from error
        return _parsed_with_halves(raw, limits, where)
    if is_too_deep(value, levels=limits.levels):
        raise _too_deep(where, limits)
    return value


def refuse_costly_numbers(raw: bytes, where: str) -> None:
    """Refuse JSON whose numbers take far longer to read than their length.

    Raises:
        ConfigError: CONFIG_INVALID.

    """
    if has_costly_numbers(raw):
        raise refused(f"{where} has more than 1,000 numbers with large exponents")


def _parsed_with_halves(raw: bytes, limits: ImportLimits, where: str) -> Json:
    """Parse what only the standard library's parser takes."""
    try:
        # The standard library also takes NaN and Infinity, which are not JSON.
        value = json.loads(raw, parse_constant=_no_constant)
    except RecursionError as error:
        raise _too_deep(where, limits) from error
    except ValueError as error:
        raise NotJsonError(str(error)) from error
    if is_too_deep(value, levels=limits.levels):
        raise _too_deep(where, limits)
    return _all_writable(value)


def is_nested_deeper(raw: bytes, levels: int) -> bool:
    """Whether JSON has more levels than that; what is no JSON has none."""
    # Each level has a bracket, so most values need not be decoded for this.
    if raw.count(b"{") + raw.count(b"[") <= levels:
        return False
    try:
        return is_too_deep(msgspec.json.decode(raw), levels=levels)
    except RecursionError:
        return True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _all_writable(value: Json) -> Json:
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, list):
        return [_all_writable(item) for item in value]
    if isinstance(value, dict):
        return {writable(name): _all_writable(item) for name, item in value.items()}
    return value


def _too_deep(where: str, limits: ImportLimits) -> ConfigError:
    return refused(f"{where} is nested deeper than {limits.levels} levels")


def checked_count(items: Iterable[Json], limits: ImportLimits) -> list[Json]:
    """Return the items of a document as a list, if there are not too many."""
    items_read = list(items)
    if len(items_read) > limits.records:
        raise refused(f"the file has more than {limits.records:,} messages")
    return items_read
