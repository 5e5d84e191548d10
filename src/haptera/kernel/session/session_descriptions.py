"""Sessions described as values: the one to open, one as it is now, what is unfinished in it.

`import haptera` loads this file, so it imports types only.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from haptera.model.approvals import ApprovalRequest
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.events import Busy, Failed, Idle, SessionStatus
from haptera.model.ids import CallId, InputId, MessageId, QueryId, SessionId, new_query_id
from haptera.model.json_types import Json, JsonObject, plain_value
from haptera.model.log.queries import InputQueued, QueryEnded
from haptera.model.messages import (
    KeptOptions,
    Message,
    Sender,
    UserMessage,
    kept_options,
)
from haptera.model.operations.session import ApproveCall, Command, DenyCall, SendPrompt
from haptera.model.session_state import SessionState
from haptera.model.settings import Delivery, Settings, Thinking, changed_settings
from haptera.model.vendors import split_model
from haptera.ports.runner import QueryInput, SessionBindings
from haptera.system.clock import Stamp

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold
    from haptera.model.log.tools import CallRecord

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
    configured: tuple[str, ...] = ()
    """Names of settings that `configure` had set in the parent."""
    known: "list[SessionFold]" = msgspec.field(default_factory=list)
    """What the parent was there, where that is known without its log; taken by the opening."""


class NamedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that a program names, as JSON."""

    values: JsonObject = msgspec.field(default_factory=dict)
    implied: JsonObject = msgspec.field(default_factory=dict)
    """What comes with the model by its short name; counts only where the model is changed."""

    def over(self, settings: Settings, *, but: Collection[str] = ()) -> JsonObject:
        """Return the settings that are named, each as a whole: a table is laid over the old one."""
        values = {name: value for name, value in self.values.items() if name not in but}
        if not values:
            return {}
        # A short name for the model that the session has already must not reset settings that the
        # user changed since.
        if values.get("model", settings.model) != settings.model:
            implied = {name: value for name, value in self.implied.items() if name not in but}
            values = implied | values
        return {name: _laid_over(_plain(settings, name), item) for name, item in values.items()}

    def changes_to(self, settings: Settings, *, but: Collection[str] = ()) -> JsonObject:
        """Return those of them that are others than the settings have."""
        laid = self.over(settings, but=but)
        return {name: value for name, value in laid.items() if value != _plain(settings, name)}


def _plain(settings: Settings, name: str) -> Json:
    """Return one setting as JSON."""
    return plain_value(getattr(settings, name))


def _laid_over(below: Json, value: Json) -> Json:
    return below | value if isinstance(below, dict) and isinstance(value, dict) else value


class NamedTwice(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that a program names for a session, by where it names them."""

    by_agent: NamedSettings = NamedSettings()
    """What wins over what a session was opened with, but not over what `configure` set."""
    here: NamedSettings = NamedSettings()
    """What wins over everything that is stored."""


class SessionOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """What a new session comes from, and what it begins with by that."""

    history: tuple[Message, ...] = ()
    fork: Fork | None = None
    title: str | None = None
    spawned_by: SessionId | None = None
    """The session whose call it answers."""
    spawned_by_call: CallId | None = None


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which session to open, and what it starts with if it is new."""

    owner: str
    reference: str | None = None
    """An id or a name; None makes a new session without a name."""
    project: str = ""
    settings: Settings = msgspec.field(default_factory=Settings)
    is_for_one_query: bool = False
    """Whether it is closed after its first query; no title is made for it then."""
    named: NamedTwice = NamedTwice()
    bindings: SessionBindings = SessionBindings()
    busy: Literal["wait", "reject"] = "reject"
    must_exist: bool = False
    reads_messages: bool = True
    """Whether it is to have its messages; otherwise they are read when they are needed."""
    native_session_id: str | None = None
    """The native session that is adopted, unless it is the session's own already."""
    origin: SessionOrigin = SessionOrigin()
    """Of a new session."""


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
    head: int = 0
    """The `seq` of the last entry."""
    context_files: tuple[str, ...] = ()
    """The paths of the instruction files that the model is told."""
    skills: tuple[str, ...] = ()
    """The names of the skills that it can load."""
    native_session_id: str | None = None
    """The id of the session that a native agent keeps for this one; None without one."""


def view_of(session_id: SessionId, fold: "SessionFold") -> SessionView:
    """Look at a session without changing it."""
    provider, model = split_model(fold.settings.model)
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
        context_files=tuple(file.path for file in fold.context.files) if fold.context else (),
        skills=tuple(skill.name for skill in fold.context.skills) if fold.context else (),
        head=fold.head,
        native_session_id=fold.native.session_id,
    )


def state_of(fold: "SessionFold", *, exported_at: int) -> SessionState:
    """Return the committed conversation, ready to be restored elsewhere.

    It does not wait for a running query: abort first if its partial answer matters.
    """
    provider, model = split_model(fold.settings.model)
    return SessionState(
        messages=fold.committed_messages(),
        provider=provider,
        model=model,
        thinking=fold.settings.thinking,
        system_prompt="\n\n".join(fold.settings.system_prompts) or None,
        exported_at=exported_at,
        native_session_id=fold.native.session_id,
    )


