"""Adoption: an imported log becomes the log of a new session, under ids that nothing else has.

Every id of ours is replaced, in each log of the archive by the same one, so that an import never
touches the session it was exported from, however often it is repeated. Ids of providers (call ids)
stay. An archive is untrusted: what of it is taken over is declared in `imported_entries`, and what
it has begun is ended.
"""

import re
import types
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import cache
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import msgspec

from haptera.formats.archive_reading import ArchiveSummary
from haptera.formats.forms import known_cost
from haptera.formats.imported_entries import (
    OpenThings,
    kept_fields,
    kept_number,
    kept_settings,
)
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.ids import (
    ApprovalId,
    EntryId,
    InputId,
    MessageId,
    PartId,
    QueryId,
    SessionId,
    TurnId,
    new_entry_id,
    new_id,
    new_session_id,
)
from haptera.model.json_types import Json, JsonObject
from haptera.model.log.entry import Entry, UnknownEntry
from haptera.model.log.notes import ContextNoted
from haptera.model.log.sessions import SessionOpened
from haptera.model.settings import Settings

_PREFIXES: dict[Any, str] = {
    QueryId: "qry",
    TurnId: "trn",
    MessageId: "msg",
    PartId: "prt",
    EntryId: "evt",
    ApprovalId: "apr",
    InputId: "inp",
}
_OURS = re.compile(r"(?P<own>(?P<prefix>[a-z]{2,5})_[0-9a-f]{16}[0-9A-Za-z]{10})(?P<derived>_\w+)?")
"""An id of ours, and what the fold adds to it where it derives one message from another."""

Renamed = Callable[[Json, "IdMap"], Json]

NO_SETTINGS = Settings()


class IdMap:
    """New ids for old ones. Owns what was given out."""

    def __init__(self, sessions: Iterable[SessionId]) -> None:
        self.sessions = {name: new_session_id() for name in sessions}
        self._given: dict[str, str] = {}

    def session(self, old: str) -> str:
        """Return the new id of a session of the archive; the id of any other stays."""
        return self.sessions.get(SessionId(old), old)

    def other(self, old: str, prefix: str) -> str:
        """Return the new id of anything else, always the same."""
        match = _OURS.fullmatch(old)
        if match and match["derived"]:
            return self.other(match["own"], match["prefix"]) + match["derived"]
        if old not in self._given:
            self._given[old] = new_id(match["prefix"] if match else prefix)
        return self._given[old]

    def known(self, text: str) -> str:
        """Return the new id if the text is an old one, else the text."""
        return self._given.get(text) or self.session(text)


