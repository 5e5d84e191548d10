"""What an imported log may hold: of each kind of entry what the kind says, of settings some.

`imported` of the kinds and `KEPT_SETTINGS` are the only places that say it: a setting that is added
later is dropped until it is named here.
"""

import math
from collections.abc import Iterator
from typing import get_args

import msgspec

from haptera.formats.message_builder import one_line
from haptera.model.believed_values import LATEST
from haptera.model.errors import ConfigError, ErrorCode, RequestError
from haptera.model.ids import InputId, QueryId, new_entry_id
from haptera.model.json_types import Json, JsonObject
from haptera.model.known_events import KnownEntry
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry, UnknownEntry, kind_name
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

KEPT_SETTINGS = (
    *("system_prompts", "thinking", "max_tokens", "temperature", "stop", "seed"),
    "model",
)
"""The settings that an import may bring; any other is the importer's."""
_KEPT_CHANGES = ("title", "tags", "archived", "deleted", "metadata", "forgotten_notes", "settings")

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
    if any(not math.isfinite(each) or abs(each) > LATEST for each in numbers):
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
    if "title" in changes and changes["title"] is not None:
        is_text = isinstance(changes["title"], str)
        changes["title"] = one_line(changes["title"], _LONGEST_TITLE) if is_text else None
    return changes


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
            case QueryEnded(stop_reason="approval"):
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
