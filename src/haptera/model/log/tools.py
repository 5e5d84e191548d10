"""Entries about tool calls: that a tool runs and how it ended; and what is known of each call."""

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from haptera.model.approvals import Ruling
from haptera.model.errors import ErrorReport
from haptera.model.ids import CallId, MessageId
from haptera.model.json_types import Json
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry, ImportRule
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    MediaPart,
    Part,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold

CallState: TypeAlias = Literal["waiting", "approved", "denied", "started", "ended"]

_TEXTS: dict[ToolOutcome, str] = {
    "interrupted": "This call was not run: the query was interrupted before it.",
    "denied": "This call was not allowed to run. Do not try it again unless you are asked to.",
    "unknown": (
        "This call was started, but its outcome is unknown: the program stopped while it ran. "
        "It may or may not have taken effect. Check before you run it again."
    ),
}


class ToolStarted(Entry, frozen=True, kw_only=True, tag="tool.started"):
    """A tool is about to run."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule(
        "ended", ("call_id", "tool", "arguments_hash", "idempotent")
    )
    is_checked: ClassVar[bool] = True
    call_id: CallId
    tool: str
    arguments_hash: str
    idempotent: bool = False
    ruling: Ruling | None = None
    """Why it may run, and who says so."""

    def apply(self, fold: "SessionFold") -> None:
        """Note that the call was started."""
        if (call := fold.calls.get(self.call_id)) is not None:
            call.start(idempotent=self.idempotent)

    @property
    def is_fate(self) -> bool:
        """Whether it says for good what became of a call: it took effect, or may have."""
        return True


class ToolEnded(Entry, frozen=True, kw_only=True, tag="tool.ended"):
    """A tool call has ended."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule(
        "kept", ("call_id", "tool", "outcome", "content", "error", "duration_ms")
    )
    call_id: CallId
    tool: str
    outcome: Literal["ok", "error", "denied", "cancelled", "timed_out"]
    content: tuple[ResultContent, ...] = ()
    error: ErrorReport | None = None
    duration_ms: int = 0
    ruling: Ruling | None = None
    """Why it was refused, if no person did."""

    def apply(self, fold: "SessionFold") -> None:
        """Give the call its result."""
        if (call := fold.calls.get(self.call_id)) is not None:
            call.end(self.outcome, self.content, time=self.time)

    @property
    def is_fate(self) -> bool:
        """Whether it says for good what became of a call: it is its end."""
        return True


class CallRecord(msgspec.Struct, kw_only=True):
    """What the log knows of one tool call."""

    part: ToolCallPart
    state: CallState = "waiting"
    idempotent: bool | None = None
    """Whether every run of it was of an idempotent tool; None when it was never started."""
    reason: str | None = None
    approved: Json | None = None
    """The arguments that were approved, until the call is started: an approval is used once."""
    approved_hash: str | None = None
    """The digest under which they were asked about; None when the answer brought its own."""
    question: ApprovalRequested | None = None
    settled: ApprovalSettled | None = None
    """The question and its answer, while the call is approved and not started."""
    ended: ToolResultPart | None = None
    """The answer that it has for good."""
    ended_at: int | None = None
    """When it got it, in wall-clock milliseconds."""

    @property
    def may_run(self) -> bool:
        """Whether it could still be run: it has no end, was not denied, and does no harm twice."""
        return self.ended is None and self.state != "denied" and self.idempotent is not False

    def start(self, *, idempotent: bool) -> None:
        """Note that the call was started, perhaps not for the first time."""
        if self.ended is None:
            self.state, self.approved, self.approved_hash = "started", None, None
            self.question = self.settled = None
            # One run of a tool that is not idempotent rules out any other run.
            self.idempotent = idempotent and self.idempotent is not False

    def end(
        self, outcome: ToolOutcome, content: tuple[ResultContent, ...], *, time: int | None = None
    ) -> None:
        """Note how the call ended, and when; the first end counts."""
        if self.ended is None:
            self.state, self.ended_at = "ended", time
            self.ended = ToolResultPart(
                call_id=self.part.call_id,
                name=self.part.name,
                outcome=outcome,
                content=readable_content(content),
            )

    def settle(self, requested: ApprovalRequested | None, settled: ApprovalSettled) -> None:
        """Note the answer to the question whether the call may run; the first answer counts."""
        if self.state == "approved" or not self.may_run:
            return
        self.reason = settled.reason
        self.state = "approved" if settled.decision == "approved" else "denied"
        self.question, self.settled = requested, settled
        if settled.arguments is not None or requested is None:
            self.approved, self.approved_hash = settled.arguments, None
        else:
            self.approved, self.approved_hash = requested.arguments, requested.arguments_hash

    def withdraw_approval(self) -> None:
        """Let the call be as if it had not been approved."""
        if self.state == "approved":
            # What it was before it was approved.
            self.state = "waiting" if self.idempotent is None else "started"
            self.reason = self.approved = self.approved_hash = None
            self.question = self.settled = None

    @property
    def outcome(self) -> ToolOutcome:
        """How the call settled, as far as the log tells."""
        if self.ended is not None:
            return self.ended.outcome
        if self.state == "denied":
            return "denied"
        was_started = self.state == "started" or self.idempotent is not None
        return "unknown" if was_started else "interrupted"

    def answer(self) -> ToolResultPart:
        """Return the recorded result, or one that says what is known."""
        if self.ended is not None:
            return self.ended
        outcome = self.outcome
        return ToolResultPart(
            call_id=self.part.call_id,
            name=self.part.name,
            outcome=outcome,
            content=(TextPart(text=self.reason or _TEXTS[outcome]),),
        )


