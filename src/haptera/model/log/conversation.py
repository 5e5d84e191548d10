"""Conversation: the messages of one session, as a block that can be used without a session."""

from collections.abc import Iterable, Mapping
from typing import Protocol, Self

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import MessageId
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import CompactionPart, ReasoningPart, ToolResultPart
from haptera.model.results import StopReason
from haptera.model.usage import Usage, add_costs


class SentCounts:
    """Counts the messages that are sent; each is looked at once, however often they are counted."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self.start_at(0)

    def start_at(self, index: int) -> None:
        """Count anew, from the message at an index on."""
        self._counted = index
        self.user = self.assistant = self.reasoning = 0

    def update(self) -> Self:
        """Count what was added."""
        for message in self._messages[self._counted :]:
            self.user += isinstance(message, UserMessage)
            self.assistant += isinstance(message, AssistantMessage)
            # `count` compares in C: every message of a long session passes here.
            self.reasoning += [type(part) for part in message.parts].count(ReasoningPart)
        self._counted = len(self._messages)
        return self

    def forget_last(self, message: Message) -> None:
        """Take in that the last message was removed; it may not have been counted yet."""
        if self._counted > len(self._messages):
            self._counted -= 1
            self.user -= isinstance(message, UserMessage)
            self.assistant -= isinstance(message, AssistantMessage)
            self.reasoning -= [type(part) for part in message.parts].count(ReasoningPart)


_MESSAGES = (UserMessage, AssistantMessage)


class ConversationInterface(Protocol):
    """What a fold needs of a conversation; a substitute for `Conversation` has these methods.

    - Messages stay in the order in which they were pushed. A user message that follows another one
      is merged into it; assistant messages are never merged.
    - The history is complete: a compaction is appended like any message, and drops nothing.
    - `wire_view` begins with the last compaction, or with the first message without one.
    - What `messages` and `wire_view` returned does not change afterwards.
    """

    def __len__(self) -> int:
        """Return the number of messages."""
        ...

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole history."""
        ...

    @property
    def tip(self) -> Message | None:
        """The last message."""
        ...

    @property
    def counts(self) -> SentCounts:
        """Counts the messages that are sent."""
        ...

    def push(
        self, message: Message, *, tag: str | None = None, kept_from: MessageId | None = None
    ) -> None:
        """Append a message; a compaction with `kept_from` goes before that message."""
        ...

    def remove_last(self) -> Message | None:
        """Remove the last message, and return it."""
        ...

    def set_history(self, messages: Iterable[Message]) -> None:
        """Replace everything, as given."""
        ...

    def wire_view(self) -> tuple[Message, ...]:
        """Return what is sent to a model."""
        ...


