"""SessionCommands: carries out what a session is told, by this process or by another one."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, assert_never

from haptera.kernel.blocks.tool_registry.registry import InvalidInput, ToolRegistryInterface
from haptera.kernel.session.answered_commands import AnsweredCommands
from haptera.kernel.session.prompt_queue import PromptQueue
from haptera.kernel.session.recorder import SessionRecorder
from haptera.model.approvals import Approve, Decision, Deny
from haptera.model.commands import (
    AbortQuery,
    AnsweredCommand,
    ApproveCall,
    ChangeSession,
    Command,
    CommandId,
    DenyCall,
    PlainCommand,
    SendPrompt,
)
from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError, ToolError
from haptera.model.ids import ApprovalId, MessageId, SessionId, new_query_id
from haptera.model.json_types import JsonObject
from haptera.model.log.approvals import ApprovalRequested
from haptera.model.log.queries import InputQueued, QueryStarted
from haptera.model.parts import Part, ToolCallPart
from haptera.ports.runner import QueryInput
from haptera.ports.session_store import Store
from haptera.system.clock import Clock

_REST_SECONDS = 1.0
"""How long a store that failed is left alone."""


class CommandedSession(Protocol):
    """What a command needs of the session that it is for."""

    session_id: SessionId

    @property
    def answered(self) -> AnsweredCommands:
        """What carries out the commands whose senders wait for their end."""
        ...

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Stop the running query; with an id, only if it is that one."""
        ...

    async def decide(
        self,
        approval_id: ApprovalId,
        decision: Decision,
        *,
        consumed: Sequence[CommandId] = (),
        refuses_misfit: bool = False,
    ) -> None:
        """Record an answer to an approval and consume the commands in one append."""
        ...

    async def change(self, changes: JsonObject, *, consumed: Sequence[CommandId] = ()) -> None:
        """Record a change of the session and consume the commands in one append."""
        ...


