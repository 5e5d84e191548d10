"""What an index keeps of a session, derived from its entries one by one; shared by every store."""

import msgspec

from holdfast.ports.session_store import SessionRecord
from holdfast.vocabulary.entries import Entry, SessionChanged, SessionOpened

_CHANGEABLE = frozenset({"name", "title", "native_session_id"})


def update_record(record: SessionRecord | None, entry: Entry) -> SessionRecord | None:
    """Return the record after `entry`; None before the session was opened."""
    if isinstance(entry, SessionOpened):
        return SessionRecord(
            id=entry.session_id,
            owner=entry.owner,
            project=entry.project,
            name=entry.name,
            title=entry.title,
            model=entry.settings.model,
            parent=entry.parent,
            native_session_id=entry.native_session_id,
            created=entry.time,
            updated=entry.time,
            head=entry.seq,
        )
    if record is None:
        return None
    changes = entry.changes if isinstance(entry, SessionChanged) else {}
    named = {name: value for name, value in changes.items() if name in _CHANGEABLE}
    if "model" in (settings := changes.get("settings") or {}):
        named["model"] = settings["model"]
    return msgspec.structs.replace(record, updated=entry.time, head=entry.seq, **named)
