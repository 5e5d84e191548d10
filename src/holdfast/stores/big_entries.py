"""Entries too big for a line or a row: their bytes are content, the log holds a pointer to it.

The pointer is `{"blob":"<sha256>","bytes":300000,"kind":"tool.ended","time":…}`. An entry begins
with its kind, so the two cannot be mistaken for each other. The content is stored before the
pointer and named by its SHA-256, so that damage to it is found on reading.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from holdfast.serialization.entries import decode_entry, encode_entry
from holdfast.stores.blob_names import name_of_content, verified
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.errors import ErrorCode, StoreError

LARGEST_ENTRY = 256 * 1024
"""The most bytes that an entry has in its log."""

_POINTER_START = b'{"blob":"'

FindContent: TypeAlias = Callable[[str], bytes | None]
"""Returns content by its name; None when there is none."""


class StoredEntry(msgspec.Struct, frozen=True):
    """An entry as a log keeps it."""

    body: bytes
    """What goes into the line or the row."""
    content: bytes | None = None
    """What goes beside it, when the entry is too big."""
    name: str = ""
    """The name of the content."""


class _Pointer(msgspec.Struct, frozen=True):
    blob: str
    bytes: int
    kind: str
    time: int


_decoder = msgspec.json.Decoder(_Pointer)


def stored(entry: Entry) -> StoredEntry:
    """Make the stored form of an entry."""
    body = encode_entry(entry)
    if len(body) <= LARGEST_ENTRY:
        return StoredEntry(body)
    name = name_of_content(body)
    pointer = _Pointer(blob=name, bytes=len(body), kind=entry.kind, time=entry.time)
    return StoredEntry(msgspec.json.encode(pointer), body, name)


def restored(body: bytes, find: FindContent) -> Entry:
    """Read the stored form of an entry; raises CORRUPT when it cannot be put together."""
    if not body.startswith(_POINTER_START):
        return decode_entry(body)
    try:
        pointer = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise StoreError(
            ErrorCode.CORRUPT, f"a pointer to a payload is damaged: {error}"
        ) from error
    content = find(pointer.blob)
    if content is None:
        raise StoreError(ErrorCode.CORRUPT, f"the payload {pointer.blob} of an entry is missing")
    return decode_entry(verified(pointer.blob, content))
