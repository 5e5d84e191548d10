"""Entries that change what was said before, and the repair of histories from elsewhere."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from haptera.model.ids import CallId, MessageId
from haptera.model.log.entry import KEPT, Entry, ImportRule
from haptera.model.log.landmarks import RewindPlace
from haptera.model.log.tools import (
    CallRecord,
    answer_message,
    readable_parts,
    with_distinct_calls,
)
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ToolCallPart,
    ToolResultPart,
)

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold

EditAction: TypeAlias = Literal["remove", "replace", "add"]

_OF_USERS = (ToolResultPart, MediaPart, ReminderPart)
_OF_MODELS = (ToolCallPart, ReasoningPart, ProviderPart)


class Rewound(Entry, frozen=True, kw_only=True, tag="rewound"):
    """The conversation goes back to just after `to_seq`; a later rewind may undo it.

    With the `seq` of the opening it goes back into what the session began with, to `message_id`.
    """

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    to_seq: int
    message_id: MessageId | None = None

    def apply(self, fold: "SessionFold") -> None:
        """Take in that the entries before this one are those on the way back."""
        for call in fold.calls.values():
            call.withdraw_approval()  # it was given for what would have come next then
        fold.child_answers.clear()
        if fold.landmarks is not None and self.seq:
            place = RewindPlace(self.seq, self.to_seq)
            fold.landmarks = fold.landmarks.with_rewinds([place])
        if self.to_seq < fold.folded_at:
            fold.folded_at = 0
        if self.message_id is not None:  # taking one back names none
            fold.rewound_at = self.seq
        if fold.opened is not None and self.to_seq == fold.opened.seq:
            fold.keep_through(self.message_id)


class HistoryEdited(Entry, frozen=True, kw_only=True, tag="history.edited"):
    """A message of the conversation was removed, replaced or added; the log keeps what was said.

    An unanswered tool call of a message that comes in this way is answered, never run.
    """

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    is_checked: ClassVar[bool] = True
    ends_calls: ClassVar[bool] = True
    action: EditAction
    target: MessageId | None = None
    """The message to remove or replace, or the one to add after; None adds at the end."""
    message: Message | None = None
    """The message that comes in; None when one is removed."""

    def apply(self, fold: "SessionFold") -> None:
        """Edit the conversation; what is unfinished is settled before."""
        fold.settle()
        tip = fold.conversation.tip
        fold.points.clear()
        fold.folded_at = 0
        fold.conversation.set_history(edited_history(fold.conversation.messages, self))
        # How the former last message finished says nothing about the new one.
        if fold.conversation.tip is not tip:
            fold.last_finish = None
        fold.before_merge = None
        fold.compacted.forget_first_entries()
        fold.native = fold.native.left_behind()


def heal_history(messages: Iterable[Message]) -> list[Message]:
    """Make a history from outside sendable, changing no more than is needed.

    It begins with a user message, roles alternate, every tool call has an id that is its own in its
    message and is answered once in the message that follows, no result answers a call that was not
    made, media can be read, and no message has parts that only the other role can have.
    """
    healed = _Healed()
    asked: list[_Asked] = []
    for message in map(_in_character, messages):
        if isinstance(message, AssistantMessage):
            # An answer before the first prompt is dropped: providers want a user message first.
            if healed.tip is not None and message.parts:
                _answer_all(healed, asked)
                distinct = with_distinct_calls(message)
                given = [call.call_id for call in message.tool_calls]
                asked = list(map(_Asked, given, distinct.tool_calls))
                healed.add(distinct)
        else:
            if any(isinstance(part, CompactionPart) for part in message.parts):
                _answer_all(healed, asked)  # what comes before a summary is not sent with it
            if parts := readable_parts(_matching(message.parts, asked)):
                healed.add(replace(message, parts=parts))
    _answer_all(healed, asked)
    return healed.messages()


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


class _Healed:
    """Messages whose roles alternate; a compaction stands alone.

    Those of one role that follow each other become one at the end, however many there are.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._parts: list[list[Part]] = []
        """Those of each message, with those that follow it."""

    @property
    def tip(self) -> Message | None:
        """The last message, without what it goes on from or what follows it."""
        return self._messages[-1] if self._messages else None

    def add(self, message: Message) -> None:
        """Append a message, or let it go on with a tip of the same role."""
        is_joined = type(message) is type(self.tip) and not (
            isinstance(message, UserMessage)
            and any(isinstance(part, CompactionPart) for part in message.parts)
        )
        if not is_joined:
            self._messages.append(message)
            self._parts.append([*message.parts])
            return
        self._parts[-1] += message.parts
        if isinstance(message, AssistantMessage):
            self._messages[-1] = message

    def messages(self) -> list[Message]:
        """Return them with all their parts."""
        return [
            message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts))
            for message, parts in zip(self._messages, self._parts, strict=True)
        ]


def _matching(parts: tuple[Part, ...], asked: list[_Asked]) -> tuple[Part, ...]:
    """Keep results of calls that wait for one, in front; other calls get an `unknown` result."""
    waiting = dict(enumerate(asked))
    by_id: dict[CallId, list[int]] = {}
    for number, item in reversed(waiting.items()):
        by_id.setdefault(item.given, []).append(number)
    results: list[Part] = [
        replace(part, call_id=waiting.pop(numbers.pop()).call.call_id)
        for part in parts
        if isinstance(part, ToolResultPart) and (numbers := by_id.get(part.call_id))
    ]
    results.extend(record.answer() for record in _unknown(waiting.values()))
    asked.clear()
    return (*results, *(part for part in parts if not isinstance(part, ToolResultPart)))


def _answer_all(healed: _Healed, asked: list[_Asked]) -> None:
    if isinstance(healed.tip, AssistantMessage) and asked:
        healed.add(answer_message(healed.tip, _unknown(asked)))
    asked.clear()


def _unknown(asked: Iterable[_Asked]) -> list[CallRecord]:
    # As started, because nothing tells whether they ran.
    return [CallRecord(part=item.call, state="started") for item in asked]
