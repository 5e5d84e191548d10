"""UnstoredSession: a session without a log, on a conversation that the calling program holds."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from haptera.kernel.agent_blocks import AgentBlocks
from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator, MakeApprovals
from haptera.kernel.blocks.control_channel import ControlChannelInterface
from haptera.kernel.session.session import QueryHandle, Session
from haptera.model.approvals import ApprovalRequest, Approve, Decision, Deny
from haptera.model.errors import ConfigError, ErrorCode, SessionError
from haptera.model.ids import (
    ApprovalId,
    SessionId,
    new_message_id,
    new_query_id,
    new_session_id,
)
from haptera.model.log.conversation import Conversation, ConversationInterface
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued
from haptera.model.log.session_fold import SessionFold
from haptera.model.messages import UserMessage
from haptera.model.operations.operation import CommandId
from haptera.model.operations.session import AbortQuery, ApproveCall, Command, DenyCall, SendPrompt
from haptera.model.prompts import prompt_parts
from haptera.model.settings import Settings
from haptera.ports.runner import QueryInput, QueryOutcome, SessionBindings
from haptera.ports.session_store import Lease
from haptera.ports.tools import Approver, OutputTransform
from haptera.system.abort import AbortSignal
from haptera.system.owned_tasks import until_done


class _NoLog:
    """Takes every entry and keeps none."""

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Keep nothing."""

    async def read(
        self, session_id: SessionId, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Return what was kept: nothing."""
        del session_id, after, limit
        return []


class UnstoredSession(Session):
    """Runs queries on a conversation that the calling program holds, in memory.

    Constructed once for a conversation and used for all of its queries. Owns the approvals that
    wait. Does not own the conversation or the channel, which it never closes, and writes nothing
    anywhere: the caller reads `conversation.messages`, or takes the entries from the channel.
    Between queries the caller may change the conversation.
    """

    def __init__(
        self,
        blocks: AgentBlocks,
        *,
        settings: Settings,
        conversation: ConversationInterface | None = None,
        channel: ControlChannelInterface | None = None,
        approvals: MakeApprovals = ApprovalCoordinator,
        approver: Approver | None = None,
        check_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.conversation = Conversation() if conversation is None else conversation
        fold = SessionFold(self.conversation)
        fold.settings = settings
        super().__init__(
            replace(
                blocks.host(SessionBindings(approver=approver or _wait_for_command)),
                approvals=approvals,
            ),
            fold,
            log=_NoLog(),
            lease=Lease(session_id=new_session_id(), holder="", epoch=0),
            bindings=SessionBindings(),
            channel=channel,
        )
        self.channel.receiver = self._receive
        self._check_open = check_open
        self._current: QueryHandle | None = None

    @property
    def settings(self) -> Settings:
        """What requests are built from. Set it at any time; the next turn reads it."""
        return self.fold.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self.fold.settings = settings

    async def run(
        self,
        prompt: str | UserMessage,
        *,
        reminders: tuple[str, ...] = (),
        transform: OutputTransform | None = None,
        signal: AbortSignal | None = None,
    ) -> QueryOutcome:
        """Answer a prompt through as many turns as it takes, and return how that ended.

        A query that fails or is aborted does not raise: its outcome says so, and `query.ended` is
        published. `reminders` are sent with the first request only and never stored; `transform`
        changes what tools return, in this query.

        Raises:
            SessionError: BUSY while another query runs on this conversation, CLOSED when the blocks
                are closed.
            ConfigError: CONFIG_INVALID when there is nothing in the prompt, or something that
                cannot be said.

        """
        self._check_open()
        if self._current is not None:
            raise SessionError(ErrorCode.BUSY, "a query is already running on this conversation")
        message = _as_message(prompt)
        query = QueryInput(
            query_id=message.query_id or new_query_id(),
            message=message,
            reminders=reminders,
            transform=transform,
        )
        handle = QueryHandle(
            query,
            session_id=self.session_id,
            waiting=tuple,
            buffer_size=self.host.runtime.buffer_size,
            clock=self.host.clock,
        )
        handle.stream.abandon()  # its events are those of the channel
        # Set before the first wait, so that a second call finds it.
        self._current = handle
        forget = signal.add_listener(lambda: handle.follow(signal)) if signal else _nothing
        try:
            driving = self.host.drive(self, handle)
            return await self._until_over(self.tasks.start(driving, name="haptera-driver"), handle)
        finally:
            forget()
            self._current = None

    async def _until_over(
        self, driving: "asyncio.Task[QueryOutcome]", handle: QueryHandle
    ) -> QueryOutcome:
        """Wait for the end of a query, also when the caller is cancelled: it is aborted then."""
        try:
            await asyncio.wait({driving})
        except asyncio.CancelledError:
            handle.abort("the caller was cancelled")
            await until_done(driving)
            raise
        return driving.result()

    def abort(self, reason: str | None = None) -> None:
        """Stop the query that runs, from any thread; what was streamed is kept."""
        if (current := self._current) is not None:
            current.abort(reason)

    def _receive(self, command: Command) -> None:
        """Carry out what a consumer asked for through the channel.

        Raises:
            SessionError: NOT_FOUND for a prompt while no query runs.
            ConfigError: CONFIG_INVALID for what only a session can be told.

        """
        match command:
            case AbortQuery(reason=reason, query_id=query_id):
                current = self._current
                if current is not None and query_id in {None, current.query.query_id}:
                    current.abort(reason)
            case ApproveCall(approval_id=key, arguments=arguments, scope=scope, by=by):
                approval = Approve(
                    arguments=arguments, scope=scope, by=by, feedback=command.feedback
                )
                self._settle(key, approval)
            case DenyCall(approval_id=key, reason=reason, by=by):
                self._settle(key, Deny(reason, by))
            case SendPrompt(input_id=input_id, message=message):
                self._steer(
                    InputQueued(
                        **self.stamp(), input_id=input_id, message=message, delivery="steer"
                    )
                )
            case _:
                told = f"a conversation without a session cannot be told to {command.alias!r}"
                raise ConfigError(ErrorCode.CONFIG_INVALID, told)

    def _settle(self, approval_id: ApprovalId, decision: Decision) -> None:
        # The receiver of a channel cannot wait.
        self.tasks.start(self.approvals.settle(approval_id, decision), name="haptera-answer")

    def _steer(self, queued: InputQueued) -> None:
        """Put a prompt into the query that runs: its next turn has it."""
        if self._current is None:
            raise SessionError(
                ErrorCode.NOT_FOUND, "no query is running that could receive the prompt"
            )
        self.recorder.stage([queued])


async def _wait_for_command(request: ApprovalRequest) -> Decision:
    """Leave the answer to a command: it settles the approval, and cancels this."""
    await asyncio.get_running_loop().create_future()
    return Deny(f"nothing answered {request.id}")


def _as_message(prompt: str | UserMessage) -> UserMessage:
    parts = prompt_parts(prompt)
    if not isinstance(prompt, UserMessage):
        return UserMessage(id=new_message_id(), parts=parts, query_id=new_query_id())
    return replace(prompt, parts=parts, query_id=prompt.query_id or new_query_id())


def _nothing() -> None:
    """Do nothing: there is no signal to forget."""