class SessionGlimpse(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has of a session, as another process than its holder sees it."""

    messages: tuple[Message, ...]
    pending: tuple[ApprovalRequest, ...]
    """Approvals without an answer, also none that waits to be taken in."""
    status: SessionStatus
    view: SessionView
    unfinished: "Unfinished"


def glimpse_of(
    session_id: SessionId, fold: "SessionFold", commands: Sequence[Command]
) -> SessionGlimpse:
    """Look at a session by its log and by what waits to be taken in."""
    answered = {item.approval_id for item in commands if isinstance(item, ApproveCall | DenyCall)}
    pending = tuple(item for item in fold.pending_approvals() if item.id not in answered)
    prompts = sum(isinstance(item, SendPrompt) for item in commands)
    return SessionGlimpse(
        messages=fold.messages(),
        pending=pending,
        status=_status_of(fold, Idle(approvals=len(pending), waiting=len(fold.inputs) + prompts)),
        view=view_of(session_id, fold),
        unfinished=find_unfinished(fold),
    )


def _status_of(fold: "SessionFold", at_rest: Idle) -> SessionStatus:
    last = fold.last_query
    if fold.open_query is not None:
        return Busy()
    if last is None or last.error is None or last.stop_reason == "aborted":
        return at_rest
    return Failed(error=last.error)


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
    """Whether the query rests on approvals; otherwise it was cut off, or `rewound`."""
    rewound: bool = False
    """Whether the query had ended, and the conversation went back to a point before its end."""

    def __bool__(self) -> bool:
        """Whether anything waits to be carried on: a query, or prompts."""
        return self.query_id is not None or bool(self.inputs)


def find_unfinished(fold: "SessionFold") -> Unfinished:
    """Name what is unfinished, call by call."""
    partial = fold.open_turn.message() if fold.open_turn else None
    is_open = fold.open_query is not None
    return Unfinished(
        query_id=fold.unfinished_query(),
        # `unended` is about the whole log: a query that is open on this path alone has ended on
        # another.
        rewound=is_open and fold.unfinished_query() not in fold.unended,
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
    if call.outcome == "cancelled":  # while it ran, if it had begun
        return "not_started" if call.idempotent is None else "unknown"
    return "not_started" if call.ended is None or call.outcome == "interrupted" else "done"


def resume_input(fold: "SessionFold", waiting: Iterable[InputQueued]) -> QueryInput:
    """Return the input that carries an unfinished query on, or the next prompt of those that wait.

    Raises:
        SessionError: NOTHING_TO_SEND when every query has ended and nothing waits.

    """
    query_id = fold.unfinished_query()
    if query_id is not None:
        return QueryInput(
            # An id of its own: a query that rests has its end in the log already.
            query_id=new_query_id(),
            message=None,
            resumes=query_id,
            **_kept(fold.query_options, sender=_sender_of(fold, query_id)),
        )
    # Only the first: the others wait behind the query that it becomes.
    for queued in waiting:
        return replace(queued_input(queued), message=None, input_id=queued.input_id)
    raise SessionError(ErrorCode.NOTHING_TO_SEND, _why_nothing_is_left(fold.last_query))


def _why_nothing_is_left(last: QueryEnded | None) -> str:
    """Say why nothing can be resumed, and what to do after a query that did not complete."""
    told = "there is no unfinished query to resume, and no prompt waits"
    if last is None or last.stop_reason not in ("error", "aborted"):
        return told
    is_failure = last.error is not None and last.stop_reason == "error"
    how = f"ended with {last.error.code}" if last.error and is_failure else "was aborted"
    return (
        f"{told}: the last query {how}. To try it again without sending its prompt twice, first go "
        "back to the last message: session.rewind(to=session.messages[-1].id)"
    )


def has_approved_calls(fold: "SessionFold") -> bool:
    """Whether the unfinished query has calls that were approved and did not run yet."""
    approved = any(call.state == "approved" and call.may_run for call in fold.calls.values())
    return approved and fold.unfinished_query() is not None


def queued_input(queued: InputQueued) -> QueryInput:
    """Return the input of a prompt that waits in the log, with what the log kept of its options."""
    return QueryInput(
        query_id=queued.message.query_id or new_query_id(),
        message=queued.message,
        **_kept(queued.options, sender=queued.message.sender),
    )


def queued_entry(
    query: QueryInput, *, stamp: Stamp, input_id: InputId, delivery: Delivery
) -> InputQueued:
    """Return the entry of a prompt that waits, with what of its options a log can keep.

    Raises:
        SessionError: NOTHING_TO_SEND when the query has no prompt.

    """
    if query.message is None:
        raise SessionError(ErrorCode.NOTHING_TO_SEND, "only a prompt can wait in the queue")
    return InputQueued(
        **stamp(),
        input_id=input_id,
        message=query.message,
        delivery=delivery,
        sender=query.message.sender,
        options=kept_options(query, but=("sender",)),  # its message has it
    )


def _kept(options: KeptOptions, *, sender: Sender | None) -> dict[str, Any]:
    """Return what a log kept as fields of a query; settings that cannot be read are left out.

    The sender is that of the message, for logs whose options have none.
    """
    kept = {name: getattr(options, name) for name in KeptOptions.__struct_fields__}
    kept["sender"] = options.sender or sender
    try:
        changed_settings(Settings(), options.settings)
    except msgspec.ValidationError:  # another version wrote them, or another program
        kept["settings"] = {}
    return kept


def _sender_of(fold: "SessionFold", query_id: QueryId) -> Sender | None:
    """Return who sent the prompt of a query."""
    for message in fold.conversation.messages:
        if isinstance(message, UserMessage) and message.query_id == query_id:
            return message.sender
    return None
