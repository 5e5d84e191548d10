"""HeldConversation: the blocks joined around a conversation that the calling program holds."""

import asyncio
from collections.abc import Sequence

import msgspec

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator
from haptera.kernel.blocks.control_channel.channel import ControlChannel, ControlChannelInterface
from haptera.kernel.blocks.repetitions import LoopDetector, RepeatedErrors
from haptera.kernel.engine.agent_blocks import AgentBlocks
from haptera.kernel.engine.measurements import QueryMeasurement
from haptera.kernel.engine.query_end import closing_events, query_ended, query_outcome, until_over
from haptera.kernel.engine.query_scope import QueryScope, SessionScope
from haptera.kernel.engine.session_hooks import SessionHooks
from haptera.model.approvals import ApprovalRequest, Approve, Decision, Deny
from haptera.model.commands import (
    AbortQuery,
    ApproveCall,
    Command,
    CommandId,
    DenyCall,
    SendPrompt,
)
from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    RequestError,
    SessionError,
)
from haptera.model.events import Busy, Event, Idle, LiveEvent, SessionStatus, StatusChanged
from haptera.model.ids import (
    ApprovalId,
    QueryId,
    new_message_id,
    new_query_id,
    new_session_id,
)
from haptera.model.log.approvals import ApprovalRequested
from haptera.model.log.conversation import Conversation, ConversationInterface
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued
from haptera.model.log.session_fold import SessionFold
from haptera.model.messages import UserMessage
from haptera.model.prompts import prompt_parts
from haptera.model.settings import Settings
from haptera.ports.runner import QueryInput, QueryOutcome
from haptera.ports.telemetry import QueryBegun
from haptera.ports.tools import Approver, OutputTransform
from haptera.system.abort import AbortController, AbortSignal, query_stopped
from haptera.system.clock import Clock, Stamp
from haptera.system.owned_tasks import OwnedTasks, until_done


