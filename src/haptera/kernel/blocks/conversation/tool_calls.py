"""Tool calls: what is known of each, their approvals and results; the repair of other histories."""

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from haptera.model.approvals import Grant
from haptera.model.canonical import approval_key
from haptera.model.entries import (
    ApprovalRequested,
    ApprovalSettled,
    HistoryEdited,
    QueryStarted,
)
from haptera.model.ids import CallId, MessageId
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)

CallState: TypeAlias = Literal["waiting", "approved", "denied", "started", "ended"]

_OF_USERS = (ToolResultPart, MediaPart, ReminderPart)
_OF_MODELS = (ToolCallPart, ReasoningPart, ProviderPart)

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


class StandingApprovals:
    """The approvals that hold for longer than one call, each for exactly what was approved."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []
        self.policy: JsonObject | None = None
        """The permission rules of the last query that recorded them."""

    def settle(self, requested: ApprovalRequested, settled: ApprovalSettled) -> None:
        """Take in an answer; one for this call only leaves nothing behind.

        Nor does one from a log that does not say for which folder or for which tool it was given.
        """
        if settled.decision != "approved" or settled.scope == "once":
            return
        if requested.folder is None or requested.tool_digest is None:
            return
        arguments = requested.arguments if settled.arguments is None else settled.arguments
        key = approval_key(
            requested.tool,
            arguments,
            requested.folder,
            tool_digest=requested.tool_digest,
            is_confined=requested.facts.is_confined is not False,
        )
        grant = Grant(
            key=key,
            scope=settled.scope,
            query_id=requested.query_id,
            folder=requested.folder,
            by=settled.by,
        )
        self.grants.append(grant)

    def start_query(self, entry: QueryStarted) -> None:
        """Note the rules that a query runs under; one that resumes another has its approvals."""
        self.policy = entry.policy or self.policy
        if entry.resumes is not None:
            of_query = [grant for grant in self.grants if grant.query_id == entry.resumes]
            self.grants += [
                replace(grant, query_id=entry.query_id)
                for grant in of_query
                if grant.scope == "query"
            ]

    def clear(self) -> None:
        """Forget them all."""
        self.grants.clear()
        self.policy = None


def open_calls(answer: AssistantMessage, following: Message | None = None) -> list[CallRecord]:
    """Return the calls of an answer, with the results that the message after it gives them.

    Of calls that were made with one id only the first can be run: what the log says of that id may
    be about any of them.
    """
    parts = following.parts if following is not None else ()
    results = {part.call_id: part for part in parts if isinstance(part, ToolResultPart)}
    records: list[CallRecord] = []
    for given, call in zip(answer.tool_calls, with_distinct_calls(answer).tool_calls, strict=True):
        record = CallRecord(part=call)
        if call.call_id in results:
            record.state, record.ended = "ended", results[call.call_id]
        elif call.call_id != given.call_id:
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


def heal_history(messages: Iterable[Message]) -> list[Message]:
    """Make a history from outside sendable, changing no more than is needed.

    It begins with a user message, roles alternate, every tool call has an id that is its own in its
    message and is answered once in the message that follows, no result answers a call that was not
    made, media can be read, and no message has parts that only the other role can have.
    """
    healed: list[Message] = []
    asked: list[_Asked] = []
    for message in map(_in_character, messages):
        if isinstance(message, AssistantMessage):
            # An answer before the first prompt is dropped: providers want a user message first.
            if healed and message.parts:
                _answer_all(healed, asked)
                distinct = with_distinct_calls(message)
                given = [call.call_id for call in message.tool_calls]
                asked = list(map(_Asked, given, distinct.tool_calls))
                _join(healed, distinct)
        else:
            if any(isinstance(part, CompactionPart) for part in message.parts):
                _answer_all(healed, asked)  # what comes before a summary is not sent with it
            if parts := readable_parts(_matching(message.parts, asked)):
                _join(healed, replace(message, parts=parts))
    _answer_all(healed, asked)
    return healed


def edited_history(messages: Iterable[Message], edit: HistoryEdited) -> list[Message]:
    """Return a history after one of its messages was removed or replaced, or one was added.

    It is sendable whatever was edited. An edit of a message that is not there changes nothing.
    """
    history = list(messages)
    # Ids may repeat in a history from elsewhere; the last message that has it is meant.
    indexes = [index for index, item in enumerate(history) if item.id == edit.target]
    incoming = [edit.message] if edit.message is not None else []
    if indexes and edit.action in {"remove", "replace"}:
        history[indexes[-1] : indexes[-1] + 1] = incoming
    elif edit.action == "add" and (indexes or edit.target is None):
        after = indexes[-1] + 1 if indexes else len(history)
        if after < len(history) and _has_results(history[after]):
            after += 1  # an answer and the results of its calls stay together
        history[after:after] = incoming
    return _with_distinct_ids(heal_history(history))


def _has_results(message: Message) -> bool:
    return any(isinstance(part, ToolResultPart) for part in message.parts)


def _with_distinct_ids(messages: list[Message]) -> list[Message]:
    """Give a message that has the id of an earlier one another id, made from it."""
    seen: set[MessageId] = set()
    numbers: dict[MessageId, int] = {}
    distinct: list[Message] = []
    for message in messages:
        message_id = message.id
        while message_id in seen:
            number = numbers[message.id] = numbers.get(message.id, 1) + 1
            message_id = MessageId(f"{message.id}_{number}")
        seen.add(message_id)
        distinct.append(message if message_id == message.id else replace(message, id=message_id))
    return distinct


def _in_character(message: Message) -> Message:
    others = _OF_USERS if isinstance(message, AssistantMessage) else _OF_MODELS
    parts = tuple(part for part in message.parts if not isinstance(part, others))
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)


class _Asked(NamedTuple):
    """A call that waits for its result, and the id that it was made with."""

    given: CallId
    call: ToolCallPart


def _join(healed: list[Message], message: Message) -> None:
    """Append a message, or let it go on with a tip of the same role; a compaction stands alone."""
    tip = healed[-1] if healed else None
    if isinstance(tip, AssistantMessage) and isinstance(message, AssistantMessage):
        healed[-1] = replace(message, parts=tip.parts + message.parts)
    elif isinstance(tip, UserMessage) and isinstance(message, UserMessage):
        if any(isinstance(part, CompactionPart) for part in message.parts):
            healed.append(message)
        else:
            healed[-1] = replace(tip, parts=tip.parts + message.parts)
    else:
        healed.append(message)


def _matching(parts: tuple[Part, ...], asked: list[_Asked]) -> tuple[Part, ...]:
    """Keep results of calls that wait for one, in front; other calls get an `unknown` result."""
    results: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            item = next((item for item in asked if item.given == part.call_id), None)
            if item is not None:
                asked.remove(item)
                results.append(replace(part, call_id=item.call.call_id))
    results.extend(record.answer() for record in _unknown(asked))
    asked.clear()
    return (*results, *(part for part in parts if not isinstance(part, ToolResultPart)))


def _answer_all(healed: list[Message], asked: list[_Asked]) -> None:
    tip = healed[-1] if healed else None
    if isinstance(tip, AssistantMessage) and asked:
        healed.append(answer_message(tip, _unknown(asked)))
    asked.clear()


def _unknown(asked: Iterable[_Asked]) -> list[CallRecord]:
    # As started, because nothing tells whether they ran.
    return [CallRecord(part=item.call, state="started") for item in asked]


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
