"""Entries about prompts and queries: what waits, what is being answered, how it ended."""

from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

import msgspec

from haptera.model.errors import ErrorReport
from haptera.model.ids import InputId, MessageId, QueryId
from haptera.model.json_types import JsonObject
from haptera.model.log.conversation import end_last
from haptera.model.log.entry import KEPT, Entry, ImportRule
from haptera.model.messages import NO_OPTIONS, KeptOptions, Sender, UserMessage
from haptera.model.results import ResumeKind, StopReason
from haptera.model.settings import Delivery
from haptera.model.usage import Usage

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold


class InputQueued(Entry, frozen=True, kw_only=True, tag="input.queued"):
    """A prompt was taken in while the session was busy."""

    survives_rewind: ClassVar[bool] = True
    imported: ClassVar[ImportRule] = ImportRule(
        "ended", ("input_id", "message", "delivery", "sender", "options")
    )
    is_checked: ClassVar[bool] = True
    input_id: InputId
    message: UserMessage
    delivery: Delivery
    sender: Sender | None = None
    options: KeptOptions = NO_OPTIONS

    def apply(self, fold: "SessionFold") -> None:
        """Let the prompt wait."""
        fold.inputs[self.input_id] = self


class InputPromoted(Entry, frozen=True, kw_only=True, tag="input.promoted"):
    """A queued prompt entered the conversation."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    ends_calls: ClassVar[bool] = True
    input_id: InputId

    def apply(self, fold: "SessionFold") -> None:
        """Let the prompt in."""
        if (queued := fold.inputs.pop(self.input_id, None)) is not None:
            fold.push_prompt(queued.message, time=queued.time, seq=queued.seq)

    def off_path(self) -> Entry:
        """Return what remains of it once it was rewound: the prompt still left the queue."""
        return InputDrained(id=self.id, time=self.time, seq=self.seq, input_id=self.input_id)


class InputDrained(Entry, frozen=True, kw_only=True, tag="input.drained"):
    """A queued prompt was taken out without being sent."""

    survives_rewind: ClassVar[bool] = True
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    input_id: InputId
    reason: str | None = None

    def apply(self, fold: "SessionFold") -> None:
        """Forget the prompt."""
        fold.inputs.pop(self.input_id, None)


class QueryStarted(Entry, frozen=True, kw_only=True, tag="query.started"):
    """A query begins to answer a prompt."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule("ended", ("message", "resumes", "options"))
    is_checked: ClassVar[bool] = True
    message: UserMessage | None = None
    """The prompt; None when an earlier query goes on."""
    resumes: QueryId | None = None
    options: KeptOptions = NO_OPTIONS
    policy: JsonObject | None = None
    """The permission mode and rules in force; None: those that an earlier query recorded."""

    def apply(self, fold: "SessionFold") -> None:
        """Open the query, and let its prompt in."""
        if self.message is not None and self.seq:
            fold.points.offer(vars(fold), self.seq - 1)
        fold.open_query = self
        self.note_query(fold.unended)
        fold.query_options = self.options
        # The entry names the sender once, in its message; a query that resumes this one has no
        # message.
        if self.message is not None and self.message.sender is not None:
            sender = self.message.sender
            fold.query_options = msgspec.structs.replace(self.options, sender=sender)
        if self.policy is not None or self.resumes is not None:
            fold.standing.start_query(self)
        if self.message is not None:
            fold.push_prompt(self.message, time=self.time, seq=self.seq)

    def note_query(self, unended: dict[QueryId, None]) -> None:
        """Count it as one without an end; one that is resumed ends with its resumption."""
        if self.query_id is not None:
            if self.resumes is not None:
                unended.pop(self.resumes, None)
            unended[self.query_id] = None

    def answer_after(self, before: int) -> int:
        """Return `before` if it goes on with an earlier query, else 0: a prompt settles calls."""
        return before if self.message is None else 0


class QueryEnded(Entry, frozen=True, kw_only=True, tag="query.ended"):
    """A query ended."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule(
        "kept",
        (
            *("stop_reason", "finish_reason", "usage", "cost", "turns", "duration_ms"),
            *("message_id", "error", "stop_detail"),
        ),
    )
    is_checked: ClassVar[bool] = True
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

    def apply(self, fold: "SessionFold") -> None:
        """Let the query rest."""
        self.note_query(fold.unended)
        if fold.open_query is not None and fold.open_query.query_id != self.query_id:
            return  # the late end of a query that was rewound says nothing of this conversation
        fold.open_query = None
        fold.last_query = self
        if self.stop_reason in {"aborted", "error"}:
            end_last(fold.conversation, self.stop_reason)

    def note_query(self, unended: dict[QueryId, None]) -> None:
        """Count it as ended."""
        if self.query_id is not None:
            unended.pop(self.query_id, None)

    def transcript_line(self) -> str | None:
        """Say why it ended, unless it was answered."""
        if self.stop_reason == "aborted":
            return "interrupted; what was said is kept"
        if self.error is not None:
            return f"{self.error.code}: {self.error.message}"
        if self.stop_reason == "complete":
            return None
        detail = f" ({self.stop_detail})" if self.stop_detail else ""
        return f"stopped: {self.stop_reason}{detail}"
