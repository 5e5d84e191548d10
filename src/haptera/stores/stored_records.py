"""How entries, commands and blobs are stored, the same in every durable store.

An entry is stored as its JSON. One of more than `LARGEST_ENTRY` bytes is stored as a blob, and the
log holds a pointer to it: `{"blob":"<sha256>","bytes":300000,"kind":"tool.ended","time":…}`. The
JSON of an entry begins with its kind, so a pointer cannot be mistaken for an entry. The blob is
stored before the pointer. A blob is named by its SHA-256, so damage is found when it is read.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import msgspec

from haptera.model.entry_bytes import UNREADABLE, decode_entries, decode_entry, encode_entry
from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.operations.session import Command

LARGEST_ENTRY = 256 * 1024
"""The most bytes that an entry has in its log."""

_POINTER_START = b'{"blob":"'
_BLOB_NAME = r"[0-9a-f]{64}"

FindBlob: TypeAlias = Callable[[str], bytes | None]
"""Returns the content of a blob by its name, unchecked; None when there is none."""


class StoredEntry(msgspec.Struct, frozen=True):
    """An entry in the form in which a log keeps it."""

    body: bytes
    """The bytes of its line or row: the entry itself, or a pointer to a blob."""
    content: bytes | None = None
    """The content of the blob, when there is one."""
    name: str = ""
    """The name of the blob."""


class _Pointer(msgspec.Struct, frozen=True):
    blob: str
    bytes: int
    kind: str
    time: int


@cache
def _command_decoder() -> msgspec.json.Decoder[Command]:
    return msgspec.json.Decoder(Command)


def to_stored_entry(entry: Entry) -> StoredEntry:
    """Encode an entry, as a pointer and a blob when it is too big for a log."""
    body = encode_entry(entry)
    if body.startswith(_POINTER_START):
        # Bytes that came from elsewhere. Read back as a pointer, they would be another entry.
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        body = msgspec.json.encode({"kind": fields["kind"], **fields})
    if len(body) <= LARGEST_ENTRY:
        return StoredEntry(body)
    name = blob_name(body)
    pointer = _Pointer(blob=name, bytes=len(body), kind=entry.kind, time=entry.time)
    return StoredEntry(msgspec.json.encode(pointer), body, name)


def from_stored_body(body: bytes, find_blob: FindBlob) -> Entry:
    """Decode the body of a stored entry; raises CORRUPT when it or its blob cannot be read."""
    if not body.startswith(_POINTER_START):
        return decode_entry(body)
    try:
        pointer = msgspec.json.decode(body, type=_Pointer)
    except UNREADABLE as error:
        raise StoreError(
            ErrorCode.CORRUPT, f"a pointer to a payload is damaged: {error}"
        ) from error
    content = find_blob(pointer.blob)
    if content is None:
        raise StoreError(ErrorCode.CORRUPT, f"the payload {pointer.blob} of an entry is missing")
    return decode_entry(verified_blob(pointer.blob, content))


def from_stored_bodies(bodies: Sequence[bytes], find_blob: FindBlob) -> list[Entry]:
    """Decode the bodies of stored entries; raises CORRUPT when one of them cannot be read."""
    # Pointers are rare. Without one, all bodies are decoded in one pass, which is three times as
    # fast.
    if any(body.startswith(_POINTER_START) for body in bodies):
        return [from_stored_body(body, find_blob) for body in bodies]
    return decode_entries(bodies)


def blob_name(content: bytes) -> str:
    """Return the name that content has in every store: its SHA-256."""
    return hashlib.sha256(content).hexdigest()


def is_blob_name(name: str) -> bool:
    """Return whether this text has the form of a blob's name."""
    return re.fullmatch(_BLOB_NAME, name) is not None


def verified_blob(name: str, content: bytes) -> bytes:
    """Return content that matches its name; raises CORRUPT."""
    if blob_name(content) != name:
        raise StoreError(ErrorCode.CORRUPT, f"the content of blob {name} does not match its name")
    return content


def blob_or_error(session_id: SessionId, name: str, content: bytes | None) -> bytes:
    """Return content that was found under a name; raises NOT_FOUND, or CORRUPT."""
    if content is None:
        raise blob_not_found_error(session_id, name)
    return verified_blob(name, content)


def closed_error() -> SessionError:
    """Make the error of a store that is closed."""
    return SessionError(ErrorCode.CLOSED, "the store is closed")


def no_session_error(session_id: SessionId) -> SessionError:
    """Make the error of a command for a session that is not there, or was just deleted."""
    return SessionError(ErrorCode.NOT_FOUND, f"there is no session {session_id!r}")


def blob_not_found_error(session_id: SessionId, name: str) -> AgentError:
    """Make the error of a blob that does not exist."""
    return SessionError(ErrorCode.NOT_FOUND, f"session {session_id} has no blob {name!r}")


def decode_command(body: bytes) -> Command | None:
    """Decode a stored command; None for one that is damaged or of a newer version.

    A command of a newer version stays in the inbox for a holder that knows it.
    """
    try:
        command = _command_decoder().decode(body)
    except UNREADABLE:
        return None
    return command


def command_damage(body: bytes) -> str | None:
    """Return why no version can read a command; None for one that is JSON."""
    try:
        msgspec.json.decode(body)
    except UNREADABLE as error:
        return f"a command cannot be read: {error}"
    return None