class HeldConversation:
    """Runs queries on a conversation that the calling program holds, in memory.

    Constructed once for a conversation and used for all of its queries. Owns the order of what
    happens, and the approvals that wait. Does not own the conversation or the channel, which it
    never closes, and writes nothing anywhere: the caller reads `conversation.messages`, or takes
    the entries from the channel. Between queries the caller may change the conversation.
    """

    def __init__(
        self,
        blocks: AgentBlocks,
        *,
        settings: Settings,
        clock: Clock,
        conversation: ConversationInterface | None = None,
        channel: ControlChannelInterface | None = None,
        approver: Approver | None = None,
    ) -> None:
        self.conversation = Conversation() if conversation is None else conversation
        self.channel = ControlChannel() if channel is None else channel
        self.channel.receiver = self._receive
        self._blocks = blocks
        self._clock = clock
        self._fold = SessionFold(self.conversation)
        self._fold.settings = settings
        self._tasks = OwnedTasks()
        self._running: _Running | None = None
        self.approvals = ApprovalCoordinator(
            unanswered=self._unanswered, commit=self._commit, clock=clock
        )
        session_id = new_session_id()
        self._session = SessionScope(
            session_id=session_id,
            fold=self._fold,
            waiting=lambda: self._fold.inputs,
            approvals=self.approvals,
            tasks=self._tasks,
            set_status=self._show_status,
            registry=blocks.tool_registry,
            approver=approver or _wait_for_command,
            hooks=SessionHooks(
                blocks.hooks,
                session_id=session_id,
                tasks=self._tasks,
                stamp=Stamp(clock),
                log=_HookLog(self),
            ),
        )

    @property
    def settings(self) -> Settings:
        """What requests are built from. Set it at any time; the next turn reads it."""
        return self._fold.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._fold.settings = settings

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
        self._blocks.check_open()
        if self._running is not None:
            raise SessionError(ErrorCode.BUSY, "a query is already running on this conversation")
        message = _as_message(prompt)
        query = QueryInput(
            query_id=message.query_id or new_query_id(),
            message=message,
            reminders=reminders,
            transform=transform,
        )
        # Set before the first wait, so that a second call finds it.
        self._running = running = _Running(query.query_id)
        scope = self._scope_of(query, running)
        forget = signal.add_listener(lambda: running.stop(signal.reason)) if signal else _nothing
        try:
            return await self._drive(scope, running)
        finally:
            forget()
            self._running = None

    def abort(self, reason: str | None = None) -> None:
        """Stop the query that runs, from any thread; what was streamed is kept."""
        if (running := self._running) is not None:
            running.stop(reason)

    def _scope_of(self, query: QueryInput, running: "_Running") -> QueryScope:
        begun = QueryBegun(
            session_id=self._session.session_id,
            query_id=query.query_id,
            model=self.settings.model,
            prompt=query.message,
        )
        scope = QueryScope(
            session=self._session,
            fold=self._fold,
            recorder=_QueryRecorder(self, running.abort.signal),
            abort=running.abort,
            input=query,
            stamp=Stamp(self._clock, query_id=query.query_id),
            started_at=self._clock.now(),
            measurement=QueryMeasurement(begun, clock=self._clock, telemetry=None),
            registry=self._blocks.tool_registry,
            loop=LoopDetector.of(self._fold.settings),
            errors=RepeatedErrors.of(self._fold.settings),
        )
        scope.begin_hooks()
        return scope

    async def _drive(self, scope: QueryScope, running: "_Running") -> QueryOutcome:
        """Let the query work in a task of its own, and record how it ended."""
        self._show_status(Busy())
        worker = self._tasks.start(self._answer(scope), name="haptera-query")
        running.begin(worker)
        # The query gets its end first, however often the caller is cancelled meanwhile; then the
        # cancellation is raised again.
        is_over = is_cancelled = False
        while not is_over:
            try:
                await until_over(worker, running.stopped, query_id=scope.query_id)
                is_over = True
            except asyncio.CancelledError:
                is_cancelled = True
                running.stop("the caller was cancelled")
        self.approvals.forget()
        outcome = query_outcome(worker, running.stop_error)
        duration_ms = max(1, int((self._clock.now() - scope.started_at) * 1000))
        ended = query_ended(scope, outcome, duration_ms=duration_ms)
        self.apply(
            [*closing_events(scope, outcome, rests=False), *scope.measurement.end(ended), ended]
        )
        if scope.hooks is not None:
            telling = self._tasks.start(scope.hooks.end(ended), name="haptera-query-end")
            is_cancelled |= await until_done(telling)
            telling.result()
        self._show_status(Idle())
        if is_cancelled:
            raise asyncio.CancelledError
        return outcome

    async def _answer(self, scope: QueryScope) -> QueryOutcome:
        runner = self._blocks.query_runner
        await runner.start(scope)
        if scope.hooks is None:
            return await runner.run(scope)
        return await scope.hooks.run(lambda: runner.run(scope))

    def apply(self, events: Sequence[Event]) -> None:
        """Let events happen: fold the entries among them, then publish all of them."""
        shown: list[Event] = []
        for event in events:
            if isinstance(event, Entry):
                entry = msgspec.structs.replace(event, seq=self._fold.head + 1)
                if entry.is_public:
                    shown.append(self._fold.compose(entry))
                self._fold.apply(entry)
            else:
                shown.append(event)
        self.channel.publish(shown)
        self.approvals.wake(shown)

    async def _commit(self, events: Sequence[Event], *, consumed: Sequence[CommandId] = ()) -> None:
        del consumed  # commands come through the channel here, and there is no inbox
        self.apply(events)

    def _unanswered(self) -> dict[ApprovalId, ApprovalRequested]:
        return self._fold.approvals

    def _show_status(self, status: SessionStatus) -> None:
        self.channel.publish([StatusChanged(status=status)])

    def _receive(self, command: Command) -> None:
        """Carry out what a consumer asked for through the channel.

        Raises:
            SessionError: NOT_FOUND for a prompt while no query runs.
            ConfigError: CONFIG_INVALID for what only a session can be told.

        """
        match command:
            case AbortQuery(reason=reason, query_id=query_id):
                running = self._running
                if running is not None and query_id in {None, running.query_id}:
                    running.stop(reason)
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
                        **Stamp(self._clock)(),
                        input_id=input_id,
                        message=message,
                        delivery="steer",
                    )
                )
            case _:
                told = f"a conversation without a session cannot be told to {command.alias!r}"
                raise ConfigError(ErrorCode.CONFIG_INVALID, told)

    def _settle(self, approval_id: ApprovalId, decision: Decision) -> None:
        # The receiver of a channel cannot wait.
        self._tasks.start(self.approvals.settle(approval_id, decision), name="haptera-answer")

    def _steer(self, queued: InputQueued) -> None:
        """Put a prompt into the query that runs: its next turn has it."""
        if self._running is None:
            raise SessionError(
                ErrorCode.NOT_FOUND, "no query is running that could receive the prompt"
            )
        self.apply([queued])


