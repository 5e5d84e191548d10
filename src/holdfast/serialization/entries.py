"""Entries to JSON and back, and events to JSON.

A stored entry may be newer than this code. Fields and kinds that it does not know are kept as the
bytes they were read from, so that writing an entry out again gives the same bytes.
"""

from collections.abc import Sequence

import msgspec

from holdfast.vocabulary.aliases import NATIVE_ID_ALIASES
from holdfast.vocabulary.compactions import Compaction
from holdfast.vocabulary.context_files import ContextLoaded
from holdfast.vocabulary.entries import (
    ApprovalRequested,
    ContextNoted,
    Entry,
    HistoryEdited,
    InputDrained,
    InputPromoted,
    InputQueued,
    PartCheckpoint,
    QueryEnded,
    QueryStarted,
    RetryScheduled,
    Rewound,
    SessionChanged,
    SessionOpened,
    ToolStarted,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
    UnknownEntry,
)
from holdfast.vocabulary.entry_kinds import KnownEntry
from holdfast.vocabulary.errors import ErrorCode, StoreError
from holdfast.vocabulary.events import Event
from holdfast.vocabulary.file_snapshots import Snapshot
from holdfast.vocabulary.ids import EntryId, QueryId, TurnId
from holdfast.vocabulary.json_types import JsonObject


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """What every entry of any version has, and what this one knows of where it belongs."""

    kind: str
    id: EntryId
    time: int
    seq: int
    query_id: object = None
    turn_id: object = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(KnownEntry)
_list_decoder = msgspec.json.Decoder(list[KnownEntry])
_header_decoder = msgspec.json.Decoder(_Header)

# A decoder stops at the first thing it does not like, so either of the two may meet any of these.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_entry(entry: Entry) -> bytes:
    """Write an entry as one line of JSON without a line end."""
    return _encoder.encode(entry) if entry.raw is None else bytes(entry.raw)


def encode_event(event: Event) -> bytes:
    """Write an event as one line of JSON without a line end; only an entry has a `seq`.

    A native session is also named as other programs name it.
    """
    if not isinstance(event, Entry):
        return _encoder.encode(event)
    native = _native_id_of(event)
    if native is None:
        return encode_entry(event)
    values: JsonObject = msgspec.json.decode(encode_entry(event))
    return _encoder.encode(values | dict.fromkeys(NATIVE_ID_ALIASES, native))


def _native_id_of(entry: Entry) -> str | None:
    if isinstance(entry, SessionChanged):
        named = entry.changes.get("native_session_id")
        return named if isinstance(named, str) else None
    return entry.native_session_id if isinstance(entry, SessionOpened | QueryEnded) else None


_OWN_VALUES: frozenset[type[Entry]] = frozenset(
    {
        SessionOpened,
        InputQueued,
        InputPromoted,
        InputDrained,
        QueryStarted,
        QueryEnded,
        TurnStarted,
        TurnEnded,
        TurnDiscarded,
        PartCheckpoint,
        ApprovalRequested,
        ToolStarted,
        RetryScheduled,
        Compaction,
        Snapshot,
        Rewound,
        HistoryEdited,
        ContextNoted,
        ContextLoaded,
        UnknownEntry,
    }
)
"""Kinds whose values are all made, or checked, by this package. Any other kind is read back before
it is stored, also one that is added later and forgotten here."""


def refuse_unreadable(entry: Entry) -> None:
    """Raise CORRUPT for an entry that `decode_entry` would not give back.

    Providers, tools and hooks of the user's fill entries with values of their own, and a struct
    takes any value for any field. Such values are checked where they come in (the stream
    processor's assembly, the checks of tools' results and of decisions). This is the guard behind
    those doors: one that was forgotten costs an error and not a session. It reads back the kinds
    that can hold such values, which is some microseconds for each and a few times in a turn.
    Checkpoints, the frequent kind, and the other kinds in `_OWN_VALUES` are not looked at.
    """
    if type(entry) not in _OWN_VALUES and entry.raw is None:
        try:
            _decoder.decode(_encoder.encode(entry))
        except (*_UNREADABLE, TypeError, UnicodeEncodeError) as error:
            raise StoreError(
                ErrorCode.CORRUPT,
                f"an entry of the kind {entry.kind} was not stored, because it could not be read "
                f"back: {error}",
            ) from error


def decode_entry(raw: bytes) -> Entry:
    """Read an entry; raises CORRUPT when the bytes are not an entry of any version."""
    try:
        entry: Entry = _decoder.decode(raw)
    except msgspec.ValidationError:
        return _decode_unknown(raw)
    except _UNREADABLE as error:
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
        entries: list[Entry] = [*_list_decoder.decode(joined)]
    except _UNREADABLE:
        return [decode_entry(body) for body in bodies]
    is_whole = len(entries) == len(bodies) and _encoder.encode(entries) == joined
    if is_whole and all(entry.raw is None for entry in entries):
        return entries
    return [decode_entry(body) for body in bodies]


def _decode_unknown(raw: bytes) -> UnknownEntry:
    try:
        header = _header_decoder.decode(raw)
    except _UNREADABLE as error:
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
