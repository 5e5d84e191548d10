"""Approvals: the question put to a person before a tool runs, and the answers."""

from typing import Literal, TypeAlias, TypeVar

import msgspec

from holdfast.vocabulary.ids import ApprovalId, CallId, SessionId
from holdfast.vocabulary.json_types import Json, is_too_deep
from holdfast.vocabulary.tools import Effect

ApprovalScope: TypeAlias = Literal["once", "query", "session"]


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call that waits for a decision."""

    id: ApprovalId
    call_id: CallId
    tool: str
    arguments: Json
    arguments_hash: str
    session_id: SessionId | None = None
    effect: Effect = "external"
    """What the tool says of itself: `read`, `write` or `external`."""
    reason: str | None = None
    """Why it is asked, where it is not the tool's own rule (a loop, for example)."""


class Approve(msgspec.Struct, frozen=True):
    """Run it, with other arguments if given."""

    arguments: Json | None = None
    scope: ApprovalScope = "once"
    by: str | None = None
    """Who decided, for the log."""


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
        raise ValueError(f"{kind.__name__} is not valid: {error}") from error
    arguments = checked.arguments if isinstance(checked, Approve) else None
    if is_too_deep(arguments):
        raise ValueError("Approve is not valid: the arguments are nested too deeply")
    if arguments is not None and type(arguments) is not dict:
        raise ValueError("Approve is not valid: the arguments of a call are an object")
    return checked
