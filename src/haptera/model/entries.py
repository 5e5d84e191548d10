"""Entries: the durable records of a log. Everything else is derived from them."""

from decimal import Decimal
from typing import ClassVar, Literal, TypeAlias

import msgspec

from haptera.model.aliases import NamedEvent
from haptera.model.approvals import NO_FACTS, ApprovalScope, CallFacts, ChildApproval, Ruling
from haptera.model.errors import ErrorReport
from haptera.model.ids import (
    DEFAULT_OWNER,
    ApprovalId,
    CallId,
    EntryId,
    InputId,
    MessageId,
    PartId,
    QueryId,
    SessionId,
    TurnId,
)
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import NO_OPTIONS, KeptOptions, Message, Sender, UserMessage
from haptera.model.parts import Part, PartKind, ResultContent
from haptera.model.results import ResumeKind, StopReason
from haptera.model.settings import Delivery, Settings
from haptera.model.stream_parts import FinishKind
from haptera.model.tools import Effect
from haptera.model.usage import Usage

ChangeOrigin: TypeAlias = Literal["opening", "configure"]

FORMAT_VERSION = 1
"""The version of the log format that this code writes."""


class Entry(NamedEvent, frozen=True, kw_only=True):
    """What all entries share. `seq` is 0 until the entry has its place in a log."""

    id: EntryId
    time: int
    """Wall-clock milliseconds; for people, never for order."""
    seq: int = 0
    query_id: QueryId | None = None
    turn_id: TurnId | None = None
    raw: msgspec.Raw | None = None
    """The stored bytes, kept only when they hold more than this version understands."""
    survives_rewind: ClassVar[bool]
    """Whether an entry of this kind counts after a rewind to before it. Each kind says so."""


class SessionOpened(Entry, frozen=True, kw_only=True, tag="session.opened"):
    """A session begins, new or as a branch of another."""

    survives_rewind: ClassVar[bool] = True
    session_id: SessionId
    format: int = FORMAT_VERSION
    owner: str = DEFAULT_OWNER
    project: str = ""
    name: str | None = None
    title: str | None = None
    parent: SessionId | None = None
    forked_at: int | None = None
    """The last `seq` of the parent that belongs to this session, too."""
    forked_after: MessageId | None = None
    """The last message that belongs to it, where the parent itself had it from elsewhere."""
    parent_head: int | None = None
    """The parent's last `seq` at the fork: what it had recorded of calls by then counts here."""
    spawned_by: SessionId | None = None
    """The session whose tool call made this one. It shares nothing of its conversation."""
    spawned_by_call: CallId | None = None
    settings: Settings = Settings()
    configured: tuple[str, ...] = ()
    """Names of settings that `configure` had set in the session that this one was forked from."""
    native_session_id: str | None = None
    native_parent: str | None = None
    """The parent's native session, where all of it belongs to this session: it is copied."""
    history: tuple[Message, ...] = ()
    """The conversation that a restored session begins with."""


FOLDED = "folded"
"""The change of a session that says what it was without its messages, for those who look at it."""


class SessionChanged(Entry, frozen=True, kw_only=True, tag="session.changed"):
    """Something of the session changed; only what changed is named, and null clears."""

    survives_rewind: ClassVar[bool] = True
    changes: JsonObject
    origin: ChangeOrigin = "configure"
    """What changed it; a change at an opening ranks like what the session was opened with."""


class SessionImported(Entry, frozen=True, kw_only=True, tag="session.imported"):
    """What comes before was brought by a file: a conversation to read, nothing to carry on.

    On every path of the log its queries, calls, questions and waiting prompts have ended here.
    """

    survives_rewind: ClassVar[bool] = True


class InputQueued(Entry, frozen=True, kw_only=True, tag="input.queued"):
    """A prompt was taken in while the session was busy."""

    survives_rewind: ClassVar[bool] = True
    input_id: InputId
    message: UserMessage
    delivery: Delivery
    sender: Sender | None = None
    options: KeptOptions = NO_OPTIONS