class Adoption:
    """Rewrites the logs of one archive. Owns the ids that it gives to all of them."""

    def __init__(
        self,
        summary: ArchiveSummary,
        *,
        owner: str,
        project: str,
        name: str | None = None,
        settings: Settings = NO_SETTINGS,
    ) -> None:
        """Prepare an adoption; `settings` are those of a new session of the importer."""
        self._summary = summary
        self._settings: JsonObject = msgspec.to_builtins(settings)
        self._ids = IdMap(summary.logs)
        self._facts: JsonObject = {"owner": owner, "project": project}
        self._name = name

    @property
    def session_id(self) -> SessionId:
        """The new id of the session that was exported."""
        return self._ids.sessions[self._summary.session_id]

    def session_of(self, old: SessionId) -> SessionId:
        """Return the new id of a log of the archive."""
        return self._ids.sessions[old]

    def entries(self, old: SessionId, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries of a log as they are to be stored, without a gap between them.

        A gap, where the exported store could not read an entry, is filled. At the end everything
        is ended that the log has begun.
        """
        seq, time, open_things = 0, 0, OpenThings()
        for entry in entries:
            # The check of the archive has bounded how many are missing.
            while seq + 1 < entry.seq:
                seq += 1
                yield self._missing(old, seq, time)
            seq, time = entry.seq, kept_number(entry.time)
            adopted = self._adopted(entry, old)
            is_taken = adopted is not None and open_things.take(adopted)
            yield adopted if adopted is not None and is_taken else self._missing(old, seq, time)
        yield from open_things.ends(seq=seq + 1, time=time)

    def _adopted(self, entry: Entry, log: SessionId) -> Entry | None:
        stored: JsonObject = msgspec.json.decode(encode_entry(entry))
        if isinstance(entry, UnknownEntry):
            stored = _unknown_renamed(stored, self._ids)
        else:
            renamed = _renaming(type(entry))
            stored = renamed(stored, self._ids) if renamed else stored
        fields = kept_fields(entry, stored)
        if fields is None:
            return None
        if isinstance(entry, SessionOpened):
            fields = self._opening(fields, log)
        elif isinstance(entry, ContextNoted):
            # With a source it is told in the imported session only, and in no other of the project.
            fields.setdefault("source", self._ids.sessions[log])
        # The kind first, as in every entry of ours: a store takes other beginnings for pointers.
        return decode_entry(msgspec.json.encode({"kind": fields["kind"], **fields}))

    def _opening(self, fields: JsonObject, log: SessionId) -> JsonObject:
        is_named = self._name is not None and log == self._summary.session_id
        settings = self._settings | kept_settings(fields.get("settings"))
        facts = self._facts | ({"name": self._name} if is_named else {})
        return fields | facts | {"settings": settings}

    def _missing(self, log: SessionId, seq: int, time: int) -> Entry:
        entry_id = new_entry_id()
        # The opening has the owner and the project, by which an index finds the session.
        if seq == 1:
            session_id = self._ids.sessions[log]
            opened = SessionOpened(id=entry_id, time=time, seq=1, session_id=session_id)
            return decode_entry(
                msgspec.json.encode(self._opening(msgspec.to_builtins(opened), log))
            )
        stored = {"kind": "imported.missing", "id": entry_id, "time": time, "seq": seq}
        return decode_entry(msgspec.json.encode(stored))


def _unknown_renamed(fields: JsonObject, ids: IdMap) -> JsonObject:
    """Rename what every entry has, and any text that is exactly an id of the archive."""
    named = {
        "id": ids.other(str(fields["id"]), "evt"),
        "query_id": _renamed_text(fields.get("query_id"), "qry", ids),
        "turn_id": _renamed_text(fields.get("turn_id"), "trn", ids),
        "time": kept_number(fields["time"]),
    }
    # Only ids that earlier entries have are known here: which texts are ids is not told.
    rest = {key: _known_renamed(value, ids) for key, value in fields.items() if key not in named}
    return {key: named.get(key, rest.get(key)) for key in fields}


def _renamed_text(value: Json, prefix: str, ids: IdMap) -> Json:
    return ids.other(value, prefix) if isinstance(value, str) else value


def _known_renamed(value: Json, ids: IdMap) -> Json:
    if isinstance(value, str):
        return ids.known(value)
    if isinstance(value, list):
        return [_known_renamed(item, ids) for item in value]
    if isinstance(value, dict):
        return {key: _known_renamed(item, ids) for key, item in value.items()}
    return value


# What is an id is read off the type hints, so that a text which looks like one is left alone, and
# fields that a later version added to a known kind are kept.


def _number(value: Json, _ids: IdMap) -> Json:
    return kept_number(value)


def _cost(value: Json, _ids: IdMap) -> Json:
    return value if known_cost(value) is not None else None


def _session(value: Json, ids: IdMap) -> Json:
    return ids.session(value) if isinstance(value, str) else value


_LEAVES: dict[object, Renamed | None] = {
    int: _number,
    Decimal: _cost,
    SessionId: _session,
    # Their values are checked one by one: a seed, say, may be below 0.
    Settings: None,
}


@cache
def _renaming(hint: object) -> Renamed | None:
    """Return what renames the ids in a JSON value of this type; None if there are none.

    It bounds numbers, too.
    """
    if hint in _LEAVES:
        return _LEAVES[hint]
    if isinstance(hint, NewType):
        prefix = _PREFIXES.get(hint)
        return _id_renaming(prefix) if prefix else None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union_renaming(arguments)
    if origin is tuple:
        inner = _renaming(arguments[0])
        return _list_renaming(inner) if inner else None
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct_renaming(hint)
    return None


def _id_renaming(prefix: str) -> Renamed:
    return lambda value, ids: _renamed_text(value, prefix, ids)


def _list_renaming(inner: Renamed) -> Renamed:
    return lambda value, ids: (
        [inner(item, ids) for item in value] if isinstance(value, list) else value
    )


def _struct_renaming(kind: type[msgspec.Struct]) -> Renamed | None:
    fields = {
        name: renamed
        for name, hint in get_type_hints(kind).items()
        if (renamed := _renaming(hint)) is not None
    }

    def rename(value: Json, ids: IdMap) -> Json:
        if not isinstance(value, dict):
            return value
        return {
            name: fields[name](each, ids) if name in fields else each
            for name, each in value.items()
        }

    return rename if fields else None


def _union_renaming(members: tuple[Any, ...]) -> Renamed | None:
    structs = [each for each in members if hasattr(each, "__struct_config__")]
    by_tag = {each.__struct_config__.tag: _renaming(each) for each in structs}
    tag_fields = {each.__struct_config__.tag_field for each in structs} - {None}
    plain = next((renaming for each in members if (renaming := _renaming(each)) is not None), None)

    def rename(value: Json, ids: IdMap) -> Json:
        if isinstance(value, dict) and tag_fields:
            tags = (value.get(name) for name in tag_fields)
            # An unknown tag is of a later version: what in it is an id cannot be told.
            chosen = next((by_tag[tag] for tag in tags if tag in by_tag), None)
            return chosen(value, ids) if chosen else value
        return plain(value, ids) if plain else value

    return rename if plain else None
