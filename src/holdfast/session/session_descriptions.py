"""Sessions described as values: the one to open, one as it is now, what is unfinished in it.

`import holdfast` loads this file, so it imports types only.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.ports.runner import QueryInput
from holdfast.serialization.session_state import SessionState
from holdfast.vocabulary.approvals import ApprovalRequest
from holdfast.vocabulary.entries import InputQueued
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import CallId, InputId, MessageId, QueryId, SessionId, new_query_id
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.settings import Delivery, Settings, Thinking

if TYPE_CHECKING:
    from holdfast.blocks.conversation.fold import SessionFold
    from holdfast.blocks.conversation.tool_calls import CallRecord

CallFate: TypeAlias = Literal["done", "not_started", "unknown"]


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session branches off from another."""

    parent: SessionId
    forked_at: int
    """The last `seq` of the parent that belongs to the branch."""
    forked_after: MessageId | None = None
    """The last message that does, where the parent itself had it from elsewhere."""
    parent_head: int
    """The last `seq` that the parent has by now."""
    settings: Settings
    native_parent: str | None = None
    """The parent's native session, where all of it belongs to the branch."""


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which session to open, and what it starts with if it is new."""

    reference: str | None = None
    """An id or a name; None makes a new session without a name."""
    owner: str = "local"
    project: str = ""
    settings: Settings = msgspec.field(default_factory=Settings)
    busy: Literal["wait", "reject"] = "reject"
    history: tuple[Message, ...] = ()
    must_exist: bool = False
    fork: Fork | None = None


class WaitingPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt in the queue."""

    input_id: InputId
    text: str
    delivery: Delivery


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is at one moment."""

    session_id: SessionId
    provider: str
    model: str
    thinking: Thinking | None
    messages: tuple[Message, ...]
    pending: tuple[WaitingPrompt, ...]
    steer_count: int
    queue_count: int


def view_of(session_id: SessionId, fold: "SessionFold") -> SessionView:
    """Look at a session without changing it."""
    provider, _, model = fold.settings.model.partition("/")
    waiting = tuple(
        WaitingPrompt(input_id=item.input_id, text=item.message.text, delivery=item.delivery)
        for item in fold.inputs.values()
    )
    steers = sum(item.delivery == "steer" for item in waiting)
    return SessionView(
        session_id=session_id,
        provider=provider,
        model=model,
        thinking=fold.settings.thinking,
        messages=fold.messages(),
        pending=waiting,
        steer_count=steers,
        queue_count=len(waiting) - steers,
    )


def state_of(fold: "SessionFold", *, exported_at: int) -> SessionState:
    """Return the committed conversation, ready to be restored elsewhere.

    It does not wait for a running query: abort first if its partial answer matters.
    """
    provider, _, model = fold.settings.model.partition("/")
    return SessionState(
        messages=fold.committed_messages(),
        provider=provider,
        model=model,
        thinking=fold.settings.thinking,
        system_prompt="\n\n".join(fold.settings.system_prompts) or None,
        exported_at=exported_at,
        native_session_id=fold.native.session_id,
    )


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
