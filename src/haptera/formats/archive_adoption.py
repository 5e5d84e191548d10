"""Adoption: an imported log becomes the log of a new session, under ids that nothing else has.

Every id of ours is replaced, in each log of the archive by the same one, so that an import never
touches the session it was exported from, however often it is repeated. Ids of providers (call ids)
stay. An archive is untrusted, and what it has begun is ended. `imported` of the kinds and
`KEPT_SETTINGS` are the only places that say what is taken over: a setting that is added later is
dropped until it is named here.
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
from haptera.formats.message_builder import one_line
from haptera.model.believed_values import LATEST
from haptera.model.entry_bytes import decode_entry, encode_entry
from haptera.model.errors import ConfigError, ErrorCode, RequestError
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
from haptera.model.known_events import KnownEntry
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry, UnknownEntry, kind_name
from haptera.model.log.notes import ContextNoted
from haptera.model.log.queries import (
    InputDrained,
    InputPromoted,
    InputQueued,
    QueryEnded,
    QueryStarted,
)
from haptera.model.log.sessions import (
    SessionChanged,
    SessionImported,
    SessionOpened,
)
from haptera.model.settings import Settings
from haptera.model.vendors import CLAUDE_AGENT, LOCAL, split_model
from haptera.options.checks import checked_fields

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


KEPT_SETTINGS = (
    *("system_prompts", "thinking", "max_tokens", "temperature", "stop", "seed"),
    "model",
)
"""The settings that an import may bring; any other is the importer's."""
_KEPT_CHANGES = ("title", "tags", "archived", "deleted", "metadata", "forgotten_notes", "settings")
_OWN_METADATA = ("status", "error_message", "workflow_id")
"""What descriptions show as the session's own. `imported_…` says what was imported here."""

_OF_EVERY_ENTRY = ("kind", *Entry.__struct_fields__)
_BY_NAME = {kind_name(kind): kind for kind in get_args(KnownEntry)}
_LONGEST_TITLE = 500
_ENDED = "its session was imported"


def kept_fields(entry: Entry, fields: JsonObject) -> JsonObject | None:
    """Return what is taken over of an entry; None when it is dropped.

    An entry whose kind is known, but which cannot be read, is taken over only where all fields are:
    what it would grant to a later version cannot be told.
    """
    known_kind = _BY_NAME.get(entry.kind) if isinstance(entry, UnknownEntry) else None
    taken = (known_kind or entry).imported
    if taken.fate == "dropped" or (known_kind is not None and taken.fields is not None):
        return None
    if taken.fields is None:
        return fields
    wanted = {*_OF_EVERY_ENTRY, *taken.fields}
    taken_over = {name: value for name, value in fields.items() if name in wanted}
    if isinstance(entry, SessionChanged):
        taken_over["changes"] = _kept_changes(entry.changes)
        # It ranks like what the session was opened with: below what the importer's agent names.
        taken_over["origin"] = "opening"
    elif isinstance(entry, InputQueued | QueryStarted) and "options" in taken_over:
        taken_over["options"] = _kept_options(taken_over["options"])
    elif isinstance(entry, SessionOpened) and entry.title is not None:
        taken_over["title"] = one_line(entry.title, _LONGEST_TITLE)
    return taken_over


def kept_settings(given: Json) -> JsonObject:
    """Return the settings that an import may bring, those whose values are valid.

    A model that is no request to a provider is none of them: it would run a program or read a file
    of this machine, by the name that the import has for it.
    """
    if not isinstance(given, dict):
        return {}
    settings: JsonObject = {}
    for name in KEPT_SETTINGS:
        if name in given and _is_valid(name, given[name]):
            settings[name] = given[name]
    return settings


def _is_valid(name: str, value: Json) -> bool:
    numbers = [value] if isinstance(value, int | float) else []
    # Not `isfinite`: it refuses whole numbers that no float can have. NaN is not within it, either.
    if any(not -LATEST <= each <= LATEST for each in numbers):
        return False
    if name == "model":
        is_text = isinstance(value, str) and value == one_line(value, _LONGEST_TITLE)
        if not is_text or split_model(value)[0] in {LOCAL, CLAUDE_AGENT}:
            return False
    try:
        checked_fields(msgspec.convert({name: value}, Settings))
    except (msgspec.ValidationError, ConfigError):
        return False
    return True


