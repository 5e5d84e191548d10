"""What came of a query so far: what it used, what repeats in it, what a native agent has of it."""

import asyncio
from decimal import Decimal

import msgspec

from haptera.kernel.blocks.repetitions import LoopDetector, RepeatedErrors
from haptera.model.ids import QueryId
from haptera.model.log.native import NativeSessionState
from haptera.model.messages import Message, UserMessage
from haptera.model.results import ResumeKind
from haptera.model.settings import Limits
from haptera.model.usage import Usage, add_costs


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


class QueryProgress(msgspec.Struct, kw_only=True, eq=False):
    """What came of a query so far."""

    turns: int = 0
    """How many turns were answered."""
    tool_calls: int = 0
    tool_reports: int = 0
    """How often tools reported progress."""
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: Decimal | None = Decimal(0)
    children: QueryChildren = msgspec.field(default_factory=QueryChildren)
    files: WorkspaceState = msgspec.field(default_factory=WorkspaceState)
    finish_reason: str | None = None
    output: object = None
    joined: set[QueryId | None] = msgspec.field(default_factory=set)
    """The ids under which prompts came that joined the query."""

    def add_usage(self, usage: Usage, cost: Decimal | None) -> None:
        """Count what a turn used."""
        self.usage += usage
        self.cost = add_costs(self.cost, cost)

    def limit_reached(self, limits: Limits, *, seconds: float) -> str | None:
        """Return the limit that allows one more turn and no other after it, as `turns=50`."""
        cost = float(self.cost or 0) + float(self.children.cost or 0)
        used: dict[str, float] = {
            # Counts the turn that is about to begin.
            "turns": self.turns + 1,
            "tokens": self.usage.total + self.children.usage.total,
            "cost": cost,
            "seconds": seconds,
            "tool_calls": self.tool_calls,
        }
        for name, amount in used.items():
            limit: float | None = getattr(limits, name)
            if limit is not None and amount >= limit:
                return f"{name}={limit:g}"
        return None


class QueryChecks(msgspec.Struct, kw_only=True, eq=False):
    """What repeats or fails in a query, and what its model and its caller are told of that."""

    loop: LoopDetector
    errors: RepeatedErrors
    notes: list[str] = msgspec.field(default_factory=list)
    """What the model is told with the next request that is answered, and with no other."""
    repeated_call: str | None = None
    """The tool call for which the query ends as a loop, for people."""
    denied_call: str | None = None
    """The last tool call that was denied, for people."""
    trouble: str | None = None
    """Why a call of a model or a tool is being repeated or made elsewhere, for the error of a query
    whose time is up; None while nothing has failed."""


class NativeShare(msgspec.Struct, kw_only=True, eq=False):
    """What a native agent has of the conversation, as far as a query needs it."""

    is_remembered: bool = False
    """Whether the rest is known: it is noted where the session has, or had, a native agent."""
    prompt: UserMessage | None = None
    """What the agent is asked, also where it was taken from the queue."""
    before: tuple[Message, ...] = ()
    """The conversation before the prompt."""
    state: NativeSessionState = NativeSessionState()
    """What the agent had of it."""
    resume: ResumeKind | None = None
    """How the earlier conversation reached the agent, where that has to be said."""
    resumed: bool = False
    """Whether the agent took up its own session again for this query."""
