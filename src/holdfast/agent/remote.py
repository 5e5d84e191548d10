"""AgentRemote: a session that another process may hold, reached through the store."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from holdfast.agent.agent_options import SettingsOptions
from holdfast.agent.option_checks import check_options, settings_changes, takes
from holdfast.agent.session import AgentSession, open_fork
from holdfast.agent.verbs import SessionVerbs
from holdfast.session.session_descriptions import (
    NamedSettings,
    SessionRequest,
    SessionView,
    Unfinished,
)
from holdfast.vocabulary.approvals import ApprovalRequest
from holdfast.vocabulary.commands import (
    AbortQuery,
    AnsweredCommand,
    Command,
    CompactSession,
    ConfigureSession,
    RewindSession,
    UndoRewind,
    new_command_id,
)
from holdfast.vocabulary.compactions import Compaction
from holdfast.vocabulary.errors import AgentError, ErrorCode, SessionError, error_from_report
from holdfast.vocabulary.events import Event, SessionStatus
from holdfast.vocabulary.file_snapshots import RewindReport
from holdfast.vocabulary.ids import MessageId, QueryId, SessionId
from holdfast.vocabulary.json_types import writable_or_none
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.requests import TokenCount

if TYPE_CHECKING:
    from holdfast.assembly.composition import Composition
    from holdfast.assembly.stored_sessions import CommandOutcome

ValueT = TypeVar("ValueT")


class RemoteSession(SessionVerbs):
    """What can be read of a session that another process may hold."""

    def __init__(self, composition: "Composition", request: SessionRequest) -> None:
        super().__init__(composition)
        # Opened for a moment only: the settings that this agent names are not for the session.
        self._request = replace(request, must_exist=True, named_by_agent=NamedSettings())
        self._session_id = SessionId(request.reference or "")

    @property
    def session_id(self) -> SessionId:
        """The session's id."""
        return self._session_id

    async def messages(self) -> tuple[Message, ...]:
        """Read the conversation so far."""
        return (await self._composition.look_at(self._session_id)).messages

    async def pending(self) -> tuple[ApprovalRequest, ...]:
        """Read the approvals without an answer; one that was just sent from anywhere counts."""
        return (await self._composition.look_at(self._session_id)).pending

    async def status(self) -> SessionStatus:
        """Read what the session is doing, by its log.

        `Busy` while a query has no recorded end, also when the process that ran it is gone.
        """
        return (await self._composition.look_at(self._session_id)).status

    async def snapshot(self) -> SessionView:
        """Read what the session is at this moment, by its log."""
        return (await self._composition.look_at(self._session_id)).view

    async def unfinished(self) -> Unfinished:
        """Read what has no recorded end: a query that runs elsewhere, too."""
        return (await self._composition.look_at(self._session_id)).unfinished

    async def is_native(self) -> bool:
        """Read whether its model is run by an agent that keeps a session of its own."""
        fold = await self._composition.read_fold(self._session_id)
        return self._composition.clients.is_native(fold.settings.model)

    async def count_tokens(self) -> TokenCount:
        """Count the tokens that the next request would hold, with the tools of this agent.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet.

        """
        fold = await self._composition.read_fold(self._session_id)
        return await self._composition.count_tokens(fold, self._composition.registry, None)

    def events(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Read what happened after a `seq`, then what happens, until closed or deleted."""
        return self._composition.follow(self._session_id, after=after)


class AgentRemote(RemoteSession):
    """Reaches a session that another process may hold: made by `await agent.remote(name)`.

    A command is durable once its call returns; the holder carries it out, or the next one does.
    `rewind`, `undo_rewind`, `compact` and `configure` return when the holder has carried them out,
    and raise what they would raise there. If no process holds the session, this one opens it for
    as long as that takes. A call that is cancelled leaves its command to the holder.
    """

    async def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Ask for the running query to be stopped; with an id, only if it is that one."""
        told, meant = writable_or_none(reason), QueryId(query_id) if query_id else None
        await self._tell(AbortQuery(id=new_command_id(), reason=told, query_id=meant))

    async def fork(self, *, after: str | None = None, name: str | None = None) -> AgentSession:
        """Go on from a message in a new session, which this process holds and the caller closes.

        Only the stored log is read: the holder of this session goes on undisturbed.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the
                session was deleted.
            StoreError: CONFLICT when the name is taken.

        """
        await self._composition.require(self._session_id)
        fork = await self._composition.read_fork(self._session_id, after)
        return await open_fork(self._composition, self._request, fork, name=name)

    async def rewind(
        self, *, to: str, files: bool = False, dry_run: bool = False, force: bool = False
    ) -> RewindReport:
        """Make a message the last one of the conversation, as `session.rewind` does.

        The files are those of the holder's workspace.

        Raises:
            AgentError: what `session.rewind` raises.

        """
        command = RewindSession(
            id=new_command_id(), to=MessageId(to), files=files, dry_run=dry_run, force=force
        )
        return await self._carried_out(
            command,
            lambda session: session.rewind(to=to, files=files, dry_run=dry_run, force=force),
            _report_in,
        )

    async def undo_rewind(self, *, force: bool = False) -> RewindReport:
        """Take the last rewind back, as `session.undo_rewind` does.

        Raises:
            AgentError: what `session.undo_rewind` raises.

        """
        command = UndoRewind(id=new_command_id(), force=force)
        return await self._carried_out(
            command, lambda session: session.undo_rewind(force=force), _report_in
        )

    async def compact(self, instructions: str | None = None) -> Compaction:
        """Replace the earlier messages by a summary in what is sent, as `session.compact` does.

        The holder asks the model.

        Raises:
            SessionError: also BUSY when the session was opened by another process before it was
                compacted; ask again then.
            AgentError: what `session.compact` raises.

        """
        command = CompactSession(id=new_command_id(), instructions=writable_or_none(instructions))
        return await self._carried_out(
            command, lambda session: session.compact(instructions), _compaction_in
        )

    @takes(SettingsOptions)
    async def configure(self, **options: Unpack[SettingsOptions]) -> None:
        """Change settings, from the next turn on.

        Raises:
            ConfigError: CONFIG_INVALID naming the field.

        """
        checked = check_options(options, SettingsOptions, door="remote.configure()")
        changes = self._composition.configuration.changed(settings_changes(checked))
        command = ConfigureSession(id=new_command_id(), settings=changes)
        await self._carried_out(
            command, lambda session: session.configure(**options), lambda _outcome: None
        )

    async def _tell(self, command: Command) -> None:
        # No holder will ever read a command to a session that was deleted.
        await self._composition.require(self._session_id)
        await self._composition.store.inbox.put(self._session_id, command)

    async def _carried_out(
        self,
        command: AnsweredCommand,
        here: Callable[[AgentSession], Awaitable[ValueT]],
        read: "Callable[[CommandOutcome], ValueT]",
    ) -> ValueT:
        """Have a command carried out by the holder, or here if no process holds the session."""
        session = await self._open_if_free()
        if session is not None:
            try:
                return await here(session)
            finally:
                await _leave(session)
        outcome = await self._composition.ask_holder(
            self._session_id, command, self._open_when_silent
        )
        if outcome.ended.error is not None:
            raise error_from_report(outcome.ended.error)
        return read(outcome)

    async def _open_when_silent(self) -> None:
        """Open the session if its holder is gone: that carries out what is in its inbox."""
        if (session := await self._open_if_free()) is not None:
            await _leave(session)

    async def _open_if_free(self) -> AgentSession | None:
        """Open the session here; None when another process holds it."""
        try:
            return await AgentSession(self._composition, self._request).open()
        except SessionError as error:
            if error.code is not ErrorCode.BUSY:
                raise
            return None


async def _leave(session: AgentSession) -> None:
    """Close a session that was opened for a moment; a prompt that came meanwhile is answered."""
    try:
        with suppress(AgentError):
            await session.wait_idle()
    finally:
        await session.close()


def _report_in(outcome: "CommandOutcome") -> RewindReport:
    return msgspec.convert(outcome.ended.result or {}, RewindReport)


def _compaction_in(outcome: "CommandOutcome") -> Compaction:
    made = (outcome.ended.result or {}).get("compaction_id")
    if (compaction := outcome.compactions.get(str(made))) is None:
        raise SessionError(ErrorCode.NOT_FOUND, f"the log has no compaction {made!r}")
    return compaction