class _Running:
    """The query that runs, as far as it can be stopped."""

    def __init__(self, query_id: QueryId) -> None:
        self.query_id = query_id
        self._loop = asyncio.get_running_loop()
        self._worker: asyncio.Task[QueryOutcome] | None = None
        self.abort = AbortController()
        self.stopped: asyncio.Future[None] = self._loop.create_future()
        self.stop_error: AgentError | None = None

    def begin(self, worker: "asyncio.Task[QueryOutcome]") -> None:
        """Note what works for it; a stop that came before takes effect at once."""
        self._worker = worker
        if self.stop_error is not None:
            worker.cancel()

    def stop(self, reason: str | None) -> None:
        """Stop it, from any thread; the first reason stands."""
        if self.stop_error is None:
            message = f"aborted: {reason}" if reason else "aborted"
            self.stop_error = RequestError(ErrorCode.ABORTED, message)
            # In this thread and at once: from now on the recorder refuses, whatever the loop is
            # doing.
            self.abort.abort(message)
            # Tasks and futures may only be touched by the thread of the loop.
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self.stopped.done():
            self.stopped.set_result(None)
        if self._worker is not None:
            self._worker.cancel()


class _HookLog:
    """Where hooks say something between queries."""

    def __init__(self, held: HeldConversation) -> None:
        self._held = held

    async def commit(self, events: Sequence[Event]) -> None:
        """Fold and publish events."""
        self._held.apply(events)

    def show(self, events: Sequence[LiveEvent]) -> None:
        """Publish live-only events."""
        self._held.channel.publish(events)


class _QueryRecorder:
    """The recorder of one query: nothing comes through once the query was stopped."""

    def __init__(self, held: HeldConversation, signal: AbortSignal) -> None:
        self._held = held
        self._signal = signal

    async def record(self, events: Sequence[Event]) -> None:
        """Fold and publish `events`, then wait until no handler is too far behind."""
        if self._signal.aborted:
            raise query_stopped()
        self._held.apply(events)
        if not self._held.channel.has_space:
            await self._held.channel.wait_for_space()

    def stage(self, events: Sequence[Event]) -> None:
        """Fold and publish `events` at once: nothing is stored here, so nothing waits."""
        if self._signal.aborted:
            raise query_stopped()
        self._held.apply(events)

    def show(self, events: Sequence[LiveEvent]) -> None:
        """Publish live-only events, unless the query was stopped."""
        if not self._signal.aborted:
            self._held.channel.publish(events)


async def _wait_for_command(request: ApprovalRequest) -> Decision:
    """Leave the answer to a command: it settles the approval, and cancels this."""
    await asyncio.get_running_loop().create_future()
    return Deny(f"nothing answered {request.id}")


def _as_message(prompt: str | UserMessage) -> UserMessage:
    parts = prompt_parts(prompt)
    if not isinstance(prompt, UserMessage):
        return UserMessage(id=new_message_id(), parts=parts, query_id=new_query_id())
    return msgspec.structs.replace(prompt, parts=parts, query_id=prompt.query_id or new_query_id())


def _nothing() -> None:
    """Do nothing: there is no signal to forget."""
