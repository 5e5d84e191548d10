"""Catalogue: finds, describes, changes and deletes the sessions of one owner.

It reads and writes the store, and needs no session to be open. What is changed is an entry of the
session's log, so that every process sees it.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, Unpack

import msgspec

from haptera.access.assembly import late
from haptera.access.descriptions import (
    ActiveContext,
    FoundPrompt,
    SessionChanges,
    SessionDescription,
    SessionEvent,
    SessionStats,
    SessionSummary,
    describe,
)
from haptera.access.finding import SessionFinder
from haptera.access.history import usage_of
from haptera.kernel.session.log_reading import beside_the_loop
from haptera.kernel.session.notes import ProjectNote, project_notes
from haptera.kernel.session.session_descriptions import SessionRequest
from haptera.model.commands import ChangeSession, new_command_id
from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError
from haptera.model.given_options import check_given
from haptera.model.ids import MessageId, SessionId, new_id
from haptera.model.json_types import JsonObject
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued, QueryStarted
from haptera.model.log.sessions import SessionChanged
from haptera.model.messages import UserMessage
from haptera.model.option_declarations import takes
from haptera.ports.session_store import Lease, SessionFilter, SessionLog, SessionRecord
from haptera.system.clock import Stamp
from haptera.system.threads import run_in_thread

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition

_MOST_LOGS = 32
"""How many logs are remembered, those that were asked for last."""


class Catalogue(SessionFinder):
    """Changes and deletes the sessions of one owner and project, beside finding them."""

    def __init__(self, composition: "Composition", *, owner: str, project: str) -> None:
        super().__init__(composition, owner=owner, project=project)
        self._handlers: list[Callable[[SessionEvent], object]] = []

    # Changing.

    @takes(SessionChanges)
    async def update(self, reference: str, **changes: Unpack[SessionChanges]) -> SessionDescription:
        """Change name, title, tags, metadata or system prompt of a session.

        A session that another process holds is changed by that process, soon after this returns.

        Raises:
            SessionError: NOT_FOUND.
            StoreError: CONFLICT when the name is taken.
            ConfigError: CONFIG_INVALID naming the field that there is none of, or whose value is
                wrong.

        """
        check_given(changes, SessionChanges, function="sessions.update()")
        record = await self.record(reference)
        if (name := changes.get("name")) not in {None, record.name}:
            # Looked up now: another process that holds the session changes it later, when no caller
            # hears of a conflict.
            bearer = await self._composition.store.index.find(
                self._owner, record.project, name=name
            )
            if bearer is not None:
                raise StoreError(ErrorCode.CONFLICT, f"the name {name!r} is taken")
        told = changes_of(changes)
        named = told.pop("native_session_id") if told.get("native_session_id") else None
        if told or named is None:
            await self._change(record, told)
        if named is not None:
            # Last: the settings with which it goes on are in force.
            await self._adopt(record, named)
        return describe(await self.record(record.id))

    async def _adopt(self, record: SessionRecord, native_session_id: str) -> None:
        """Let a session go on with a native session, as opening it with that does."""
        composition = self._composition
        request = SessionRequest(
            owner=self._owner,
            project=record.project,
            reference=record.id,
            must_exist=True,
            native_session_id=native_session_id,
        )
        if (live := composition.held(record.id)) is not None:
            is_own = composition.configuration.bounds is None
            await composition.native_sessions.adopt(live, native_session_id, is_own=is_own)
            return
        live = await composition.begin_opening(request)
        await live.close()
        await composition.forget(live)
        self.announce("updated", record.id)

    async def rename(self, reference: str, name: str | None) -> SessionDescription:
        """Give a session another name; None takes its name away."""
        return await self.update(reference, name=name)

    async def tag(self, reference: str, *tags: str) -> SessionDescription:
        """Add tags to a session."""
        record = await self.record(reference)
        return await self._change(record, {"tags": sorted({*record.tags, *tags})})

    async def untag(self, reference: str, *tags: str) -> SessionDescription:
        """Take tags off a session."""
        record = await self.record(reference)
        return await self._change(record, {"tags": sorted(set(record.tags) - set(tags))})

    async def archive(self, reference: str, *, undo: bool = False) -> SessionDescription:
        """Put a session away, or (with `undo`) back.

        An archived session can still be opened; it is listed only when asked for. The sessions of
        its sub-agents go with it.
        """
        record = await self.record(reference)
        now = None if undo else self._composition.clock.time_ms()
        for child in await self._browse(SessionFilter(spawned_by=record.id)):
            await self.archive(child.id, undo=undo)
        return await self._change(record, {"archived": now})

    async def touch(self, reference: str) -> SessionDescription:
        """Make a session the last updated one."""
        return await self._change(await self.record(reference), {})

    async def set_context(self, reference: str, context: ActiveContext) -> None:
        """Save what a person is looking at; fields with their default keep what was saved."""
        fields = msgspec.to_builtins(context)
        await self._change(await self.record(reference), {"context": fields})

    async def set_summary(self, reference: str, summary: SessionSummary) -> None:
        """Keep a summary of a session."""
        made = summary.made or self._composition.clock.time_ms()
        fields = msgspec.to_builtins(msgspec.structs.replace(summary, made=made))
        await self._change(await self.record(reference), {"summary": fields})

    async def delete(self, reference: str) -> None:
        """Delete a session with its payloads, its index and the sessions that its calls made.

        It is closed first if this agent has it open. Forks of it stay whole: as long as there is
        one, the log is kept for it, and nothing else can find it.

        Raises:
            SessionError: NOT_FOUND, BUSY when another process holds it.

        """
        record = await self.record(reference)
        live = self._composition.held(record.id)
        if live is not None:
            await live.close(abort=True)
            await self._composition.forget(live)
        # Before anything is deleted: a session that another process holds keeps its sub-agents'.
        lease = await self._acquire(record.id)
        try:
            for child in await self._browse(SessionFilter(spawned_by=record.id)):
                await self.delete(child.id)
            if await self._has_forks(record.id):
                # Marked and not removed: a fork has only what is its own, and reads the rest from
                # this log.
                await self._append(lease, {"deleted": self._composition.clock.time_ms()})
            else:
                await self._delete_log(record)
        finally:
            with contextlib.suppress(AgentError):  # nothing is left to be released
                await self._composition.store.leases.release(lease)
        await self._delete_unneeded(record.parent)
        self.announce("deleted", record.id)

    # What happens.

    def on(self, handler: Callable[[SessionEvent], object]) -> Callable[[], None]:
        """Call `handler` when a session is created, updated, deleted or switched to by this agent.

        Returns a function that ends this.
        """
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler) if handler in self._handlers else None

    def announce(
        self, kind: Literal["created", "updated", "deleted", "switched"], session_id: SessionId
    ) -> None:
        """Tell the handlers that something happened to a session."""
        # A copy: a handler may end its own registration.
        for handler in tuple(self._handlers):
            handler(SessionEvent(kind=kind, session_id=session_id))

    async def _has_forks(self, session_id: SessionId) -> bool:
        # Also forks that were deleted, and whose logs are kept for forks of theirs.
        return bool(await self._browse(SessionFilter(parent=session_id, deleted=None)))

    async def _delete_log(self, record: SessionRecord) -> None:
        """Delete the log of a session, with what is kept for it outside of the store.

        These are transcripts of native agents, and the copies of files that rewinds replaced.
        """
        composition, store = self._composition, self._composition.store
        # Read first: the entries name the transcripts.
        entries = await store.log.read(record.id) if record.native_session_id is not None else ()
        await store.log.delete(record.id)
        await composition.clients.delete_transcripts(record.owner, entries)
        data = composition.configuration.folders.data
        if kept := late.kept_files_of(data, record.id):
            await run_in_thread(lambda: late.forget_kept_files(kept))

    async def _delete_unneeded(self, session_id: SessionId | None) -> None:
        """Delete a session that was kept for its forks, once there are none."""
        # A chain: a parent may have been kept only for the fork that was deleted now.
        while session_id is not None and not await self._has_forks(session_id):
            kept = await self._browse(SessionFilter(deleted=True))
            record = next((each for each in kept if each.id == session_id), None)
            if record is None:
                return
            await self._delete_log(record)
            session_id = record.parent

    async def _change(self, record: SessionRecord, changes: JsonObject) -> SessionDescription:
        live = self._composition.held(record.id)
        if live is not None:
            await live.change(changes)
        else:
            await self._change_closed(record.id, changes)
        self.announce("updated", record.id)
        return describe(await self.record(record.id))

    async def _change_closed(self, session_id: SessionId, changes: JsonObject) -> None:
        try:
            lease = await self._acquire(session_id)
        except SessionError as error:
            if error.code is not ErrorCode.BUSY:
                raise
            # Only the holder of a session can append to its log.
            command = ChangeSession(id=new_command_id(), changes=changes)
            await self._composition.store.inbox.put(session_id, command)
            return
        try:
            await self._append(lease, changes)
        finally:
            await self._composition.store.leases.release(lease)

    async def _acquire(self, session_id: SessionId) -> Lease:
        return await self._composition.store.leases.acquire(session_id, new_id("adm"))

    async def _append(self, lease: Lease, changes: JsonObject) -> None:
        store = self._composition.store
        found = await store.index.find(self._owner, None, session_id=lease.session_id)
        if found is None:
            raise await self._not_found(lease.session_id)
        # Another session can have the name from now on.
        if "deleted" in changes:
            changes = {**changes, "name": None}
        stamp = Stamp(self._composition.clock)()
        changed = SessionChanged(**stamp, seq=found.head + 1, changes=changes)
        await store.log.append(lease, [changed])


class _ReadPrompts(msgspec.Struct, kw_only=True):
    """What was read of one log so far."""

    created: int
    head: int = 0
    places: dict[MessageId, int] = msgspec.field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        """Note an entry; of two with one message the first counts."""
        self.head = max(self.head, entry.seq)
        if (message := _prompt_of(entry)) is not None:
            self.places.setdefault(message.id, entry.seq)


class SentPrompts:
    """Finds prompts by the ids of their messages. Owns only what it remembers of the logs.

    A sender that gives its messages ids asks before each of them, so every entry is read once.
    """

    def __init__(self) -> None:
        self._logs: OrderedDict[SessionId, _ReadPrompts] = OrderedDict()

    async def find(
        self, log: SessionLog, record: SessionRecord, message_id: str
    ) -> FoundPrompt | None:
        """Find the prompt with this id in the log of a session; None without one."""
        known = self._known(record)
        for entry in await log.read(record.id, after=known.head):
            known.take(entry)
        seq = known.places.get(MessageId(message_id))
        for entry in () if seq is None else await log.read(record.id, after=seq - 1, limit=1):
            message = _prompt_of(entry)
            if message is not None and message.id == message_id:
                query_id = message.query_id or entry.query_id
                return FoundPrompt(seq=entry.seq, query_id=query_id, parts=message.parts)
        return None

    def _known(self, record: SessionRecord) -> _ReadPrompts:
        known = self._logs.get(record.id)
        # Another session may have been made with the id of one that was deleted.
        if known is None or known.created != record.created or known.head > record.head:
            known = self._logs[record.id] = _ReadPrompts(created=record.created)
        self._logs.move_to_end(record.id)
        while len(self._logs) > _MOST_LOGS:
            self._logs.popitem(last=False)
        return known


def _prompt_of(entry: Entry) -> UserMessage | None:
    return entry.message if isinstance(entry, InputQueued | QueryStarted) else None


class NotedSessions(Catalogue):
    """What is looked up beside the sessions of a project: its notes, prompts and usage."""

    def __init__(self, composition: "Composition", *, owner: str, project: str) -> None:
        super().__init__(composition, owner=owner, project=project)
        self._sent_prompts = SentPrompts()

    async def find_prompt(self, reference: str, message_id: str) -> FoundPrompt | None:
        """Find a prompt that was sent with an id of its sender's choice; None without one."""
        record = await self.record(reference)
        return await self._sent_prompts.find(self._composition.store.log, record, message_id)

    async def usage(
        self, reference: str, *, by: Literal["day", "model"] = "day"
    ) -> dict[str, SessionStats]:
        """Add up what a session used for each day (UTC, such as 2026-05-17), or for each model.

        A query, its tools and a compaction count for the model of the turn before their end.
        """
        record = await self.record(reference)
        entries = await self._composition.store.log.read(record.id)
        add_up = partial(usage_of, entries, by, model=record.model)
        return await beside_the_loop(entries, add_up)

    async def notes(self) -> tuple[ProjectNote, ...]:
        """List the notes of this project, the oldest first; a text comes once."""
        return await project_notes(
            self._composition.store, owner=self._owner, project=self._project
        )

    async def forget_note(self, note: ProjectNote) -> None:
        """Take a note back, wherever its text was noted: new sessions do not get it any more.

        Sessions that have it keep it.
        """
        store, text = self._composition.store, note.text.strip()
        for each in await project_notes(
            store, owner=self._owner, project=self._project, is_each_text_once=False
        ):
            if each.text.strip() == text:
                record = await self.record(each.session_id)
                await self._change(record, {"forgotten_notes": [each.seq]})


def changes_of(given: SessionChanges) -> JsonObject:
    """Return the changes of an entry for what a caller wants changed."""
    changes: JsonObject = {}
    metadata: JsonObject = dict(given.get("metadata") or {})
    for name, value in given.items():
        if name in {"status", "error_message", "workflow_id"}:
            metadata[name] = value
        elif name == "system_prompt":
            changes["settings"] = {"system_prompts": [value] if value else []}
        elif name == "tags":
            changes["tags"] = sorted(set(given["tags"]))
        elif name != "metadata":
            changes[name] = value
    return changes | ({"metadata": metadata} if metadata else {})
