"""CommandPump: carries out what other processes ask of a session that this one holds."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from holdfast.ports.clock import Clock
from holdfast.ports.session_store import Inbox
from holdfast.session.recorder import SessionRecorder
from holdfast.vocabulary.approvals import Approve, Decision, Deny
from holdfast.vocabulary.commands import (
    AbortQuery,
    ApproveCall,
    Command,
    CommandId,
    DenyCall,
    SendPrompt,
)
from holdfast.vocabulary.errors import ErrorCode, SessionError, StoreError
from holdfast.vocabulary.ids import ApprovalId, SessionId

_REST_SECONDS = 1.0
"""How long a store that failed is left alone."""


class Decide(Protocol):
    """Answers an approval."""

    async def __call__(
        self, approval_id: ApprovalId, decision: Decision, *, consumed: Sequence[CommandId]
    ) -> None:
        """Record the answer and consume the commands in one append."""
        ...


class SessionVerbs:
    """What a command can make a session do."""

    def __init__(
        self,
        *,
        abort: Callable[[str | None], None],
        decide: Decide,
        prompt: Callable[[SendPrompt], Awaitable[None]],
        recover: Callable[[], Awaitable[None]],
    ) -> None:
        self.abort = abort
        self.decide = decide
        self.prompt = prompt
        self.recover = recover


class CommandPump:
    """Takes commands from the inbox in order; each is consumed in the append that carries it out.

    Owns which commands were seen. A command that comes too late (an approval that was answered
    already) is consumed by an append of its own. One that meets a session which is closing stays
    in the inbox for the next holder. A store that fails is asked again later; a session that
    somebody else took over is left alone.
    """

    def __init__(
        self,
        *,
        session_id: SessionId,
        inbox: Inbox,
        recorder: SessionRecorder,
        verbs: SessionVerbs,
        clock: Clock,
    ) -> None:
        self._session_id = session_id
        self._inbox = inbox
        self._recorder = recorder
        self._verbs = verbs
        self._clock = clock
        self._seen: set[CommandId] = set()

    async def pump(self) -> None:
        """Carry out commands until cancelled."""
        while True:
            try:
                await self.carry_out_pending()
                await self._inbox.wait(self._session_id, seen=self._seen)
            except SessionError:
                return  # the session is closing: what is pending is for the next holder
            except StoreError as error:
                if error.code is ErrorCode.FENCED:
                    return
                await self._clock.sleep(_REST_SECONDS)

    async def carry_out_pending(self) -> None:
        """Carry out what is in the inbox now."""
        for command in await self._inbox.pending(self._session_id):
            if command.id not in self._seen:
                self._seen.add(command.id)
                await self._carry_out(command)

    async def _carry_out(self, command: Command) -> None:
        try:
            await self._verbs.recover()
            await self._do(command)
        except StoreError:
            # What may be repeated is; an abort would hit whatever runs by then.
            if not isinstance(command, AbortQuery):
                self._seen.discard(command.id)
            raise

    async def _do(self, command: Command) -> None:
        """Do what a command says; what comes of it and its consumption are one append.

        Raises:
            SessionError: CLOSED; the command stays for the next holder.

        """
        consumed = (command.id,)
        try:
            match command:
                case AbortQuery(reason=reason):
                    self._verbs.abort(reason)
                case SendPrompt():
                    await self._verbs.prompt(command)
                    return
                case ApproveCall(approval_id=approval_id, arguments=arguments, scope=scope):
                    decision = Approve(arguments=arguments, scope=scope, by=command.by)
                    await self._verbs.decide(approval_id, decision, consumed=consumed)
                    return
                case DenyCall(approval_id=approval_id, reason=reason):
                    denial = Deny(reason, by=command.by)
                    await self._verbs.decide(approval_id, denial, consumed=consumed)
                    return
        except SessionError as error:
            if error.code is ErrorCode.CLOSED:
                raise
            # It came too late (an approval that was answered), or is refused for good (BUSY).
        await self._recorder.commit((), consumed=consumed)
