"""Finding sessions: lists, search, descriptions, and what a log says of its messages."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from haptera.access.descriptions import (
    ActiveContext,
    FoundText,
    ListOptions,
    MessageDescription,
    SessionDescription,
    SessionStats,
    SessionSummary,
    SessionTree,
    describe,
)
from haptera.access.history import described_messages, stats_of
from haptera.kernel.session.log_reading import beside_the_loop, fold_log, inherited_entries
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.given_options import check_options
from haptera.model.ids import SessionId, parse_session_id
from haptera.model.json_types import JsonObject, writable
from haptera.model.log.entry import Entry
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionChanged
from haptera.model.option_declarations import takes
from haptera.ports.session_store import SessionFilter, SessionRecord

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition

_ELSEWHERE = 3
"""How many other projects an error names."""

ValueT = TypeVar("ValueT")


class SessionFinder:
    """Reads the sessions of one owner and project. Needs no session to be open.

    A session is named by its id or its name. Sessions of other projects are seen only where
    `everywhere` is asked for; those of other owners never.
    """

    def __init__(self, composition: "Composition", *, owner: str, project: str) -> None:
        self._composition = composition
        self._owner = owner
        self._project = project

    @takes(ListOptions)
    async def list(self, **options: Unpack[ListOptions]) -> tuple[SessionDescription, ...]:
        """List sessions, the last updated first, a page at a time.

        Raises:
            ConfigError: CONFIG_INVALID naming the option that there is none of, or whose value is
                wrong.

        """
        told = check_options(options, ListOptions, function="sessions.list()")
        chosen: dict[str, Any] = {**told}
        everywhere, limit = chosen.pop("everywhere"), chosen.pop("limit")
        after, project = chosen.pop("after"), chosen.pop("project", self._project)
        if not chosen.pop("children") and chosen["spawned_by"] is None:
            chosen["spawned"] = False
        records = await self._composition.store.index.browse(
            self._owner,
            None if everywhere else project,
            matching=SessionFilter(**chosen),
            limit=limit,
            after=after,
        )
        return tuple(map(describe, records))

    async def get(self, reference: str) -> SessionDescription:
        """Describe one session.

        Raises:
            SessionError: NOT_FOUND naming the project, and where else there is such a name.

        """
        return describe(await self.record(reference))

    async def search(
        self, text: str, *, limit: int = 20, everywhere: bool = False
    ) -> tuple[FoundText, ...]:
        """Find what was said: texts that hold every word, the best first."""
        store, project = self._composition.store, None if everywhere else self._project
        text = writable(text)
        hits = await store.search.find(text, owner=self._owner, project=project, limit=limit)
        found: list[FoundText] = []
        for hit in hits:
            record = await store.index.find(self._owner, project, session_id=hit.session_id)
            if record is not None:  # it may have been deleted since
                found.append(FoundText(session=describe(record), hit=hit))
        return tuple(found)

    async def children(self, reference: str) -> tuple[SessionDescription, ...]:
        """List the sessions that were forked from one, and those that its tool calls made."""
        session_id = (await self.record(reference)).id
        forks = await self._browse(SessionFilter(parent=session_id))
        spawned = await self._browse(SessionFilter(spawned_by=session_id))
        return tuple(map(describe, (*forks, *spawned)))

    async def tree(self, reference: str) -> SessionTree:
        """Describe a session with those of its sub-agents, and theirs; forks are not among them."""
        return await self._tree_of(await self.record(reference))

    async def _tree_of(self, record: SessionRecord) -> SessionTree:
        spawned = await self._browse(SessionFilter(spawned_by=record.id))
        first_began = sorted(spawned, key=lambda each: (each.created, each.id))
        return SessionTree(
            session=describe(record),
            children=tuple([await self._tree_of(each) for each in first_began]),
        )

    async def stats(self, reference: str, *, children: bool = False) -> SessionStats:
        """Add up messages, tokens, cost and duration over the log of a session.

        With `children` the sessions of its sub-agents are added, too. Without it what they used is
        not in the numbers: adding up the numbers of all sessions counts everything once.
        """
        record = await self.record(reference)
        entries = await self._composition.store.log.read(record.id)
        fold = await fold_log(self._composition.store.log, entries)
        stats = await beside_the_loop(entries, lambda: stats_of(fold, entries))
        if children:
            for child in await self._browse(SessionFilter(spawned_by=record.id)):
                stats += await self.stats(child.id, children=True)
        return stats

    async def messages(
        self,
        reference: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        after: str | None = None,
        through: int | None = None,
    ) -> tuple[MessageDescription, ...]:
        """Return messages with their time, parent, model, cost and error, oldest first.

        With `before` the last ones before a message, with `after` the first ones after it. With
        `through` the messages as they were after this `seq` of the log.

        Raises:
            SessionError: NOT_FOUND; MESSAGE_NOT_FOUND when there is no such message.

        """
        record = await self.record(reference)
        fold, entries = await self.folded(record.id, through=through)
        describe_all = partial(described_messages, folder=record.project)
        messages = fold.messages()
        found = await beside_the_loop(entries, lambda: describe_all(messages, entries))
        start = 0 if after is None else _position_of(found, after) + 1
        end = len(found) if before is None else _position_of(found, before)
        page = found[start:end]
        if limit is not None:
            # Not `page[-limit:]`, which is the whole page with a limit of 0.
            page = page[:limit] if before is None else page[max(0, len(page) - limit) :]
        return tuple(page)

    async def context(self, reference: str) -> ActiveContext:
        """Return what a person was looking at when it was last saved."""
        return await self._saved(reference, "context", ActiveContext)

    async def summary(self, reference: str) -> SessionSummary | None:
        """Return the summary of a session, when one was made."""
        found = await self._saved(reference, "summary", SessionSummary)
        # `_saved` returns the default when nothing, or nothing valid, was saved.
        return found if found != SessionSummary() else None

    async def record(self, reference: str) -> SessionRecord:
        """Find a session of this project by its id or name, or of any project by its id.

        Raises:
            SessionError: NOT_FOUND.

        """
        if writable(reference) != reference:  # no store can keep such a name, or look for it
            raise SessionError(ErrorCode.NOT_FOUND, f"there is no session {reference!r}")
        # An id is unique in the whole store, a name only in its project.
        session_id = parse_session_id(reference)
        index = self._composition.store.index
        found = await index.find(
            self._owner,
            self._project if session_id is None else None,
            session_id=session_id,
            name=None if session_id else reference,
        )
        if found is None:
            raise await self._not_found(reference)
        return found

    async def folded(
        self, session_id: SessionId, *, through: int | None = None
    ) -> tuple[SessionFold, Sequence[Entry]]:
        """Return a session as its log leaves it, and its entries with those that it inherits.

        With `through` as it was after this `seq`.
        """
        log = self._composition.store.log
        entries = await log.read(session_id, limit=through)
        if through is not None:  # a log may have gaps
            entries = [entry for entry in entries if entry.seq <= through]
        inherited = await inherited_entries(log, entries[0] if entries else None)
        return await fold_log(log, entries), (*inherited, *entries)

    async def _not_found(self, reference: str) -> SessionError:
        told = f"there is no session {reference!r} in project {self._project!r}"
        named = SessionFilter(name=reference)
        others = await self._composition.store.index.browse(
            self._owner, None, matching=named, limit=_ELSEWHERE
        )
        if others:
            told += f"; there is one in {', '.join(repr(each.project) for each in others)}"
        return SessionError(ErrorCode.NOT_FOUND, told)

    async def _saved(self, reference: str, field: str, kind: type[ValueT]) -> ValueT:
        record = await self.record(reference)
        entries = await self._composition.store.log.read(record.id)
        saved: JsonObject = {}
        for entry in entries:
            if isinstance(entry, SessionChanged) and isinstance(entry.changes.get(field), dict):
                # Field by field, as it was saved: a change holds only the fields that it sets.
                saved |= entry.changes[field]
        try:
            return msgspec.convert(saved, kind)
        # Any program can save such a field in the log; a wrong one must not make a session
        # unreadable.
        except msgspec.ValidationError:
            return kind()

    async def _browse(self, matching: SessionFilter) -> Sequence[SessionRecord]:
        return await self._composition.store.index.browse(self._owner, None, matching=matching)


def _position_of(messages: Sequence[MessageDescription], message_id: str) -> int:
    for position, each in enumerate(messages):
        if each.message.id == message_id:
            return position
    raise SessionError(ErrorCode.MESSAGE_NOT_FOUND, f"this session has no message {message_id!r}")
