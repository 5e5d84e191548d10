"""Approvals: the question put to a person before a tool runs, and the answers."""

from typing import Literal, TypeAlias, TypeVar

import msgspec

from haptera.model.ids import DEFAULT_OWNER, ApprovalId, CallId, QueryId, SessionId
from haptera.model.json_types import Json, is_too_deep, python_words
from haptera.model.tools import Effect

ApprovalScope: TypeAlias = Literal["once", "query", "session", "project"]
"""How long an approval holds: for this call, or whenever exactly the same call is made again."""
RuleAction: TypeAlias = Literal["allow", "ask", "deny"]


class CallFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool call would really do, as far as its tool can say before it runs."""

    root: str | None = None
    """The folder that the tool is kept to, as an absolute path."""
    path: str | None = None
    """Where the path in the arguments leads beneath the root, links followed."""
    argv: tuple[str, ...] | None = None
    """The program and its words that would be started."""
    folder: str | None = None
    """Where it would be started, beneath the root."""
    difference: str | None = None
    """What would change in the file, as a diff."""
    is_confined: bool | None = None
    """Whether a sandbox that is enough would be around the command; None where none is run."""


NO_FACTS = CallFacts()


class Ruling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a call may run, must be asked about, or is refused; and who says so, and why."""

    action: RuleAction
    reason: str
    rule: str | None = None
    """The permission rule that decided."""
    source: str | None = None
    """Where that rule comes from, or who approved."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An approval that holds for longer than one call, bound to exactly what was approved."""

    key: str
    """What was approved: the digest of the tool as it was, its arguments and the folder."""
    scope: ApprovalScope = "once"
    query_id: QueryId | None = None
    session_id: SessionId | None = None
    """None: the session in whose log it is."""
    folder: str = ""
    owner: str = DEFAULT_OWNER
    """Whose sessions it holds for."""
    by: str | None = None


class ChildApproval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose call it is that a session asks about on behalf of a sub-agent."""

    session_id: SessionId
    """The sub-agent's session."""
    approval_id: ApprovalId
    """The same question in that session."""
    call_id: CallId
    """The call of the sub-agent, in the session that asks."""


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call that waits for a decision."""

    id: ApprovalId
    call_id: CallId
    tool: str
    arguments: Json
    arguments_hash: str
    session_id: SessionId | None = None
    tool_digest: str | None = None
    """What the tool is: the digest of its description, its schema and its effect."""
    asked_by: Literal["model", "tool"] = "model"
    """Whose words the arguments are: the model's, which made the call, or those of a tool or server
    that asks something while its call runs."""
    effect: Effect = "external"
    """What the tool says of itself: `read`, `write` or `external`."""
    reason: str | None = None
    """Why it is asked, where it is not the tool's own rule (a loop, for example)."""
    folder: str | None = None
    """The folder in which the call would be made; an answer holds there and nowhere else."""
    facts: CallFacts = NO_FACTS
    """What the call would really do: the resolved path and the diff, or the program and its words.
    """
    ruling: Ruling | None = None
    """Which rule asks, and why."""
    child: ChildApproval | None = None
    """The sub-agent whose call it is; None for a call of the session itself."""


class Approve(msgspec.Struct, frozen=True):
    """Run it, with other arguments if given."""

    arguments: Json | None = None
    scope: ApprovalScope = "once"
    by: str | None = None
    """Who decided, for the log."""
    feedback: str | None = None
    """A note to the model, which gets it with the result."""


class Deny(msgspec.Struct, frozen=True):
    """Do not run it; the model is told why."""

    reason: str | None = None
    by: str | None = None


Decision: TypeAlias = Approve | Deny


DecisionT = TypeVar("DecisionT", bound=Approve | Deny)


def check_decision(decision: DecisionT) -> DecisionT:
    """Return a decision that a program made by hand, with every field of the type it declares.

    Raises:
        ValueError: saying what is not.

    """
    kind = type(decision)
    try:
        plain = msgspec.to_builtins(decision)
        msgspec.json.encode(plain)  # what cannot be written down cannot be decided
        checked = msgspec.convert(plain, kind)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"{kind.__name__} is not valid: {python_words(str(error))}") from error
    arguments = checked.arguments if isinstance(checked, Approve) else None
    if is_too_deep(arguments):
        raise ValueError("Approve is not valid: the arguments are nested too deeply")
    if arguments is not None and type(arguments) is not dict:
        raise ValueError("Approve is not valid: the arguments of a call must be a dict")
    return checked
