"""Answers to tool calls: the recorded ones, and honest ones for calls that have none."""

from typing import Literal, TypeAlias

import msgspec

from holdfast.vocabulary.entries import ApprovalSettled, ToolEnded
from holdfast.vocabulary.ids import MessageId
from holdfast.vocabulary.messages import AssistantMessage, UserMessage
from holdfast.vocabulary.parts import TextPart, ToolCallPart, ToolOutcome, ToolResultPart

CallState: TypeAlias = Literal["waiting", "approved", "denied", "started", "ended"]

_TEXTS: dict[ToolOutcome, str] = {
    "interrupted": "This call was not run: the query was interrupted before it.",
    "denied": "This call was not allowed to run. Do not try it again unless you are asked to.",
    "unknown": (
        "This call was started, but its outcome is unknown: the program stopped while it ran. "
        "It may or may not have taken effect. Check before you run it again."
    ),
}


class CallRecord(msgspec.Struct, kw_only=True):
    """What the log knows of one tool call."""

    part: ToolCallPart
    state: CallState = "waiting"
    idempotent: bool = False
    reason: str | None = None
    settled: ApprovalSettled | None = None
    """The decision about it, until the call is started: an approval is used once."""
    ended: ToolEnded | None = None

    @property
    def outcome(self) -> ToolOutcome:
        """How the call settled, as far as anyone knows."""
        if self.ended is not None:
            return self.ended.outcome
        if self.state == "denied":
            return "denied"
        return "unknown" if self.state == "started" else "interrupted"

    def answer(self) -> ToolResultPart:
        """Return the recorded result, or one that says what is known."""
        if self.ended is not None:
            return ToolResultPart(
                call_id=self.part.call_id,
                name=self.part.name,
                outcome=self.ended.outcome,
                content=self.ended.content,
            )
        outcome = self.outcome
        return ToolResultPart(
            call_id=self.part.call_id,
            name=self.part.name,
            outcome=outcome,
            content=(TextPart(text=self.reason or _TEXTS[outcome]),),
        )


def answer_message(assistant: AssistantMessage, calls: list[CallRecord]) -> UserMessage:
    """Answer every call of an assistant message in one user message, in the model's order."""
    return UserMessage(
        id=MessageId(f"{assistant.id}_results"),
        parts=tuple(call.answer() for call in calls),
        query_id=assistant.query_id,
        turn_id=assistant.turn_id,
    )
