"""StoredSessions: the sessions of an agent's store, whichever process holds them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import msgspec

from haptera.kernel.session.branching import read_fork
from haptera.kernel.session.live_session import SessionResources
from haptera.kernel.session.log_reading import fold_log, read_for_opening
from haptera.kernel.session.observers import follow_entries
from haptera.kernel.session.opening import find_session, no_session
from haptera.kernel.session.session_descriptions import (
    Fork,
    SessionGlimpse,
    SessionRequest,
    glimpse_of,
)
from haptera.kernel.session.state_reading import read_to_look
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.events import Event
from haptera.model.ids import QueryId, SessionId, query_id_for
from haptera.model.json_types import writable_or_none
from haptera.model.log.compactions import Compaction
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import CommandEnded
from haptera.model.operations.operation import CommandId, new_command_id
from haptera.model.operations.session import AbortQuery, AnsweredCommand
from haptera.ports.session_store import SessionRecord, Store
from haptera.system.abort import AbortSignal, until_aborted
from haptera.system.owned_tasks import OwnedTasks

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 8.0
"""Seconds in which the holder of a session may answer before it is looked whether there is one."""
_CANCEL_SECONDS = 1.0


class CommandOutcome(msgspec.Struct, frozen=True):
    """The end of a command, and the compactions that came before it."""

    ended: CommandEnded
    compactions: dict[str, Compaction]


class StoredSessions:
    """What can be read of an owner's sessions, and asked of their holders, without holding them."""

    def __init__(
        self,
        owner: str,
        *,
        store: Callable[[], Store],
        resources: Callable[[], SessionResources],
    ) -> None:
        self._owner = owner
        self._store = store
        self._resources = resources

    async def find(self, request: SessionRequest) -> SessionId:
        """Find a session, also one that another process holds.

        Raises:
            SessionError: NOT_FOUND when the store has no such session.

        """
        record = await find_session(self._resources(), request)
        if record is None:
            raise no_session(request)
        return record.id

    async def look_at(self, session_id: SessionId, *, whole: bool = True) -> SessionGlimpse:
        """Return what the store has of a session, whichever process holds it.

        Unless the `whole` is asked for, it may lack messages and notes from before some entry.
        """
        fold = await self.read_fold(session_id, whole=whole)
        return glimpse_of(session_id, fold, await self._store().inbox.pending(session_id))

    async def read_fold(self, session_id: SessionId, *, whole: bool = True) -> SessionFold:
        """Return what the stored log of a session comes to."""
        compacted, log = None, self._store().log
        if not whole and (record := await self._record(session_id)) is not None:
            compacted = record.compacted
            # Whichever is later says more.
            folded = record.folded if (record.folded or (0,)) > (compacted or (0,)) else None
            if (seen := await read_to_look(log, session_id, folded)) is not None:
                return seen
        entries, fold = await read_for_opening(log, session_id, compacted)
        return fold or await fold_log(log, entries)

    async def _record(self, session_id: SessionId) -> SessionRecord | None:
        return await self._store().index.find(self._owner, None, session_id=session_id)

    async def read_fork(self, session_id: SessionId, after: str | None) -> Fork:
        """Say where a branch of a session begins, by its stored log.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the
                session was deleted.

        """
        record = await self._record(session_id)
        return await read_fork(self._store().log, session_id, after, record=record)

    async def require(self, session_id: SessionId) -> SessionRecord:
        """Find a session of this owner; raises NOT_FOUND when it is not there any more."""
        found = await self._record(session_id)
        if found is None:
            raise SessionError(ErrorCode.NOT_FOUND, f"there is no session {session_id!r}")
        return found

    def follow(self, session_id: SessionId, *, after: int) -> AsyncGenerator[Event, None]:
        """Read a session's entries after a `seq`, then new ones, whichever process holds it."""
        return follow_entries(self._store().log, session_id, after=after)

    async def ask_holder(
        self,
        session_id: SessionId,
        command: AnsweredCommand,
        when_silent: Callable[[], Awaitable[None]],
        *,
        signal: AbortSignal | None = None,
    ) -> CommandOutcome:
        """Send a command to the holder of a session and wait for its end.

        `when_silent` is called again and again while the holder does not answer: it may be gone.
        `signal` stops the query that the command starts.

        Raises:
            SessionError: NOT_FOUND when the session is deleted.

        """
        # Before the command is sent: its end has a higher `seq`.
        head = (await self.require(session_id)).head
        await self._store().inbox.put(session_id, command)
        tasks, pause = OwnedTasks(), _FIRST_PAUSE
        following = tasks.start(
            self._end_of(command.id, session_id, after=head), name="haptera-outcome"
        )
        if signal is not None:
            stopping = self._abort_when(signal, session_id, query_id_for(command.id))
            tasks.start(stopping, name="haptera-stop-command")
        try:
            while True:
                await asyncio.wait({following}, timeout=pause)
                if following.done():
                    return following.result()
                await when_silent()
                # Longer each time: every look tries to open the session.
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            await tasks.cancel(within=_CANCEL_SECONDS)

    async def _abort_when(
        self, signal: AbortSignal, session_id: SessionId, query_id: QueryId
    ) -> None:
        await until_aborted(signal)
        reason = writable_or_none(signal.reason)
        abort = AbortQuery(id=new_command_id(), reason=reason, query_id=query_id)
        await self._store().inbox.put(session_id, abort)

    async def _end_of(
        self, command_id: CommandId, session_id: SessionId, *, after: int
    ) -> CommandOutcome:
        compactions: dict[str, Compaction] = {}
        async with aclosing(self._store().log.follow(session_id, after=after)) as batches:
            async for batch in batches:
                for entry in batch:
                    if isinstance(entry, Compaction):
                        compactions[entry.id] = entry
                    elif isinstance(entry, CommandEnded) and entry.command_id == command_id:
                        return CommandOutcome(entry, compactions)
        raise SessionError(ErrorCode.NOT_FOUND, f"session {session_id} was deleted")