class SessionCommands:
    """Carries out commands: those of this process at once, those in the inbox in their order.

    Owns which commands of the inbox were seen; each is consumed in the append that carries it out.
    One that comes too late (an approval that was answered already) is consumed by an append of its
    own. One whose sender waits for it has its end in the log (`command.ended`). One that meets a
    session which is closing stays in the inbox for the next holder. A store that fails is asked
    again later; a session that another process took over is left alone.
    """

    def __init__(
        self,
        session: CommandedSession,
        *,
        queue: PromptQueue,
        store: Store,
        recorder: SessionRecorder,
        clock: Clock,
    ) -> None:
        self._session = session
        self._queue = queue
        self._inbox = store.inbox
        self._log = store.log
        self._recorder = recorder
        self._clock = clock
        self._seen: set[CommandId] = set()
        self._prompts: dict[MessageId, tuple[Part, ...]] | None = None
        """The prompts of the log by their id, once they were asked for."""
        self._one_admits = asyncio.Lock()

    async def carry_out(self, command: PlainCommand) -> None:
        """Carry out a command of this process.

        Raises:
            SessionError: CLOSED, BUSY for a prompt that is not to wait, NOT_FOUND for an approval
                that was answered already or never asked.
            ToolError: TOOL_INVALID_INPUT when a tool does not take changed arguments.

        """
        await self._do(command, consumed=())

    async def pump(self) -> None:
        """Carry out what comes into the inbox until cancelled."""
        session_id = self._session.session_id
        while True:
            try:
                await self._inbox.wait(session_id, seen=self._seen)
                await self.carry_out_pending()
            except SessionError:
                return  # the session is closing: what is pending is for the next holder
            except StoreError as error:
                if error.code is ErrorCode.FENCED:
                    return
                await self._clock.sleep(_REST_SECONDS)

    async def carry_out_pending(self, *, opening: bool = False) -> None:
        """Carry out what is in the inbox now; while the session is opened, prompts only wait."""
        pending = await self._inbox.pending(self._session.session_id)
        # What is consumed does not come again; a session may live for years.
        self._seen.intersection_update([command.id for command in pending])
        for command in pending:
            if command.id not in self._seen:
                # Also if it stays in the inbox: `wait` would return for it at once, every time.
                self._seen.add(command.id)
                await self._take(command, opening=opening)

    async def _take(self, command: Command, *, opening: bool) -> None:
        """Carry out a command of the inbox, and see that it is consumed.

        Raises:
            SessionError: CLOSED; the command stays for the next holder.

        """
        try:
            # Before the command: it must not meet a conversation that is being moved, nor a
            # recorder that a failed append has stopped.
            await self._queue.recover()
            if isinstance(command, AnsweredCommand):
                await self._answer(command, opening=opening)
                return
            try:
                await self._do(command, consumed=(command.id,), starts=not opening)
            except SessionError as error:
                if error.code is ErrorCode.CLOSED:
                    raise
                # It came too late (an approval that was answered), or is refused for good (BUSY).
                await self._recorder.commit((), consumed=(command.id,))
        except StoreError:
            # What may be repeated is; an abort would hit whatever runs by then.
            if not isinstance(command, AbortQuery):
                self._seen.discard(command.id)
            raise

    async def _answer(self, command: AnsweredCommand, *, opening: bool) -> None:
        """Carry out a command whose sender waits for its end, or record why not.

        Raises:
            SessionError: CLOSED; the command stays for the next holder.

        """
        answered = self._session.answered
        try:
            await answered.carry_out(command, opening=opening)
        except AgentError as error:
            if error.code is ErrorCode.CLOSED:
                raise
            await answered.refuse(command, error)

    async def _do(
        self, command: PlainCommand, *, consumed: Sequence[CommandId], starts: bool = True
    ) -> None:
        """Do what a command says; one append has what comes of it and consumes it."""
        match command:
            case AbortQuery(reason=reason, query_id=query_id):
                # Its effect cannot be in the append that consumes it: the driver of the query
                # records the end.
                self._session.abort(reason, query_id=query_id)
                if consumed:
                    await self._recorder.commit((), consumed=consumed)
            case SendPrompt(once=True):
                await self._admit_once(command, consumed=consumed, starts=starts)
            case SendPrompt():
                await self._admit(command, consumed=consumed, starts=starts)
            case ApproveCall(approval_id=approval_id, arguments=arguments, scope=scope):
                decision = Approve(
                    arguments=arguments, scope=scope, by=command.by, feedback=command.feedback
                )
                # A caller that is here can mend its arguments; one that is gone cannot.
                is_here = not consumed
                await self._session.decide(
                    approval_id, decision, consumed=consumed, refuses_misfit=is_here
                )
            case DenyCall(approval_id=approval_id, reason=reason):
                denial = Deny(reason, by=command.by)
                await self._session.decide(approval_id, denial, consumed=consumed)
            case ChangeSession(changes=changes):
                await self._session.change(changes, consumed=consumed)
            case _:
                assert_never(command)

    async def _admit(
        self, command: SendPrompt, *, consumed: Sequence[CommandId], starts: bool
    ) -> None:
        message = command.message
        query_id = message.query_id or new_query_id()
        query = QueryInput(query_id=query_id, message=message, sender=message.sender)
        await self._queue.admit(query, command.delivery, consumed=consumed, starts=starts)

    async def _admit_once(
        self, command: SendPrompt, *, consumed: Sequence[CommandId], starts: bool
    ) -> None:
        """Take in a prompt unless the log has it; its sender may have sent it before.

        Raises:
            StoreError: CONFLICT when the log has another message with its id, and its sender is in
                this process.

        """
        message = command.message
        # Two commands with one message would both find that the log does not have it yet.
        async with self._one_admits:
            if self._prompts is None:
                self._prompts = await self._prompts_in_log()
            known = self._prompts.get(message.id)
            if known is None:
                try:
                    await self._admit(command, consumed=consumed, starts=starts)
                except BaseException:
                    self._prompts = None  # whether it is in the log is to be seen there
                    raise
                self._prompts[message.id] = message.parts
            # Its sender cannot be told of a conflict, so the command has no effect.
            elif consumed:
                await self._recorder.commit((), consumed=consumed)
            elif known != message.parts:
                told = f"the session has another message with the id {message.id!r}"
                raise StoreError(ErrorCode.CONFLICT, told)

    async def _prompts_in_log(self) -> dict[MessageId, tuple[Part, ...]]:
        # All entries and not the current path: a prompt that was rewound has been sent, too. One
        # that waited is in `input.queued`, one that began at once in `query.started`.
        entries = await self._log.read(self._session.session_id)
        prompts = [
            entry.message for entry in entries if isinstance(entry, InputQueued | QueryStarted)
        ]
        return {message.id: message.parts for message in prompts if message is not None}


def refuse_misfit(
    tools: ToolRegistryInterface, asked: ApprovalRequested | None, decision: Decision
) -> None:
    """Refuse an approval with arguments that the tool would not take.

    Raises:
        ToolError: TOOL_INVALID_INPUT saying why; the approval goes on waiting.

    """
    if asked is None or not isinstance(decision, Approve) or decision.arguments is None:
        return
    if asked.child is not None:
        return  # the tool is the sub-agent's
    call = ToolCallPart(call_id=asked.call_id, name=asked.tool, arguments=decision.arguments)
    resolution = tools.current().resolve(call)
    if isinstance(resolution, InvalidInput):
        raise ToolError(
            ErrorCode.TOOL_INVALID_INPUT,
            f"{asked.tool} does not take these arguments: {resolution.message}",
        )
