"""Transcripts: what the CLI keeps of a session, kept in a store of ours, too.

`TranscriptStore` is what the package calls a session store: it gets each line of a transcript after
the CLI has written it to its own disk. A transcript is a log of its own in the store, one for the
session and one for each sub-agent. With it a session can be gone on with on another machine.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from haptera.model.ids import new_id, new_session_id
from haptera.model.json_types import JsonObject
from haptera.model.log.entry import Entry
from haptera.model.log.native import TranscriptMirrored
from haptera.model.log.sessions import SessionOpened
from haptera.ports.session_store import SessionRecord, Store
from haptera.providers.claude_agent.sdk import package as sdk
from haptera.system.clock import Clock, Stamp

_PROJECT = "claude-agent"
_SCOPE = "sessions"


TranscriptKey: TypeAlias = Any
"""The package's `SessionKey`, which cannot be imported before it is needed."""


class TranscriptStore:
    """Keeps transcripts in a store; has the methods of the package's `SessionStore`.

    With a `scope`, the package's key of a project (its folder on this machine) is not used: then a
    transcript is found from any folder.

    It knows the lines of every transcript that it has appended to, so it is for one session and
    must not outlive that.
    """

    def __init__(
        self, store: Callable[[], Store], *, owner: str, clock: Clock, scope: str | None = None
    ) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._scope = scope
        self._locks: dict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._seen: dict[tuple[str, str], set[str]] = {}
        """The ids of lines that are stored, by transcript, once one was appended to."""

    async def append(self, key: TranscriptKey, entries: Sequence[Any]) -> None:
        """Keep lines; one whose `uuid` is stored already is not stored again."""
        if not entries:
            return
        project, name = self._location(key)
        async with self._locks[project, name]:
            record = await self._find(project, name)
            seen = await self._stored_ids(project, name, record)
            fresh = [line for line in entries if line.get("uuid") not in seen]
            if fresh:
                await self._write((project, name), record, fresh)
                seen.update(line["uuid"] for line in fresh if line.get("uuid"))

    async def load(self, key: TranscriptKey) -> list[JsonObject] | None:
        """Return every line of a transcript; None when there is none."""
        record = await self._find(*self._location(key))
        return None if record is None else await self._lines(record)

    async def list_sessions(self, project_key: str) -> list[JsonObject]:
        """Return the sessions of a project, with when they changed."""
        return [
            {"session_id": record.name, "mtime": record.updated}
            for record in await self._browse(project_key)
            if record.name and "/" not in record.name
        ]

    async def list_session_summaries(self, project_key: str) -> list[JsonObject]:
        """Return what the package derives from each transcript."""
        summaries: list[JsonObject] = []
        for record in await self._browse(project_key):
            if record.name and "/" not in record.name:
                key: Any = {"project_key": project_key, "session_id": record.name}
                lines: Any = await self._lines(record)
                summary: Any = sdk.fold_session_summary(None, key, lines)
                summaries.append({**summary, "mtime": record.updated})
        return summaries

    async def delete(self, key: TranscriptKey) -> None:
        """Remove a transcript; that of a session with those of its sub-agents."""
        _, name = self._location(key)
        for record in await self._browse(key["project_key"]):
            below = not key.get("subpath") and (record.name or "").startswith(f"{name}/")
            if record.name == name or below:
                await self._store().log.delete(record.id)
                self._seen.pop((self._project(key["project_key"]), record.name or ""), None)

    async def list_subkeys(self, key: TranscriptKey) -> list[str]:
        """Return the sub-agents of a session that have transcripts."""
        prefix = f"{key['session_id']}/"
        names = [record.name or "" for record in await self._browse(key["project_key"])]
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def _project(self, project_key: str) -> str:
        return f"{_PROJECT}:{self._scope if self._scope is not None else project_key}"

    def _location(self, key: TranscriptKey) -> tuple[str, str]:
        subpath = key.get("subpath")
        name = f"{key['session_id']}/{subpath}" if subpath else str(key["session_id"])
        return self._project(key["project_key"]), name

    async def _find(self, project: str, name: str) -> SessionRecord | None:
        return await self._store().index.find(self._owner, project, name=name)

    async def _browse(self, project_key: str) -> Sequence[SessionRecord]:
        return await self._store().index.browse(self._owner, self._project(project_key))

    async def _lines(self, record: SessionRecord) -> list[JsonObject]:
        entries = await self._store().log.read(record.id)
        mirrored = [entry for entry in entries if isinstance(entry, TranscriptMirrored)]
        return [line for entry in mirrored for line in entry.lines]

    async def _stored_ids(self, project: str, name: str, record: SessionRecord | None) -> set[str]:
        if record is None:
            self._seen[project, name] = set()
        elif (project, name) not in self._seen:
            lines = await self._lines(record)
            self._seen[project, name] = {line["uuid"] for line in lines if line.get("uuid")}
        return self._seen[project, name]

    async def _write(
        self,
        location: tuple[str, str],
        record: SessionRecord | None,
        lines: Sequence[JsonObject],
    ) -> None:
        project, name = location
        store, stamp = self._store(), Stamp(self._clock)
        session_id = new_session_id() if record is None else record.id
        # Another process may go on with the same native session, so appends are put in order by the
        # lease.
        lease = await store.leases.acquire(session_id, new_id("hld"), busy="wait")
        try:
            head = 0
            opening: list[Entry] = []
            if record is None:
                opened = SessionOpened(
                    **stamp(),
                    seq=1,
                    session_id=session_id,
                    owner=self._owner,
                    project=project,
                    name=name,
                )
                opening, head = [opened], 1
            else:
                latest = await self._find(project, name)  # another process may have gone on with it
                head = latest.head if latest is not None else record.head
            mirrored = TranscriptMirrored(**stamp(), seq=head + 1, lines=tuple(lines))
            await store.log.append(lease, [*opening, mirrored])
        finally:
            await store.leases.release(lease)


def stored_transcripts(store: Callable[[], Store], owner: str, clock: Clock) -> TranscriptStore:
    """Return the transcripts of an owner's sessions, wherever they were written."""
    return TranscriptStore(store, owner=owner, clock=clock, scope=_SCOPE)


def is_native_id(text: str) -> bool:
    """Whether a text is an id of the CLI's; it becomes part of a path."""
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
