"""CommandPump: carries out what other processes ask of a session that this one holds."""

from collections.abc import Awaitable, Callable

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
from holdfast.vocabulary.errors import SessionError, StoreError
from holdfast.vocabulary.ids import ApprovalId, SessionId


class SessionVerbs:
    """What a command can make a session do."""

    def __init__(
        self,
        *,
        abort: Callable[[str | None], None],
        decide: Callable[[ApprovalId, Decision], Awaitable[None]],
        prompt: Callable[[SendPrompt], Awaitable[None]],
    ) -> None:
        self.abort = abort
        self.decide = decide
        self.prompt = prompt


class CommandPump:
    """Takes commands from the inbox in order; each is consumed in the append that carries it out.

    Owns which commands were seen. A command that comes too late (an approval that was answered
    already) is consumed all the same.
    """

    def __init__(
        self,
        *,
        session_id: SessionId,
        inbox: Inbox,
        recorder: SessionRecorder,
        verbs: SessionVerbs,
    ) -> None:
        self._session_id = session_id
        self._inbox = inbox
        self._recorder = recorder
        self._verbs = verbs
        self._seen: set[CommandId] = set()

    async def pump(self) -> None:
        """Carry out commands until cancelled."""
        while True:
            await self.carry_out_pending()
            await self._inbox.wait(self._session_id, seen=self._seen)

    async def carry_out_pending(self) -> None:
        """Carry out what is in the inbox now."""
        for command in await self._inbox.pending(self._session_id):
            if command.id not in self._seen:
                self._seen.add(command.id)
                await self._carry_out(command)

    async def _carry_out(self, command: Command) -> None:
        self._recorder.consume(command.id)
        try:
            match command:
                case AbortQuery(reason=reason):
                    self._verbs.abort(reason)
                case SendPrompt():
                    await self._verbs.prompt(command)
                case ApproveCall(approval_id=approval_id, arguments=arguments, scope=scope):
                    decision = Approve(arguments=arguments, scope=scope, by=command.by)
                    await self._verbs.decide(approval_id, decision)
                case DenyCall(approval_id=approval_id, reason=reason):
                    await self._verbs.decide(approval_id, Deny(reason, by=command.by))
        except SessionError:
            pass  # it came too late; it is consumed below
        except StoreError:
            self._seen.discard(command.id)
            raise
        await self._recorder.commit(())
