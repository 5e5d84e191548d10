"""Extreme values in every field of every kind of entry, and whatever can be asked of a session."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from haptera import Agent
from haptera.model.entry_bytes import decode_entry
from haptera.model.errors import AgentError
from haptera.model.ids import DEFAULT_OWNER, SessionId, new_entry_id, new_session_id
from haptera.model.json_types import Json, JsonObject, plain_value
from haptera.model.log.entry import Entry
from tests.strategies_branches import go_back
from tests.strategies_logs import write_session

DEEP: Json = "leaf"
for _ in range(150):
    DEEP = [DEEP]

EXTREMES: tuple[Json, ...] = (
    *(2**63 - 1, 2**63, -(2**63), 2**200, -1, 0, 1.7e308),
    *("", "NaN", "Infinity", "sNaN", "1E+999999", "-1E-999999", "\x00", "x" * 5000),
    *(None, True, [], {}, [None], {"model": 7, "": None}, DEEP),
)
_PLACES = ("id", "seq", "kind", "raw", "session_id")
"""What says where an entry belongs: a store refuses another one."""


CHANGES: JsonObject = {
    "name": None,
    "title": "t",
    "tags": ["a"],
    "archived": 5,
    "deleted": None,
    "metadata": {"status": "s", "error_message": "e"},
    "native_session_id": "n",
    "native_through": "m",
    "unshared": [],
    "forgotten_notes": [],
    "model": "a/b",
    "settings": {"model": "a/b", "temperature": 0.5, "max_tokens": 5, "budget": None},
    "context": {"cwd": "/", "root": "/", "open_files": ["a"], "preferences": {}},
    "summary": {"title": "t", "body": "b", "topics": [], "made": 4},
    "shared": {"id": "shr_1", "digest": "d", "created": 1, "expires": 2, "through": 3},
}
"""What a change of a session may name."""


FORMATS = ("archive", "json", "markdown", "html", "claude-code", "codex", "opencode", "pi")


class Planted(NamedTuple):
    """A log in which one field of one entry has an extreme value."""

    where: str
    session_id: SessionId
    entries: Sequence[Entry]


def planted_logs(*, sample: int, share: int = 0) -> Iterator[Planted]:
    """Yield one log in `sample` of all: the one in `share` of each group."""
    found, number = set[str](), 0
    for seed in range(40):
        choices = bytes((seed * 97 + place * place * 31) % 251 for place in range(200))
        entries = write_session(choices, go_back=go_back).entries
        for index, entry in enumerate(entries):
            fields = plain_value(entry)
            fields.pop("raw", None)
            if entry.kind == "session.changed":
                fields["changes"] = CHANGES
            for path in _leaves(fields):
                where = f"{entry.kind}.{'.'.join(map(str, path))}"
                if where in found or path[0] in _PLACES:
                    continue
                found.add(where)
                for value in EXTREMES:
                    number += 1
                    if number % sample != share:
                        continue
                    planted = _planted(entry, fields, path, value)
                    if planted is not None:
                        log = [*entries[:index], planted, *entries[index + 1 :]]
                        yield Planted(f"{where} = {str(value)[:30]!r}", *_own(log))


def _leaves(value: JsonObject, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in value.items():
        yield (*path, name)
        if isinstance(inner, dict):
            yield from _leaves(inner, (*path, name))


def _planted(entry: Entry, fields: JsonObject, path: tuple[str, ...], value: Json) -> Entry | None:
    copy: JsonObject = msgspec.json.decode(msgspec.json.encode(fields))
    target = copy
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = value
    try:
        # The kind first, as in every stored entry.
        return decode_entry(msgspec.json.encode({"kind": entry.kind, **copy}))
    except AgentError:
        return None  # no store gives it out


def _own(entries: Sequence[Entry]) -> tuple[SessionId, list[Entry]]:
    """Give a log a session and ids of its own."""
    session_id, own = new_session_id(), list[Entry]()
    for entry in entries:
        fresh: dict[str, Any] = {"id": new_entry_id()}
        if entry.kind == "session.opened":
            fresh |= {"session_id": session_id, "owner": DEFAULT_OWNER, "project": "p"}
        if entry.raw is None:
            own.append(msgspec.structs.replace(entry, **fresh))
        else:
            stored = msgspec.json.decode(bytes(entry.raw)) | fresh
            own.append(decode_entry(msgspec.json.encode(stored)))
    return session_id, own


async def read_everything(agent: Agent, session_id: SessionId) -> None:
    """Ask for all that can be asked of one session; each answers, or raises an AgentError."""
    sessions = agent.sessions
    reads: list[Any] = [
        sessions.get(session_id),
        sessions.stats(session_id, children=True),
        sessions.usage(session_id),
        sessions.usage(session_id, by="model"),
        sessions.messages(session_id),
        sessions.tree(session_id),
        sessions.children(session_id),
        sessions.context(session_id),
        sessions.summary(session_id),
        sessions.find_prompt(session_id, "msg"),
    ]
    for read in reads:
        with contextlib.suppress(AgentError):
            await read
    for name in FORMATS:
        with contextlib.suppress(AgentError):
            async for _ in sessions.export(session_id, to=name):
                pass