class InputPromoted(Entry, frozen=True, kw_only=True, tag="input.promoted"):
    """A queued prompt entered the conversation."""

    survives_rewind: ClassVar[bool] = False
    input_id: InputId


class InputDrained(Entry, frozen=True, kw_only=True, tag="input.drained"):
    """A queued prompt was taken out without being sent."""

    survives_rewind: ClassVar[bool] = True
    input_id: InputId
    reason: str | None = None


class QueryStarted(Entry, frozen=True, kw_only=True, tag="query.started"):
    """A prompt is to be answered."""

    survives_rewind: ClassVar[bool] = False
    message: UserMessage | None = None
    """The prompt; None when an earlier query goes on."""
    resumes: QueryId | None = None
    options: KeptOptions = NO_OPTIONS
    policy: JsonObject | None = None
    """The permission mode and rules in force; None: those that an earlier query recorded."""


class QueryEnded(Entry, frozen=True, kw_only=True, tag="query.ended"):
    """A query came to rest."""

    survives_rewind: ClassVar[bool] = False
    stop_reason: StopReason
    finish_reason: str | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None
    turns: int = 0
    duration_ms: int = 0
    message_id: MessageId | None = None
    error: ErrorReport | None = None
    stop_detail: str | None = None
    """Which limit was reached, or which tool call was repeated."""
    native_session_id: str | None = None
    resume: ResumeKind | None = None


class TurnStarted(Entry, frozen=True, kw_only=True, tag="turn.started"):
    """A model is asked."""

    survives_rewind: ClassVar[bool] = False
    message_id: MessageId
    provider: str
    model: str
    attempt: int = 1


class TurnEnded(Entry, frozen=True, kw_only=True, tag="turn.ended"):
    """A model has answered, or was cut off."""

    survives_rewind: ClassVar[bool] = False
    message_id: MessageId
    finish: FinishKind | None = None
    """None when the answer was cut off."""
    finish_reason: str | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None
    context_window: int | None = None
    context_tokens: int | None = None
    """How much of the window is in use, where that is not the sum in `usage`; 0 if not known."""
    interrupted: bool = False


class TurnDiscarded(Entry, frozen=True, kw_only=True, tag="turn.discarded"):
    """What this turn showed is void; a consumer drops it."""

    survives_rewind: ClassVar[bool] = False
    message_id: MessageId
    reason: str
    error: ErrorReport | None = None


class PartStarted(Entry, frozen=True, kw_only=True, tag="part.started"):
    """A part of an answer begins."""

    survives_rewind: ClassVar[bool] = False
    part_id: PartId
    part_kind: PartKind
    call_id: CallId | None = None
    name: str | None = None


class PartCheckpoint(Entry, frozen=True, kw_only=True, tag="part.checkpoint"):
    """More of a part's text, as an increment from `offset` on (in characters)."""

    survives_rewind: ClassVar[bool] = False
    part_id: PartId
    offset: int
    text: str


class PartEnded(Entry, frozen=True, kw_only=True, tag="part.ended"):
    """A part is complete.

    In a log, `part` holds only what comes after `offset`, so that text is stored once. As an event
    it holds the whole part and `offset` is 0.
    """

    survives_rewind: ClassVar[bool] = False
    part_id: PartId
    part: Part
    offset: int = 0


class ApprovalRequested(Entry, frozen=True, kw_only=True, tag="approval.requested"):
    """A tool call waits for a decision."""

    survives_rewind: ClassVar[bool] = False
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


ApprovalDecision: TypeAlias = Literal["approved", "denied", "cancelled"]


class ApprovalSettled(Entry, frozen=True, kw_only=True, tag="approval.settled"):
    """A decision was made; it is used once."""

    survives_rewind: ClassVar[bool] = False
    approval_id: ApprovalId
    call_id: CallId
    decision: ApprovalDecision
    arguments: Json | None = None
    """Arguments that replace the model's."""
    scope: ApprovalScope = "once"
    by: str | None = None
    reason: str | None = None
    feedback: str | None = None


