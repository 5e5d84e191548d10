"""Scopes: what one query knows of its session, of itself and of its turn."""

import asyncio
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinatorInterface
from haptera.kernel.blocks.repetitions import LoopDetector, RepeatedErrors
from haptera.kernel.blocks.stream_processor.processor import AnswerInterface
from haptera.kernel.blocks.tool_registry.registry import (
    ToolRegistry,
    ToolRegistryInterface,
    ToolSet,
    ready_tools,
)
from haptera.kernel.engine.measurements import QueryMeasurement, TurnMeasurement
from haptera.kernel.engine.query_hooks import HookedQuery, QueryHooks
from haptera.kernel.engine.session_hooks import SessionHooks
from haptera.kernel.engine.token_meter import TokenMeter
from haptera.model.events import SessionStatus
from haptera.model.ids import (
    InputId,
    MessageId,
    QueryId,
    SessionId,
    new_input_id,
    new_message_id,
)
from haptera.model.log.native import NativeSessionState
from haptera.model.log.queries import InputPromoted, InputQueued
from haptera.model.log.session_fold import SessionFold
from haptera.model.messages import AssistantMessage, Message, Sender, UserMessage
from haptera.model.parts import TextPart
from haptera.model.results import ResumeKind
from haptera.model.settings import Settings, bounded_settings, changed_settings
from haptera.model.usage import Usage, add_costs
from haptera.ports.model_client import ModelClient
from haptera.ports.runner import QueryInput, Recorder
from haptera.ports.telemetry import Telemetry
from haptera.ports.tools import Approver, ToolCaller, ToolSession, Unanswered
from haptera.system.abort import AbortController
from haptera.system.clock import Stamp
from haptera.system.owned_tasks import OwnedTasks

if TYPE_CHECKING:
    from haptera.kernel.engine.native_link import NativeLive


class NativeSlot:
    """Keeps the open native session of a session, and closes it with the session."""

    def __init__(self) -> None:
        self.live: NativeLive | None = None
        self.closed = False

    async def clear(self) -> None:
        """Close what is open."""
        # Taken out before the wait, so that no query can use what is being closed.
        live, self.live = self.live, None
        if live is not None:
            live.link.end()
            await live.driver.close(within=0)

    async def close(self) -> None:
        """Close what is open; nothing is opened any more."""
        self.closed = True
        await self.clear()


