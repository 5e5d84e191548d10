"""Answers to tool calls: the recorded ones, and honest ones for calls that have none."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from holdfast.vocabulary.ids import CallId, MessageId
from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.messages import AssistantMessage, Message, UserMessage
from holdfast.vocabulary.parts import (
    CompactionPart,
    Part,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)

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
    idempotent: bool | None = None
    """Whether every run of it was of an idempotent tool; None when it was never started."""
    reason: str | None = None
    approved: Json | None = None
    """The arguments that were approved, until the call is started: an approval is used once."""
    ended: ToolResultPart | None = None
    """The answer that it has for good."""

    @property
    def may_run(self) -> bool:
        """Whether running it could be allowed: it has no end, and took effect at most harmlessly."""
        return self.ended is None and self.state != "denied" and self.idempotent is not False

    def start(self, *, idempotent: bool) -> None:
        """Note that the call was started, perhaps not for the first time."""
        if self.ended is None:
            self.state, self.approved = "started", None
            self.idempotent = idempotent and self.idempotent is not False

    def end(self, outcome: ToolOutcome, content: tuple[ResultContent, ...]) -> None:
        """Note how the call ended; the first end counts."""
        if self.ended is None:
            self.state = "ended"
            self.ended = ToolResultPart(
                call_id=self.part.call_id, name=self.part.name, outcome=outcome, content=content
            )

    def withdraw_approval(self) -> None:
        """Let the call be as if nobody had approved it."""
        if self.state == "approved":
            self.state = "waiting" if self.idempotent is None else "started"
            self.reason = self.approved = None

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
            return self.ended
        outcome = self.outcome
        return ToolResultPart(
            call_id=self.part.call_id,
            name=self.part.name,
            outcome=outcome,
            content=(TextPart(text=self.reason or _TEXTS[outcome]),),
        )


def open_calls(
    answer: AssistantMessage | None, following: Message | None = None
) -> dict[CallId, CallRecord]:
    """Return the calls of an answer, with the results that the message after it gives them."""
    parts = following.parts if following is not None else ()
    results = {part.call_id: part for part in parts if isinstance(part, ToolResultPart)}
    return {
        call.call_id: CallRecord(
            part=call,
            state="ended" if call.call_id in results else "waiting",
            ended=results.get(call.call_id),
        )
        for call in (answer.tool_calls if answer is not None else ())
    }


def answer_message(assistant: AssistantMessage, calls: list[CallRecord]) -> UserMessage:
    """Answer every call of an assistant message in one user message, in the model's order."""
    return UserMessage(
        id=MessageId(f"{assistant.id}_results"),
        parts=tuple(call.answer() for call in calls),
        query_id=assistant.query_id,
        turn_id=assistant.turn_id,
    )


def heal_history(messages: Iterable[Message]) -> list[Message]:
    """Make a history that somebody hands in sendable, changing no more than is needed.

    It begins with a user message, roles alternate, every tool call is answered in the message that
    follows it, and no result answers a call that was not made.
    """
    healed: list[Message] = []
    asked: dict[CallId, ToolCallPart] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            if healed and message.parts:
                _answer_all(healed, asked)
                asked = {part.call_id: part for part in message.tool_calls}
                _join(healed, message)
        elif parts := _matching(message.parts, asked):
            _join(healed, msgspec.structs.replace(message, parts=parts))
    _answer_all(healed, asked)
    return healed


def _join(healed: list[Message], message: Message) -> None:
    """Append a message, or let it go on with a tip of the same role; a compaction stands alone."""
    tip = healed[-1] if healed else None
    if isinstance(tip, AssistantMessage) and isinstance(message, AssistantMessage):
        healed[-1] = msgspec.structs.replace(message, parts=tip.parts + message.parts)
    elif isinstance(tip, UserMessage) and isinstance(message, UserMessage):
        if any(isinstance(part, CompactionPart) for part in message.parts):
            healed.append(message)
        else:
            healed[-1] = msgspec.structs.replace(tip, parts=tip.parts + message.parts)
    else:
        healed.append(message)


def _matching(parts: tuple[Part, ...], asked: dict[CallId, ToolCallPart]) -> tuple[Part, ...]:
    """Keep results of calls that wait for one, in front, with honest answers for the others."""
    results: list[Part] = [
        part
        for part in parts
        if isinstance(part, ToolResultPart) and asked.pop(part.call_id, None) is not None
    ]
    results.extend(CallRecord(part=call, state="started").answer() for call in asked.values())
    asked.clear()
    return (*results, *(part for part in parts if not isinstance(part, ToolResultPart)))


def _answer_all(healed: list[Message], asked: dict[CallId, ToolCallPart]) -> None:
    tip = healed[-1] if healed else None
    if isinstance(tip, AssistantMessage) and asked:
        records = [CallRecord(part=call, state="started") for call in asked.values()]
        healed.append(answer_message(tip, records))
    asked.clear()
