"""Recovery: what an earlier process, or an earlier query, left unfinished."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.ports.runner import QueryInput
from holdfast.vocabulary.approvals import ApprovalRequest
from holdfast.vocabulary.entries import InputQueued
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import CallId, QueryId, new_query_id

if TYPE_CHECKING:
    from holdfast.blocks.conversation.answers import CallRecord
    from holdfast.blocks.conversation.fold import SessionFold

CallFate: TypeAlias = Literal["done", "not_started", "unknown"]


class UnfinishedCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a tool call of an unfinished query."""

    call_id: CallId
    tool: str
    fate: CallFate


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """What waits to be carried on."""

    query_id: QueryId | None = None
    """The query that never ended, or rests; None when everything is finished."""
    calls: tuple[UnfinishedCall, ...] = ()
    interrupted_text: str = ""
    """What an answer had come to when it was cut off."""
    approvals: tuple[ApprovalRequest, ...] = ()
    inputs: tuple[InputQueued, ...] = ()
    """Prompts that wait. Behind a query that rests they start when it is resumed, or when a new
    prompt is sent, which makes the approvals void."""
    resting: bool = False
    """Whether the query rests on approvals; otherwise it was cut off."""


def find_unfinished(fold: "SessionFold") -> Unfinished:
    """Name what is unfinished, call by call."""
    partial = fold.open_turn.message(interrupted=True) if fold.open_turn else None
    return Unfinished(
        query_id=fold.unfinished_query(),
        calls=tuple(
            UnfinishedCall(
                call_id=call.part.call_id,
                tool=call.part.name,
                fate=_fate_of(call),
            )
            for call in fold.calls.values()
        ),
        interrupted_text=partial.text if partial else "",
        approvals=fold.pending_approvals(),
        inputs=tuple(fold.inputs.values()),
        resting=fold.is_resting(),
    )


def _fate_of(call: "CallRecord") -> CallFate:
    if call.outcome == "unknown":
        return "unknown"
    return "not_started" if call.ended is None or call.outcome == "interrupted" else "done"


def resume_input(fold: "SessionFold", waiting: Iterable[InputQueued]) -> QueryInput:
    """Return the input that carries an unfinished query on, or the next prompt of those that wait.

    Raises:
        SessionError: NOTHING_TO_SEND when every query has ended and nothing waits.

    """
    query_id = fold.unfinished_query()
    if query_id is not None:
        return QueryInput(query_id=new_query_id(), message=None, resumes=query_id)
    for queued in waiting:
        own_id = queued.message.query_id or new_query_id()
        return QueryInput(query_id=own_id, message=None, input_id=queued.input_id)
    raise SessionError(ErrorCode.NOTHING_TO_SEND, "there is no unfinished query")