def _kept_options(given: JsonObject) -> JsonObject:
    """Return what is kept of the options of a query: none of them matters to one that has ended."""
    settings = kept_settings(given.get("settings"))
    sender = {"sender": given["sender"]} if "sender" in given else {}
    return ({"settings": settings} if settings else {}) | sender


def _kept_changes(given: JsonObject) -> JsonObject:
    changes = {name: given[name] for name in _KEPT_CHANGES if name in given}
    if "settings" in changes:
        changes["settings"] = kept_settings(changes["settings"])
    if "metadata" in changes:
        changes["metadata"] = _kept_metadata(changes["metadata"])
    if "title" in changes and changes["title"] is not None:
        is_text = isinstance(changes["title"], str)
        changes["title"] = one_line(changes["title"], _LONGEST_TITLE) if is_text else None
    return changes


def _kept_metadata(given: Json) -> JsonObject:
    """Return the metadata that an import may bring: none that this program reads itself."""
    if not isinstance(given, dict):
        return {}
    return {
        name: value
        for name, value in given.items()
        if name not in _OWN_METADATA and not name.startswith("imported_")
    }


def kept_number(value: Json) -> Json:
    """Return a number as a log of ours can have it: no field counts below 0 or past all dates.

    Databases keep 64 bits, and what was counted would be counted back by what is below 0.
    """
    return min(max(value, 0), LATEST) if type(value) is int else value


class OpenThings:
    """What an imported log has begun and not ended so far, on any of its paths.

    Owns the entries that end it. `SessionImported` ends it for the fold, on every path; the others
    say it to what reads single entries: indexes, workers, and clients that wait for an end.
    """

    def __init__(self) -> None:
        self._queries: dict[QueryId | None, None] = {}
        self._inputs: dict[InputId, None] = {}
        self._questions: dict[str, ApprovalRequested] = {}

    def take(self, entry: Entry) -> bool:
        """Note what an entry begins or ends; False for one that ends what was not begun."""
        match entry:
            case QueryStarted():
                self._queries.pop(entry.resumes, None)
                self._queries[entry.query_id] = None
            case QueryEnded(stop_reason="approval" | "waiting"):
                self._queries[entry.query_id] = None
            case QueryEnded():
                self._queries.pop(entry.query_id, None)
            case InputQueued():
                # Stores count prompts that wait: each id comes in once, and leaves once.
                if entry.input_id in self._inputs:
                    return False
                self._inputs[entry.input_id] = None
            case InputPromoted() | InputDrained():
                return self._inputs.pop(entry.input_id, _ABSENT) is not _ABSENT
            case ApprovalRequested():
                self._questions[entry.approval_id] = entry
            case ApprovalSettled():
                self._questions.pop(entry.approval_id, None)
        return True

    def ends(self, *, seq: int, time: int) -> Iterator[Entry]:
        """Yield the entries that end everything; the first of them has this `seq`."""
        seqs = iter(
            range(seq, seq + 1 + len(self._inputs) + len(self._questions) + len(self._queries))
        )

        def stamp() -> JsonObject:
            return {"id": new_entry_id(), "time": time, "seq": next(seqs)}

        # First, because it leaves calls as they are, and the answer to a question denies its call.
        yield SessionImported(**stamp())
        for input_id in self._inputs:
            yield InputDrained(**stamp(), input_id=input_id, reason=_ENDED)
        for asked in self._questions.values():
            yield ApprovalSettled(
                **stamp(),
                query_id=asked.query_id,
                turn_id=asked.turn_id,
                approval_id=asked.approval_id,
                call_id=asked.call_id,
                decision="cancelled",
                reason=_ENDED,
            )
        for query_id in self._queries:
            error = RequestError(
                ErrorCode.ABORTED, f"the query was not carried on: {_ENDED}"
            ).report
            yield QueryEnded(**stamp(), query_id=query_id, stop_reason="aborted", error=error)


_ABSENT = object()