class SessionScope(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the engine needs of a session."""

    session_id: SessionId
    fold: SessionFold
    """The session as it is now."""
    waiting: Callable[[], Mapping[InputId, InputQueued]]
    """The prompts that wait, without those that are about to leave the queue."""
    approvals: ApprovalCoordinatorInterface
    tasks: OwnedTasks
    set_status: Callable[[SessionStatus], None]
    registry: ToolRegistryInterface
    """What is offered in queries that bring no tools of their own."""
    approver: Approver | None = None
    unanswered: Unanswered = "stop"
    native: NativeSlot = msgspec.field(default_factory=NativeSlot)
    """The session that a native agent keeps open for it."""
    meter: TokenMeter = msgspec.field(default_factory=TokenMeter)
    """How many tokens its next request holds."""
    deps: object = None
    """For tools that ask for it."""
    face: ToolSession | None = None
    """The session as tools see it."""
    cwd: Path = Path()
    telemetry: Telemetry | None = None
    hooks: SessionHooks | None = None
    ceiling: Settings = Settings()
    """What no setting of the session or a query can exceed; see `bounded_settings`."""

    def bounded(self, settings: Settings) -> Settings:
        """Return settings within the ceiling."""
        return bounded_settings(settings, self.ceiling)


class ModelPlan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Which model to ask, with which settings, and for which time."""

    client: ModelClient
    model: str
    """Its name without the provider."""
    settings: Settings
    attempt: int = 1


class Turn(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One request to a model, and the answer to it as far as it came."""

    provider: str
    model: str
    """Its name without the provider."""
    stamp: Stamp
    message_id: MessageId
    """The answer's."""
    answer: AnswerInterface
    measurement: TurnMeasurement


class WorkspaceState(msgspec.Struct, kw_only=True, eq=False):
    """What is known of the files while the tools of a turn run."""

    is_taken: bool = False
    """Whether the log has a snapshot before the first tool that can change them, or its error."""
    error: str | None = None
    """Why none can be taken in this query; None as long as none has failed."""
    one_takes: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class QueryChildren(msgspec.Struct, kw_only=True, eq=False):
    """The sub-agents of one query: what they used, and how many run."""

    usage: Usage = msgspec.field(default_factory=Usage)
    cost: Decimal | None = Decimal(0)
    slots: asyncio.Semaphore | None = None
    """Bounds how many run at the same time; None before the first one."""

    def add(self, usage: Usage, cost: Decimal | None) -> None:
        """Count what a sub-agent used."""
        self.usage += usage
        self.cost = add_costs(self.cost, cost)


class QueryScope(msgspec.Struct, kw_only=True, eq=False):
    """The state of one query while it runs; the engine has no other."""

    session: SessionScope
    fold: SessionFold
    """The session as it is now."""
    recorder: Recorder
    """Where everything that happens goes, for as long as the query is not stopped."""
    input: QueryInput
    stamp: Stamp
    started_at: float
    measurement: QueryMeasurement
    abort: AbortController = msgspec.field(default_factory=AbortController)
    files: WorkspaceState = msgspec.field(default_factory=WorkspaceState)
    hooks: QueryHooks | None = None
    """None when no hook is registered: nothing is asked or told then."""
    loop: LoopDetector = msgspec.field(default_factory=lambda: LoopDetector(None))
    errors: RepeatedErrors = msgspec.field(default_factory=RepeatedErrors)
    notes: list[str] = msgspec.field(default_factory=list)
    """What the model is told with the next request that is answered, and with no other."""
    tool_reports: int = 0
    """How often tools reported progress."""
    repeated_call: str | None = None
    """The tool call for which the query ends as a loop, for people."""
    denied_call: str | None = None
    """The last tool call that was denied, for people."""
    registry: ToolRegistryInterface = msgspec.field(default_factory=ToolRegistry)
    """What is offered in the query."""
    tools: ToolSet = ToolSet()
    """What is offered in the turn."""
    prompt: UserMessage | None = None
    """The prompt as the fold will have it."""
    trouble: str | None = None
    """Why a call of a model or a tool is being repeated or made elsewhere, for the error of a query
    whose time is up; None while nothing has failed."""
    turn: Turn | None = None
    """The turn that runs, or ran last; None before the first one."""
    is_end_staged: bool = False
    """Whether the end of that turn waits to be recorded with the end of the query."""
    turns: int = 0
    """How many turns were answered."""
    tool_calls: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: Decimal | None = Decimal(0)
    children: QueryChildren = msgspec.field(default_factory=QueryChildren)
    finish_reason: str | None = None
    output: object = None
    native_prompt: UserMessage | None = None
    """What a native agent is asked, also where it was taken from the queue."""
    before: tuple[Message, ...] = ()
    """The conversation before the prompt."""
    native_before: NativeSessionState = NativeSessionState()
    """What a native agent had of it."""
    resume: ResumeKind | None = None
    """How the earlier conversation reached the agent, where that has to be said."""
    resumed: bool = False
    """Whether a native agent took up its own session again for this query."""
    joined: set[QueryId | None] = msgspec.field(default_factory=set)
    """The ids under which prompts came that joined this query."""

    @property
    def settings(self) -> Settings:
        """The settings in force: the session's as they are now, under those of this query.

        They are within the ceiling, wherever they came from.
        """
        return self.session.bounded(changed_settings(self.fold.settings, self.input.settings))

    @property
    def caller(self) -> ToolCaller:
        """For whom tools are called."""
        session, deps = self.session, self.input.deps
        return ToolCaller(
            query_id=self.query_id,
            sender=self.input.sender,
            deps=session.deps if deps is None else deps,
            session=session.face,
            cwd=session.cwd,
            approver=session.approver,
        )

    async def ready_tools(self) -> None:
        """Take what is offered now, once the sources that run something have started it."""
        self.tools = await ready_tools(self.registry, self.settings.allowed_tools)

    @property
    def query_id(self) -> QueryId:
        """The query's id."""
        return self.input.query_id

    @property
    def staged_prompt(self) -> UserMessage | None:
        """The prompt while it waits to be recorded with the first turn; the fold lacks it then."""
        started = self.fold.open_query
        is_recorded = started is not None and started.query_id == self.query_id
        return None if is_recorded else self.prompt

    @property
    def turn_stamp(self) -> Stamp:
        """The stamp of what belongs to the turn.

        A query that carries on with the tool calls of an earlier one has no turn of its own yet:
        the turn is that of the answer with the calls.
        """
        if self.turn is not None:
            return self.turn.stamp
        tip = self.fold.conversation.tip
        turn_id = tip.turn_id if isinstance(tip, AssistantMessage) else None
        return self.stamp if turn_id is None else self.stamp.of_turn(turn_id)

    def begin_hooks(self) -> None:
        """Ask and tell hooks from now on, if any is registered."""
        session = self.session.hooks
        if session is None or session.dispatch.is_empty:
            return
        query = HookedQuery(
            input=self.input,
            fold=self.fold,
            recorder=self.recorder,
            signal=self.abort.signal,
            stamp=lambda: self.turn_stamp,
            tasks=self.session.tasks,
            deps=self.caller.deps,
        )
        self.hooks = QueryHooks(session, query)

    def add_usage(self, usage: Usage, cost: Decimal | None) -> None:
        """Count what a turn used."""
        self.usage += usage
        self.cost = add_costs(self.cost, cost)


async def promote_steers(scope: QueryScope) -> list[InputQueued]:
    """Let everything that was said meanwhile into the conversation, and return it."""
    steers = [item for item in scope.session.waiting().values() if item.delivery == "steer"]
    if steers:
        scope.joined.update(item.message.query_id for item in steers)
        await scope.recorder.record(
            [InputPromoted(**scope.stamp(), input_id=item.input_id) for item in steers]
        )
    return steers


async def say(scope: QueryScope, text: str) -> UserMessage:
    """Put a message of the program's own into the conversation, and return it."""
    input_id = new_input_id()
    message = UserMessage(
        id=new_message_id(),
        parts=(TextPart(text=text),),
        query_id=scope.query_id,
        sender=Sender(kind="orchestrator"),
    )
    queued = InputQueued(**scope.stamp(), input_id=input_id, message=message, delivery="steer")
    promoted = InputPromoted(**scope.stamp(), input_id=input_id)
    # In one append: after a crash no message of the program's own waits in the queue.
    await scope.recorder.record([queued, promoted])
    return message