class ToolStarted(Entry, frozen=True, kw_only=True, tag="tool.started"):
    """A tool is about to run."""

    survives_rewind: ClassVar[bool] = False
    call_id: CallId
    tool: str
    arguments_hash: str
    idempotent: bool = False
    ruling: Ruling | None = None
    """Why it may run, and who says so."""


class ToolEnded(Entry, frozen=True, kw_only=True, tag="tool.ended"):
    """A tool call has its answer."""

    survives_rewind: ClassVar[bool] = False
    call_id: CallId
    tool: str
    outcome: Literal["ok", "error", "denied", "cancelled", "timed_out"]
    content: tuple[ResultContent, ...] = ()
    error: ErrorReport | None = None
    duration_ms: int = 0
    ruling: Ruling | None = None
    """Why it was refused, if no person did."""


class RetryScheduled(Entry, frozen=True, kw_only=True, tag="retry.scheduled"):
    """A failed model call, or with `tool` a failed run of that tool, will be repeated."""

    survives_rewind: ClassVar[bool] = False
    attempt: int
    """The number of the call that failed; 1 is the first."""
    delay: float
    next_at: int
    error: ErrorReport
    account_limited: bool = False
    call_id: CallId | None = None
    tool: str | None = None


class Rewound(Entry, frozen=True, kw_only=True, tag="rewound"):
    """The conversation goes back to just after `to_seq`; a later rewind may undo it.

    With the `seq` of the opening it goes back into what the session began with, to `message_id`.
    """

    survives_rewind: ClassVar[bool] = False
    to_seq: int
    message_id: MessageId | None = None


EditAction: TypeAlias = Literal["remove", "replace", "add"]


class HistoryEdited(Entry, frozen=True, kw_only=True, tag="history.edited"):
    """A message of the conversation was removed, replaced or added; what was said stays in the log.

    An unanswered tool call of a message that comes in this way is answered, never run.
    """

    survives_rewind: ClassVar[bool] = False
    action: EditAction
    target: MessageId | None = None
    """The message to remove or replace, or the one to add after; None adds at the end."""
    message: Message | None = None
    """The message that comes in; None when one is removed."""


class ContextNoted(Entry, frozen=True, kw_only=True, tag="context.noted"):
    """A note for all sessions of the project, or what a session was told of another one."""

    survives_rewind: ClassVar[bool] = False
    text: str
    source: SessionId | None = None
    """The session that the text comes from; None for a note that was made in this one."""
    included: Literal["summary", "full"] | None = None
    """What of the source the text is, when a session was included; None for a note."""


class HookMessage(Entry, frozen=True, kw_only=True, tag="hook.message"):
    """What a hook has to say."""

    survives_rewind: ClassVar[bool] = False
    hook: str
    text: str
    display: bool = True


class UsageReported(Entry, frozen=True, kw_only=True, tag="usage.reported"):
    """What a provider reports of itself."""

    survives_rewind: ClassVar[bool] = False
    usage: Usage | None = None
    model_usage: JsonObject | None = None
    total_cost_usd: Decimal | None = None


class TranscriptMirrored(Entry, frozen=True, kw_only=True, tag="transcript.mirrored"):
    """Lines of a native agent's own transcript, in a log of their own beside the session's."""

    survives_rewind: ClassVar[bool] = True
    lines: tuple[JsonObject, ...] = ()


class UnknownEntry(Entry, frozen=True, kw_only=True, tag="unknown"):
    """An entry of a kind that this version does not know; its bytes are kept as they are."""

    survives_rewind: ClassVar[bool] = False
    stored_kind: str = ""

    @property
    def kind(self) -> str:
        """The kind that the entry was stored under."""
        return self.stored_kind
