"""Index records as rows: what entries change in them, and how a row is read.

A holder does not know the record that its append changes, so an append says what changes: values of
columns, values inside the JSON column `details`, and keys of the metadata, which are merged. Links
to the session and its notes are keys of `details`, one for each, so that adding one needs no other.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from haptera.model.entry_bytes import UNREADABLE
from haptera.model.ids import SessionId
from haptera.model.json_types import Json, JsonObject
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.model.shares import StoredShare
from haptera.ports.session_store import SessionFilter, SessionRecord
from haptera.stores.append_rules import (
    RECORDED,
    believed,
    changed_fields,
    encode_details,
    updated_record,
    with_details,
)
from haptera.stores.postgresql.database import from_text, to_text

COLUMNS = (
    "id, owner, project, name, title, model, parent, native_session_id,"
    " created, updated, head, details::text"
)
"""What `record_of` reads."""
_TEXTS = ("id", "owner", "project", "name", "title", "model", "parent", "native_session_id")
_KEPT = ("owner", "project", "name", "title", "model", "parent", "native_session_id", "created")
_SHARE, _NOTE, _SENDER = "share ", "note ", "sender "
"""The beginnings of such keys."""
_UNKNOWN = SessionRecord(id=SessionId(""), owner="", project="")


def record_changes(entries: Sequence[Entry]) -> tuple[dict[str, Any] | None, int]:
    """Return what entries change in the record of their session, and the last `seq` that does."""
    columns: dict[str, Any] = {}
    details: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    last, is_new = 0, False
    for entry in entries:
        if not isinstance(entry, RECORDED):
            continue
        last = entry.seq
        if isinstance(entry, SessionOpened) and (opened := updated_record(None, [entry])):
            is_new, columns, details = True, column_values(opened), _details_of(opened)
            continue
        # From an empty record, so that its links and notes are those that this entry adds.
        changed = changed_fields(_UNKNOWN, entry)
        # It was merged with the metadata of a record that is not the real one. The database merges
        # the change with the real one.
        changed.pop("metadata", None)
        details |= _keyed(changed, getattr(entry, "changes", {}))
        patch = getattr(entry, "changes", {}).get("metadata")
        metadata |= patch if isinstance(patch, dict) else {}
        columns |= {name: value for name, value in changed.items() if name in _KEPT}
        details |= {name: value for name, value in changed.items() if name not in _KEPT}
    if not last:
        return None, 0
    changes = {"columns": columns, "details": details, "metadata": metadata, "is_new": is_new}
    kept: dict[str, Any] = _keepable(msgspec.to_builtins(changes))
    return kept, last


def column_values(record: SessionRecord) -> dict[str, Any]:
    """Return the columns of a record that entries decide."""
    return {name: getattr(record, name) for name in _KEPT}


def saved_values(record: SessionRecord) -> list[Any]:
    """Return the values of a record that was derived anew, in the order of its columns."""
    columns: dict[str, Any] = _keepable(column_values(record))
    details = msgspec.json.encode(_keepable(_details_of(record))).decode()
    return [*columns.values(), record.updated, record.head, details]


def record_of(row: Sequence[Any]) -> SessionRecord:
    """Make the record of a row of `COLUMNS`."""
    *texts, created, updated, head, details = row
    known: dict[str, Any] = {
        name: from_text(text) for name, text in zip(_TEXTS, texts, strict=True)
    }
    record = SessionRecord(**known, created=created, updated=updated, head=head)
    try:
        stored = _with_lists(_restored(msgspec.json.decode(details, type=dict[str, Any])))
    except UNREADABLE:
        return believed(record)
    return with_details(record, msgspec.json.encode(stored)) or believed(record)


def label_details(matching: SessionFilter) -> str | None:
    """Return details that have the labels a filter looks for; None when it looks for none."""
    senders = () if matching.sender is None else (matching.sender,)
    details = {
        "tags": matching.tags,
        "metadata": matching.metadata,
        **_keyed({"senders": senders}, {}),
    }
    return msgspec.json.encode(_keepable(details)).decode() if matching.labels else None


def open_work(entries: Sequence[Entry]) -> tuple[bool, bool, int]:
    """Return whether the last query has not ended, whether it rests, and how many prompts wait."""
    kinds = [entry.kind for entry in entries]
    queries = [entry for entry in entries if isinstance(entry, QueryStarted | QueryEnded)]
    last = queries[-1] if queries else None
    rests = isinstance(last, QueryEnded) and last.stop_reason == "approval"
    left = sum(kind in {"input.promoted", "input.drained"} for kind in kinds)
    return isinstance(last, QueryStarted), rests, kinds.count("input.queued") - left


def _details_of(record: SessionRecord) -> dict[str, Any]:
    details: dict[str, Any] = msgspec.json.decode(encode_details(record))
    lists = ("shares", "notes", "senders")
    for name in lists:
        del details[name]
    return details | _keyed({name: getattr(record, name) for name in lists}, {})


def _keyed(changed: dict[str, Any], changes: JsonObject) -> dict[str, Any]:
    """Take links, notes and senders out of changed fields, and return them as keys of `details`.

    One that was revoked or forgotten is null there.
    """
    shares: Sequence[StoredShare] = changed.pop("shares", ())
    notes: Sequence[int] = changed.pop("notes", ())
    ended = [f"{_SHARE}{each}" for each in _listed(changes, "unshared")]
    ended += [f"{_NOTE}{each}" for each in _listed(changes, "forgotten_notes")]
    keyed: dict[str, Any] = dict.fromkeys(ended)
    keyed |= {f"{_SHARE}{each.id}": msgspec.to_builtins(each) for each in shares}
    keyed |= {f"{_SENDER}{each}": True for each in changed.pop("senders", ())}
    return keyed | {f"{_NOTE}{seq}": seq for seq in notes}


def _listed(changes: JsonObject, name: str) -> list[Json]:
    return value if isinstance(value := changes.get(name), list) else []


def _with_lists(details: dict[str, Any]) -> dict[str, Any]:
    """Return details with links, notes and senders in one field each, the first made first.

    Rows of earlier versions have notes in such a field already.
    """
    shares = [details.pop(key) for key in sorted(details) if key.startswith(_SHARE)]
    notes = {f"{_NOTE}{seq}": seq for seq in _listed(details, "notes")}
    notes |= {key: details.pop(key) for key in sorted(details) if key.startswith(_NOTE)}
    senders = [key for key in details if key.startswith(_SENDER)]
    for key in senders:
        del details[key]
    return details | {
        "senders": sorted(key.removeprefix(_SENDER) for key in senders),
        "shares": [each for each in shares if each is not None],
        "notes": sorted(seq for seq in notes.values() if type(seq) is int),
    }


def _keepable(value: Json) -> Json:
    """Return a JSON value whose texts PostgreSQL can keep."""
    return _with_texts(value, to_text)


def _restored(value: Json) -> Json:
    return _with_texts(value, lambda text: from_text(text) or "")


def _with_texts(value: Json, change: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_with_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _with_texts(item, change) for key, item in value.items()}
    return value
