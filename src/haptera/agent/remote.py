"""AgentRemote: a session that another process may hold, reached through the store."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import msgspec
from msgspec.structs import replace

from haptera.agent.query_options import QueryOptions
from haptera.agent.query_stream import aborted_before
from haptera.agent.session import AgentSession, compact_here
from haptera.agent.verbs import OrderT, SessionVerbs, ValueT
from haptera.kernel.session.session_descriptions import (
    Fork,
    NamedTwice,
    SessionRequest,
    SessionView,
    Unfinished,
)
from haptera.model.approvals import ApprovalRequest
from haptera.model.errors import AgentError, ErrorCode, SessionError, error_from_report
from haptera.model.events import Event, SessionStatus
from haptera.model.ids import QueryId, SessionId
from haptera.model.json_types import writable_or_none
from haptera.model.late_names import on_first_use
from haptera.model.log.compactions import Compaction
from haptera.model.messages import Message
from haptera.model.operations.operation import new_command_id
from haptera.model.operations.session import (
    AbortQuery,
    AnsweredCommand,
    Command,
    CompactSession,
)
from haptera.model.requests import TokenCount
from haptera.model.results import ResumeKind
from haptera.system.abort import AbortSignal

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.access.assembly.stored_sessions import CommandOutcome
    from haptera.kernel.session import command_effects
    from haptera.kernel.session.command_effects import HeldSession
    from haptera.kernel.session.live_session import LiveSession
else:
    command_effects = on_first_use("haptera.kernel.session.command_effects")


class AgentRemote(SessionVerbs[AgentSession]):
    """Reaches a session that another process may hold: made by `await agent.remote(name)`.

    A command is durable once its call returns; the holder carries it out, or the next one does.
    `rewind`, `undo_rewind`, `compact` and `configure` return when the holder has carried them out,
    and raise what they would raise there. If no process holds the session, this one opens it for
    as long as that takes. A call that is cancelled leaves its command to the holder.
    """

    def __init__(self, composition: "Composition", request: SessionRequest) -> None:
        super().__init__(composition)
        # Opened for a moment only: the settings that this agent names are not for the session.
        self._request = replace(request, must_exist=True, named=NamedTwice(), reads_messages=False)
        self._session_id = SessionId(request.reference or "")

    @property
    def session_id(self) -> SessionId:
        """The session's id."""
        return self._session_id

    async def messages(self) -> tuple[Message, ...]:
        """Read the conversation so far."""
        return (await self._composition.stored.look_at(self._session_id)).messages

    async def pending(self) -> tuple[ApprovalRequest, ...]:
        """Read the approvals without an answer; one that was just sent from anywhere counts.

        Their `facts` are found out now, by the tools of this agent.
        """
        return await self._anew(
            (await self._composition.stored.look_at(self._session_id, whole=False)).pending
        )

    async def status(self) -> SessionStatus:
        """Read what the session is doing, by its log.

        `Busy` while a query has no recorded end, also when the process that ran it is gone.
        """
        return (await self._composition.stored.look_at(self._session_id, whole=False)).status

    async def view(self) -> SessionView:
        """Read what the session is at this moment, by its log."""
        return (await self._composition.stored.look_at(self._session_id)).view

    async def unfinished(self) -> Unfinished:
        """Read what has no recorded end: a query that runs elsewhere, too."""
        unfinished = (
            await self._composition.stored.look_at(self._session_id, whole=False)
        ).unfinished
        return replace(unfinished, approvals=await self._anew(unfinished.approvals))

    async def _anew(self, asked: tuple[ApprovalRequest, ...]) -> tuple[ApprovalRequest, ...]:
        return tuple([await self._composition.shown_anew(each) for each in asked])

    async def is_native(self) -> bool:
        """Read whether its model is run by an agent that keeps a session of its own."""
        fold = await self._composition.stored.read_fold(self._session_id, whole=False)
        return self._composition.clients.is_native(fold.settings.model)

    async def resume_kind(self) -> ResumeKind | None:
        """Read how the next query would get the conversation; None when there is none."""
        fold = await self._composition.stored.read_fold(self._session_id)
        return await self._composition.native_sessions.resume_kind(fold)

    async def count_tokens(self) -> TokenCount:
        """Count the tokens that the next request would hold, with the tools of this agent.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet.

        """
        fold = await self._composition.stored.read_fold(self._session_id)
        return await self._composition.count_tokens(fold, self._composition.registry, None)

    def events(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Read what happened after a `seq`, then what happens, until closed or deleted."""
        return self._composition.stored.follow(self._session_id, after=after)

    async def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Ask for the running query to be stopped; with an id, only if it is that one."""
        text, meant = writable_or_none(reason), QueryId(query_id) if query_id else None
        order = AbortQuery(id=new_command_id(), reason=text, query_id=meant)
        await self._carry_out(command_effects.abort, order)

    async def _carry_out(
        self, handler: "Callable[[HeldSession, OrderT], Awaitable[ValueT]]", order: OrderT
    ) -> ValueT:
        if not order.facts.waits:
            # No holder will ever read a command to a session that was deleted.
            await self._composition.stored.require(self._session_id)
            await self._composition.store.inbox.put(self._session_id, cast("Command", order))
            return cast("ValueT", None)

        async def here() -> ValueT:
            return await handler((await self._live()).held, order)

        def read(outcome: "CommandOutcome") -> ValueT:
            kind = get_type_hints(handler)["return"]
            result = outcome.ended.result or (None if kind is type(None) else {})
            return cast("ValueT", msgspec.convert(result, kind))

        return await self._answered(cast("AnsweredCommand", order), here, read)

    async def _compact(self, order: CompactSession, options: QueryOptions[Any]) -> Compaction:
        signal = options.signal
        # A command that is in the inbox cannot be taken back.
        if signal is not None and signal.aborted:
            raise aborted_before(signal)

        async def here() -> Compaction:
            return await compact_here(self._live, order, options)

        return await self._answered(order, here, _compaction_in, signal=signal)

    async def _live(self) -> "LiveSession":
        """Return the session that this process has opened for one command."""
        if (live := self._composition.held(self._session_id)) is None:
            raise SessionError(ErrorCode.CLOSED, "the session was closed meanwhile")
        return live

    async def _fork_point(self, after: str | None) -> Fork:
        await self._composition.stored.require(self._session_id)
        return await self._composition.stored.read_fork(self._session_id, after)

    async def _open_session(self, request: SessionRequest) -> AgentSession:
        return await AgentSession(self._composition, request).open()

    async def _answered(
        self,
        order: AnsweredCommand,
        here: Callable[[], Awaitable[ValueT]],
        read: "Callable[[CommandOutcome], ValueT]",
        *,
        signal: AbortSignal | None = None,
    ) -> ValueT:
        """Have a command carried out by the holder, or here if no process holds the session."""
        # A session that no process holds would leave the command in the inbox.
        session = await self._open_if_free()
        if session is not None:
            try:
                return await here()
            finally:
                await _leave(session)
        outcome = await self._composition.stored.ask_holder(
            self._session_id, order, self._open_when_silent, signal=signal
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
            return await self._open_session(self._request)
        except SessionError as error:
            if error.code is not ErrorCode.BUSY:
                raise
            return None


async def _leave(session: AgentSession) -> None:
    """Close a session that was opened for one command; a prompt that came meanwhile is answered."""
    try:
        # What the session was opened for has been done by now: its outcome must not become an
        # error.
        with suppress(AgentError):
            await session.wait_idle()
    finally:
        await session.close()


def _compaction_in(outcome: "CommandOutcome") -> Compaction:
    compaction_id = (outcome.ended.result or {}).get("compaction_id")
    if (compaction := outcome.compactions.get(str(compaction_id))) is None:
        raise SessionError(ErrorCode.NOT_FOUND, f"the log has no compaction {compaction_id!r}")
    return compaction
