"""Scopes: what one query knows of its session and of itself. All per-query state is in here."""

from collections.abc import Callable, Mapping
from decimal import Decimal

import msgspec

from holdfast.blocks.approval_coordinator import ApprovalCoordinator
from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.doom_loop import LoopDetector
from holdfast.blocks.stream_processor.assembly import Assembly
from holdfast.engine.owned_tasks import OwnedTasks
from holdfast.engine.query_input import QueryInput, Unanswered
from holdfast.ports.abort import AbortController, AbortSignal
from holdfast.ports.approver import Approver
from holdfast.ports.recorder import Recorder
from holdfast.ports.stamps import Stamp
from holdfast.vocabulary.entries import InputQueued
from holdfast.vocabulary.errors import AgentError, ErrorCode, RequestError
from holdfast.vocabulary.ids import InputId, MessageId, QueryId, SessionId
from holdfast.vocabulary.results import StopReason
from holdfast.vocabulary.status import SessionStatus
from holdfast.vocabulary.usage import Usage, add_costs


class SessionScope(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the engine needs of a session."""

    session_id: SessionId
    fold: Callable[[], SessionFold]
    waiting: Callable[[], Mapping[InputId, InputQueued]]
    """The prompts that wait, without those that are about to leave the queue."""
    approvals: ApprovalCoordinator
    tasks: OwnedTasks
    set_status: Callable[[SessionStatus], None]
    approver: Approver | None = None
    unanswered: Unanswered = "stop"


def refuse_stopped(stopped: AbortSignal) -> None:
    """Raise ABORTED once a query was stopped."""
    if stopped.aborted:
        raise RequestError(ErrorCode.ABORTED, "the query was stopped")


class QueryScope(msgspec.Struct, kw_only=True, eq=False):
    """The state of one query while it runs."""

    session: SessionScope
    recorder: Recorder
    """Where everything that happens goes, for as long as the query is not stopped."""
    input: QueryInput
    stamp: Stamp
    started_at: float
    abort: AbortController = msgspec.field(default_factory=AbortController)
    loop: LoopDetector = msgspec.field(default_factory=lambda: LoopDetector(None))
    assembly: Assembly | None = None
    turn_stamp: Stamp | None = None
    message_id: MessageId | None = None
    """The answer that is being written, or was last."""
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: Decimal | None = Decimal(0)
    provider: str = ""
    model: str = ""
    finish_reason: str | None = None
    output: object = None
    joined: set[QueryId | None] = msgspec.field(default_factory=set)
    """The ids under which prompts came that joined this query."""

    @property
    def query_id(self) -> QueryId:
        """The query's id."""
        return self.input.query_id

    @property
    def fold(self) -> SessionFold:
        """The session as it is now."""
        return self.session.fold()

    def add_usage(self, usage: Usage, cost: Decimal | None) -> None:
        """Count what a turn used."""
        self.usage += usage
        self.cost = add_costs(self.cost, cost)


class QueryOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How a query came to rest."""

    stop_reason: StopReason
    error: AgentError | None = None