def open_calls(answer: AssistantMessage, following: Message | None = None) -> list[CallRecord]:
    """Return the calls of an answer, with the results that the message after it gives them.

    Of calls that were made with one id only the first can be run: what the log says of that id may
    be about any of them.
    """
    parts = following.parts if following is not None else ()
    results = {part.call_id: part for part in parts if isinstance(part, ToolResultPart)}
    records: list[CallRecord] = []
    for own, call in zip(answer.tool_calls, with_distinct_calls(answer).tool_calls, strict=True):
        record = CallRecord(part=call)
        if call.call_id in results:
            record.state, record.ended = "ended", results[call.call_id]
        elif call.call_id != own.call_id:
            # As started, so that nothing runs it.
            record.start(idempotent=False)
        records.append(record)
    return records


def answer_message(assistant: AssistantMessage, calls: list[CallRecord]) -> UserMessage:
    """Answer every call of an assistant message in one user message, in the model's order."""
    return UserMessage(
        id=MessageId(f"{assistant.id}_results"),
        parts=tuple(call.answer() for call in calls),
        query_id=assistant.query_id,
        turn_id=assistant.turn_id,
        time=max((call.ended_at for call in calls if call.ended_at), default=assistant.time),
    )


def with_distinct_calls(message: AssistantMessage) -> AssistantMessage:
    """Return an answer whose calls have each an id of its own; the first keeps the one it has."""
    ids = [part.call_id for part in message.parts if isinstance(part, ToolCallPart)]
    if len(set(ids)) == len(ids):
        return message
    taken, seen = set(ids), set[CallId]()
    numbers: dict[CallId, int] = {}

    def distinct(part: Part) -> Part:
        if not isinstance(part, ToolCallPart):
            return part
        call_id = part.call_id
        if call_id in seen:
            while call_id in taken:
                number = numbers[part.call_id] = numbers.get(part.call_id, 1) + 1
                call_id = CallId(f"{part.call_id}_{number}")
            taken.add(call_id)
        seen.add(call_id)
        return replace(part, call_id=call_id)

    return replace(message, parts=tuple(map(distinct, message.parts)))


def said_at(message: UserMessage, time: int) -> UserMessage:
    """Return a prompt as the conversation keeps it: with its time, and what can be read of it."""
    return replace(message, parts=readable_parts(message.parts), time=message.time or time)


_WITH_MEDIA = frozenset({MediaPart, ToolResultPart})
"""The kinds of parts that are media, or can hold some."""


def readable_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return parts without media that no provider could read; a text says what was there."""
    if _WITH_MEDIA.isdisjoint(map(type, parts)):
        return parts
    return tuple(
        replace(part, content=readable_content(part.content))
        if isinstance(part, ToolResultPart)
        else _readable(part)
        if isinstance(part, MediaPart)
        else part
        for part in parts
    )


def readable_content(content: tuple[ResultContent, ...]) -> tuple[ResultContent, ...]:
    """Return the content of a result without media that no provider could read."""
    return tuple(_readable(piece) if isinstance(piece, MediaPart) else piece for piece in content)


def _readable(part: MediaPart) -> ResultContent:
    if part.is_readable:
        return part
    if part.mime.startswith("text/") and part.data:
        return TextPart(text=part.data)  # it was never encoded
    name = f" {part.filename}" if part.filename else ""
    return TextPart(text=f"[{part.mime}{name}: not shown, its data is not base64]")
