"""Entries about approvals: whether a call may run, the answer, and how long it holds."""

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from msgspec import to_builtins
from msgspec.structs import replace

from haptera.model.approvals import (
    NO_FACTS,
    ApprovalRequest,
    ApprovalScope,
    CallFacts,
    ChildApproval,
    Grant,
    Ruling,
)
from haptera.model.canonical import approval_key
from haptera.model.ids import ApprovalId, CallId, SessionId
from haptera.model.json_types import Json, JsonObject
from haptera.model.log.entry import Entry, ImportRule
from haptera.model.log.queries import QueryStarted
from haptera.model.parts import TextPart
from haptera.model.tools import Effect

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold

_CHILD_LEFT = (
    "This call was cancelled: it waited for an answer, and the conversation went on without one."
)

ApprovalDecision: TypeAlias = Literal["approved", "denied", "cancelled"]


class ApprovalRequested(Entry, frozen=True, kw_only=True, tag="approval.requested"):
    """A tool call waits for a decision."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule(
        "ended",
        (
            *("approval_id", "call_id", "tool", "arguments", "arguments_hash"),
            *("effect", "reason"),
        ),
    )
    is_checked: ClassVar[bool] = True
    approval_id: ApprovalId
    call_id: CallId
    tool: str
    arguments: Json
    arguments_hash: str
    tool_digest: str | None = None
    """What the tool was; None in logs of earlier versions."""
    effect: Effect = "external"
    reason: str | None = None
    folder: str | None = None
    facts: CallFacts = NO_FACTS
    ruling: Ruling | None = None
    child: ChildApproval | None = None

    def apply(self, fold: "SessionFold") -> None:
        """Let the question wait."""
        fold.approvals[self.approval_id] = self

    def request(self, session_id: SessionId | None) -> ApprovalRequest:
        """Return the question as approvers and callers see it."""
        return ApprovalRequest(
            id=self.approval_id,
            call_id=self.call_id,
            tool=self.tool,
            arguments=to_builtins(self.arguments),
            arguments_hash=self.arguments_hash,
            tool_digest=self.tool_digest,
            session_id=session_id,
            effect=self.effect,
            reason=self.reason,
            folder=self.folder,
            facts=self.facts,
            ruling=self.ruling,
            child=self.child,
        )


class ApprovalSettled(Entry, frozen=True, kw_only=True, tag="approval.settled"):
    """A decision was made; it is used once."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule(
        "kept", ("approval_id", "call_id", "decision", "arguments", "by", "reason", "feedback")
    )
    approval_id: ApprovalId
    call_id: CallId
    decision: ApprovalDecision
    arguments: Json | None = None
    """Arguments that replace the model's."""
    scope: ApprovalScope = "once"
    by: str | None = None
    reason: str | None = None
    feedback: str | None = None

    def apply(self, fold: "SessionFold") -> None:
        """Answer the question, for its call and for what the answer holds for beyond it."""
        requested = fold.approvals.pop(self.approval_id, None)
        if requested is not None and requested.child is not None:
            self._settle_child(requested.child, fold)
        elif requested is not None:
            fold.standing.settle(requested, self)
        if (call := fold.calls.get(self.call_id)) is not None:
            call.settle(requested, self)

    def _settle_child(self, asked: ChildApproval, fold: "SessionFold") -> None:
        """Keep an answer for the sub-agent that asked; without one, a call that rests is over."""
        if self.decision != "cancelled":
            fold.child_answers[asked.approval_id] = self
        elif fold.open_query is None and (call := fold.calls.get(asked.call_id)) is not None:
            call.end("cancelled", (TextPart(text=_CHILD_LEFT),), time=self.time)

    @property
    def is_fate(self) -> bool:
        """Whether the call was denied.

        A permission is for the moment in which it is given, and a question that was withdrawn says
        nothing.
        """
        return self.decision == "denied"


class StandingApprovals:
    """The approvals that hold for longer than one call, each for exactly what was approved."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []
        self.policy: JsonObject | None = None
        """The permission rules of the last query that recorded them."""

    def settle(self, requested: ApprovalRequested, settled: ApprovalSettled) -> None:
        """Take in an answer; one for this call only leaves nothing behind.

        Nor does one from a log that does not say for which folder or for which tool it was given.
        """
        if settled.decision != "approved" or settled.scope == "once":
            return
        if requested.folder is None or requested.tool_digest is None:
            return
        arguments = requested.arguments if settled.arguments is None else settled.arguments
        key = approval_key(
            requested.tool,
            arguments,
            requested.folder,
            tool_digest=requested.tool_digest,
            is_confined=requested.facts.is_confined is not False,
        )
        grant = Grant(
            key=key,
            scope=settled.scope,
            query_id=requested.query_id,
            folder=requested.folder,
            by=settled.by,
        )
        self.grants.append(grant)

    def start_query(self, entry: QueryStarted) -> None:
        """Note the rules that a query runs under; one that resumes another has its approvals."""
        self.policy = entry.policy or self.policy
        if entry.resumes is not None:
            of_query = [grant for grant in self.grants if grant.query_id == entry.resumes]
            self.grants += [
                replace(grant, query_id=entry.query_id)
                for grant in of_query
                if grant.scope == "query"
            ]

    def clear(self) -> None:
        """Forget them all."""
        self.grants.clear()
        self.policy = None
