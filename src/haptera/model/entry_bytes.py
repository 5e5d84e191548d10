"""Entries to JSON and back, and events to JSON.

A stored entry may be newer than this code. Fields and kinds that it does not know are kept as the
bytes they were read from, so that writing an entry out again gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

import msgspec

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.events import Event, SubagentEvent
from haptera.model.ids import EntryId, QueryId, TurnId
from haptera.model.known_events import KnownEntry
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.queries import (
    QueryEnded,
)
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.model.source_names import NATIVE_ID_NAMES


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """What every entry of any version has, and what this one knows of where it belongs."""

    kind: str
    id: EntryId
    time: int
    seq: int
    # Of any type, because a later version may have another one.
    query_id: object = None
    turn_id: object = None


_encoder = msgspec.json.Encoder()
_KINDS = frozenset(get_args(KnownEntry))
_header_decoder = msgspec.json.Decoder(_Header)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that it cannot read; the last for what is nested too deeply.

It stops at the first thing it does not like, so each decoder may meet any of these.
"""


# Made when they are needed: the decoder of all kinds takes milliseconds to make, and a session that
# is new, or not stored, reads none.


@cache
def _decoder() -> msgspec.json.Decoder[Entry]:
    return msgspec.json.Decoder(KnownEntry)


@cache
def _list_decoder() -> msgspec.json.Decoder[list[Entry]]:
    return msgspec.json.Decoder(list[KnownEntry])


@cache
def _decoder_of(kind: type[Entry]) -> msgspec.json.Decoder[Any]:
    """Return what reads entries of one kind."""
    return msgspec.json.Decoder(kind) if kind in _KINDS else _decoder()


def encode_entry(entry: Entry) -> bytes:
    """Write an entry as one line of JSON without a line end."""
    return _encoder.encode(entry) if entry.raw is None else bytes(entry.raw)


def encode_event(event: Event) -> bytes:
    """Write an event as one line of JSON without a line end; only an entry has a `seq`.

    An entry of a later version is written as it was stored. A native session is also named as other
    programs name it.
    """
    if isinstance(event, SubagentEvent) and isinstance(event.event, Entry | SubagentEvent):
        return _with(_encoder.encode(event), {"event": msgspec.Raw(encode_event(event.event))})
    if not isinstance(event, Entry):
        return _encoder.encode(event)
    written = encode_entry(event)
    # A stored entry may have line breaks between its fields, and an event is one line.
    if event.raw is not None and (b"\n" in written or b"\r" in written):
        written = msgspec.json.format(written, indent=-1)
    native = _native_id_of(event)
    return written if native is None else _with(written, dict.fromkeys(NATIVE_ID_NAMES, native))


def _with(written: bytes, more: Mapping[str, object]) -> bytes:
    """Add fields to a JSON object; the others stay as they are."""
    return _encoder.encode({**_fields_decoder.decode(written), **more})


def _native_id_of(entry: Entry) -> str | None:
    if isinstance(entry, SessionChanged):
        named = entry.changes.get("native_session_id")
        return named if isinstance(named, str) else None
    return entry.native_session_id if isinstance(entry, SessionOpened | QueryEnded) else None


def refuse_unreadable(entry: Entry) -> None:
    """Raise CORRUPT for an entry that `decode_entry` would not give back.

    Providers, tools and hooks of the user's fill entries with values of their own, and a struct
    takes any value for any field. Each entry is read back once before it is stored: here, unless
    its kind says that what makes it has checked it (`is_checked`), as the `AnswerAssembler` does
    with every part of an answer.
    """
    if not entry.is_checked and entry.raw is None:
        try:
            _decoder_of(type(entry)).decode(_encoder.encode(entry))
        except (*UNREADABLE, TypeError, UnicodeEncodeError) as error:
            raise StoreError(
                ErrorCode.CORRUPT,
                f"an entry of the kind {entry.kind} was not stored, because it could not be read "
                f"back: {error}",
            ) from error


def decode_entry(raw: bytes) -> Entry:
    """Read an entry; raises CORRUPT when the bytes are not an entry of any version."""
    try:
        entry = _decoder().decode(raw)
    # A DecodeError, too, but of valid JSON: it may be an entry of a later version.
    except msgspec.ValidationError:
        return _decode_unknown(raw)
    except UNREADABLE as error:
        raise StoreError(ErrorCode.CORRUPT, f"a stored entry is not JSON: {error}") from error
    # A field that a later version calls `raw` is one that this version does not know.
    if entry.raw is None and _encoder.encode(entry) == raw:
        return entry
    return msgspec.structs.replace(entry, raw=msgspec.Raw(raw))


def decode_entries(bodies: Sequence[bytes]) -> list[Entry]:
    """Read entries as `decode_entry` reads each of them; raises CORRUPT if one cannot be read.

    Entries of this version are decoded all at once, as the items of one JSON list, which takes a
    third of the time.
    """
    joined = b"[%s]" % b",".join(bodies)
    try:
        entries = _list_decoder().decode(joined)
    except UNREADABLE:
        return [decode_entry(body) for body in bodies]
    # A damaged body can hold two values with a comma between them, which are two items of a list.
    is_whole = len(entries) == len(bodies) and _encoder.encode(entries) == joined
    if is_whole and all(entry.raw is None for entry in entries):
        return entries
    return [decode_entry(body) for body in bodies]


def _decode_unknown(raw: bytes) -> UnknownEntry:
    try:
        header = _header_decoder.decode(raw)
    except UNREADABLE as error:
        raise StoreError(ErrorCode.CORRUPT, f"a stored record is not an entry: {error}") from error
    return UnknownEntry(
        id=header.id,
        time=header.time,
        seq=header.seq,
        query_id=QueryId(header.query_id) if isinstance(header.query_id, str) else None,
        turn_id=TurnId(header.turn_id) if isinstance(header.turn_id, str) else None,
        stored_kind=header.kind,
        raw=msgspec.Raw(raw),
    )