class Conversation:
    """Holds messages in order and gives out the view that is sent.

    Owns the order, the merging of consecutive user messages and the tags that name messages. Does
    not own persistence, healing of unanswered calls (the fold does) or any wire format.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._tags: list[str | None] = []
        self._last_start = 0
        """Where the view begins, as far as messages were looked at."""
        self._looked_at = 0
        """How many messages were looked at: those that are added later are when they are sent."""
        self._whole: tuple[Message, ...] | None = None
        """The whole history as it was given out last; None when it has changed since."""
        self._counts = SentCounts(self._messages)
        self.set_history(messages)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole history; nothing is ever dropped from it by a compaction.

        The messages themselves, not copies, in one tuple for as long as nothing changes.
        """
        if self._whole is None:
            self._whole = tuple(self._messages)
        return self._whole

    @property
    def tip(self) -> Message | None:
        """The last message."""
        return self._messages[-1] if self._messages else None

    @property
    def counts(self) -> SentCounts:
        """How many messages there are of what is sent; to be updated before they are read."""
        self._find_view_start()
        return self._counts

    def push(
        self, message: Message, *, tag: str | None = None, kept_from: MessageId | None = None
    ) -> None:
        """Append a message. A user message after another joins it; its tag is dropped then.

        A compaction is sent instead of everything before it, which stays in the history. With
        `kept_from` it goes before that message, so that what follows is still sent. A message that
        an earlier compaction has replaced, or holds, cannot be kept.
        """
        _check_message(message)
        self._whole = None
        if kept_from is not None and self._put_before(kept_from, message):
            return
        if isinstance(message, UserMessage) and not is_compaction(message):
            tip = self._messages[-1] if self._messages else None
            if isinstance(tip, UserMessage):
                # Providers refuse two user messages in a row.
                self._messages[-1] = msgspec.structs.replace(tip, parts=tip.parts + message.parts)
                return
        self._messages.append(message)
        self._tags.append(tag)

    def insert(self, index: int, message: Message, *, tag: str | None = None) -> None:
        """Put a message at a place, without merging."""
        _check_message(message)
        self._messages.insert(index, message)
        self._tags.insert(index, tag)
        self._look_again()

    def replace(self, tag: str, message: Message) -> bool:
        """Put a message in the place of the last one with this tag."""
        _check_message(message)
        index = self._index_of(tag)
        if index is not None:
            self._messages[index] = message
            self._look_again()
        return index is not None

    def remove(self, tag: str) -> bool:
        """Take out the last message with this tag."""
        index = self._index_of(tag)
        if index is not None:
            del self._messages[index], self._tags[index]
            self._look_again()
        return index is not None

    def remove_last(self) -> Message | None:
        """Roll back the last message; only for an answer that turned out to be void."""
        if not self._messages:
            return None
        self._tags.pop()
        removed = self._messages.pop()
        self._whole = None
        if self._last_start < len(self._messages):
            self._counts.forget_last(removed)
            self._looked_at = min(self._looked_at, len(self._messages))
        else:
            self._look_again()
        return removed

    def clear(self) -> None:
        """Forget everything."""
        self.set_history(())

    def set_history(self, messages: Iterable[Message]) -> None:
        """Replace everything, as given: nothing is merged and all tags are gone.

        Raises:
            ConfigError: CONFIG_INVALID naming what is no message.

        """
        if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
            kind = type(messages).__name__
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"pass a list of messages, not {kind}")
        messages = tuple(messages)
        for message in messages:
            _check_message(message)
        # In place: `counts` looks at the same list.
        self._messages[:] = messages
        self._tags = [None] * len(self._messages)
        self._look_again()

    def shortened(self, length: int, tip: Message | None) -> "Conversation":
        """Return the conversation as it was with `length` messages, the last of them `tip`.

        Messages were only added since, and the tip has grown at most.
        """
        earlier = Conversation()
        messages = self._messages[:length]
        if tip is not None:
            messages[-1] = tip
        earlier._messages[:] = messages
        earlier._tags = self._tags[:length]
        if self._find_view_start() < length - 1:  # else, it may have been added since
            earlier._start_view_at(self._last_start)
            earlier._looked_at = length
        return earlier

    def wire_view(self) -> tuple[Message, ...]:
        """Return what is sent: from the last compaction on, itself included; otherwise all.

        The view is an immutable slice of frozen messages; nothing is copied but references.
        """
        return self.messages[self._find_view_start() :]

    def _index_of(self, tag: str) -> int | None:
        for index in range(len(self._tags) - 1, -1, -1):
            if self._tags[index] == tag:
                return index
        return None

    def _put_before(self, kept_from: MessageId, compaction: Message) -> bool:
        """Put a compaction before a message that is sent now; False when there is no such one."""
        first = self._find_view_start()
        if self._messages and is_compaction(self._messages[first]):
            first += 1  # what an earlier compaction stands for is replaced, too
        sent = self._messages[first:]
        indexes = [first + at for at, item in enumerate(sent) if item.id == kept_from]
        index = indexes[-1] if indexes else -1
        parts = self._messages[index].parts if indexes else ()
        if any(isinstance(part, ToolResultPart) for part in parts):
            index -= 1  # results are kept with the message that made the calls
        if index < first:
            return False
        following = self._messages[index]
        if isinstance(following, UserMessage):  # roles alternate: the two become one
            parts = compaction.parts + following.parts
            self._messages[index] = msgspec.structs.replace(following, parts=parts)
            self._look_again()
        else:
            self.insert(index, compaction)
        return True

    def _look_again(self) -> None:
        self._whole = None
        self._looked_at = 0
        self._start_view_at(0)

    def _find_view_start(self) -> int:
        """Return where the view begins: the last compaction, or the first message.

        An answer that goes on is pushed again with more parts each time, so looking at it waits.
        """
        for index in range(len(self._messages) - 1, self._looked_at - 1, -1):
            if is_compaction(self._messages[index]):
                self._start_view_at(index)
                break
        self._looked_at = len(self._messages)
        return self._last_start

    def _start_view_at(self, index: int) -> None:
        self._last_start = index
        self._counts.start_at(index)


def _check_message(message: object) -> None:
    if not isinstance(message, _MESSAGES):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"a conversation is made of UserMessage and AssistantMessage, not "
            f"{type(message).__name__}; JSON becomes messages with "
            "msgspec.json.decode(stored, type=list[Message])",
        )


def is_compaction(message: Message) -> bool:
    """Whether a message is sent instead of everything before it."""
    # One without text stands for nothing, and must not hide what comes before it.
    # Asked of every message of a log: the first test takes a third of the second.
    return CompactionPart in map(type, message.parts) and any(
        isinstance(part, CompactionPart) and part.text for part in message.parts
    )


def end_last(conversation: ConversationInterface, stop_reason: StopReason) -> None:
    """Say of a last answer that was cut off how its query ended: aborted, or with an error."""
    tip = conversation.tip
    if isinstance(tip, AssistantMessage) and tip.interrupted:
        conversation.remove_last()
        conversation.push(msgspec.structs.replace(tip, stop_reason=stop_reason))


def joined(view: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    """Append a message to a view, merging it into a tip of the same role."""
    tip = view[-1] if view else None
    if isinstance(message, UserMessage) and isinstance(tip, UserMessage):
        return (*view[:-1], msgspec.structs.replace(tip, parts=tip.parts + message.parts))
    if isinstance(message, AssistantMessage) and isinstance(tip, AssistantMessage):
        return (*view[:-1], merged_answers(tip, message))
    return (*view, message)


def merged_answers(first: AssistantMessage, second: AssistantMessage) -> AssistantMessage:
    """Join an answer with its continuation."""
    usage = second.usage if first.usage is None else first.usage + (second.usage or Usage())
    cost = second.cost if first.usage is None else add_costs(first.cost, second.cost)
    return msgspec.structs.replace(second, parts=first.parts + second.parts, usage=usage, cost=cost)
