"""What a query gives back."""

from decimal import Decimal
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias

import msgspec

from haptera.model.approvals import ApprovalRequest
from haptera.model.ids import MessageId, SessionId
from haptera.model.messages import Message
from haptera.model.parts import ToolCallPart
from haptera.model.usage import Usage, add_costs

if TYPE_CHECKING:  # without an `output_type` there is no output: the default says so to checkers
    from typing_extensions import TypeForm as TypeForm  # noqa: PLC0414 - strict checkers want the alias
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=None)
else:
    from typing import TypeVar

    TypeForm = type
    OutputT = TypeVar("OutputT")

StopReason: TypeAlias = Literal[
    "complete", "max_tokens", "aborted", "error", "approval", "limit", "loop", "refusal"
]
"""Why a query came to rest. It is data; failures raise."""
SessionPhase: TypeAlias = Literal["idle", "running", "waiting", "failed"]
"""What the log says of the last query: it ended, has no end yet, waits for an approval, failed."""
SessionOrder: TypeAlias = Literal["updated", "created", "oldest", "name"]
"""`updated`: the last updated first; `created`, `oldest`: the last or the first made first; `name`:
by name, those without one last."""

ResumeKind: TypeAlias = Literal["native", "replay"]
"""How an earlier conversation reached the model: an agent has it itself, or it was handed over."""


class AgentResult(msgspec.Struct, Generic[OutputT], frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one query."""

    text: str
    """The text of the last answer."""
    output: OutputT = None  # type: ignore[assignment]  # None where no type was asked for
    """The answer as the type that was asked for; None where there is none of that type."""
    messages: tuple[Message, ...] = ()
    """The whole conversation when the query ended: the messages themselves, not copies."""
    new_messages: tuple[Message, ...] = ()
    """What this query added to the conversation."""
    tool_calls: tuple[ToolCallPart, ...] = ()
    """Every call of the query, in order."""
    usage: Usage = Usage()
    """What the query's own turns used, without its sub-agents."""
    cost: Decimal | None = None
    """In US dollars, without sub-agents; None when a price is unknown."""
    children_usage: Usage = Usage()
    """What sub-agents used in this query, and theirs; it is recorded in their sessions only."""
    children_cost: Decimal | None = Decimal(0)
    """In US dollars; None when a price is unknown."""
    provider: str = ""
    model: str = ""
    suspended: bool = False
    """Whether the query has no end yet: its session was closed, and `resume()` carries it on."""
    session_id: SessionId | None = None
    message_id: MessageId | None = None
    """The last answer: where to fork after or rewind to."""
    stop_reason: StopReason = "complete"
    stop_detail: str | None = None
    """Which limit was reached, which tool call was repeated, or which one was denied; None for
    other stop reasons."""
    finish_reason: str | None = None
    """The provider's own word for why it stopped."""
    turns: int = 0
    duration_ms: int = 0
    pending: tuple[ApprovalRequest, ...] = ()
    """Approvals that wait for an answer."""
    resumed: bool = False
    """Whether this query went on with an earlier one, or a native agent with its own session."""
    native_session_id: str | None = None
    """The id of the session that a native agent keeps itself."""
    resume: ResumeKind | None = None
    """How the earlier conversation reached a native agent: it had it (`native`), or it was handed
    over (`replay`), as when a session changes between native agents and models. None otherwise."""

    @property
    def total_usage(self) -> Usage:
        """What the query and its sub-agents used, each counted once."""
        return self.usage + self.children_usage

    @property
    def total_cost(self) -> Decimal | None:
        """What the query and its sub-agents cost; None when a price is unknown."""
        return add_costs(self.cost, self.children_cost)
