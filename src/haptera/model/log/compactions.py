"""The entry of a compaction; and what compactions leave to be sent and read of a session."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from msgspec.structs import replace

from haptera.model.ids import MessageId
from haptera.model.json_types import JsonObject
from haptera.model.late_names import late_module
from haptera.model.log.entry import OPENING_SEQ, Entry, ImportRule
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import CompactionPart, Part, ReminderPart, TextPart, ToolResultPart
from haptera.model.usage import Usage, add_costs

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold

_SMALLEST = 400
"""Results of fewer characters are sent as they are."""

CompactionTrigger: TypeAlias = Literal["auto", "manual", "overflow", "provider"]
"""What made it happen: the estimate before a request, the user, a request that the provider refused
as too long, or the provider itself."""


class Compaction(Entry, frozen=True, kw_only=True, tag="compaction"):
    """From here on a shorter text is sent instead of the earlier messages, depending on `strategy`.

    - `summarise`: the summary, then the messages from `kept_from` on.
    - `tail`: the same, but there is no usable summary; `summary` says so.
    - `prune`: placeholders instead of the results of tools before `kept_from`.
    - `none`: what was sent before; there is no usable summary, and the request fits without one.
    - `server`: the provider's own summary, which is a part of its answer.
    - `native`: what the native agent decides; nothing changes here.
    """

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = ImportRule(
        "kept",
        (
            *("trigger", "strategy", "summary", "kept_from", "tokens_before", "tokens_after"),
            *("reminders", "rejected", "usage", "cost"),
        ),
    )
    is_checked: ClassVar[bool] = True
    ends_calls: ClassVar[bool] = True
    trigger: CompactionTrigger
    strategy: str
    summary: str
    kept_from: MessageId | None = None
    """The first message that is still sent after the summary; None when all are replaced."""
    tokens_before: int | None = None
    tokens_after: int | None = None
    reminders: tuple[str, ...] = ()
    """The cached reminders, which are sent again after the summary."""
    rejected: str | None = None
    """Why the summary that was asked for was not used; None when it was."""
    usage: Usage = Usage()
    """What asking for the summary used."""
    cost: Decimal | None = Decimal(0)
    reads_from: int | None = None
    """The first `seq` that has to be read to go on from here; None: all entries."""
    carried: JsonObject | None = None
    """What the session was at this point beside its messages, for going on from here."""

    @property
    def pre_tokens(self) -> int | None:
        """The tokens before it, by the name that native agents use."""
        return self.tokens_before

    @property
    def outcome(self) -> str:
        """What it did, in a line, or why it did nothing."""
        if self.strategy == "none":
            return f"the conversation was not shortened: {self.rejected or 'nothing was left out'}"
        before, after = self.tokens_before, self.tokens_after
        sizes = "" if before is None or after is None else f": {before} tokens, now {after}"
        return f"the conversation was shortened ({self.strategy}){sizes}"

    def transcript_line(self) -> str | None:
        """Say what it did; where one that was asked for did nothing, its query ends with that."""
        return None if self.strategy == "none" and self.trigger == "manual" else self.outcome

    def apply(self, fold: "SessionFold") -> None:
        """Change what is sent from now on."""
        fold.compacted.last = self
        fold.usage += self.usage
        fold.cost = add_costs(fold.cost, self.cost)
        if self.strategy in {"native", "server", "none"}:
            return  # what is sent is shorter without us, or was not made shorter
        fold.settle()
        fold.points.clear()
        if self.strategy == "prune":
            fold.compacted.prune(self, fold.conversation.wire_view())
            return
        parts: tuple[Part, ...] = (CompactionPart(text=self.summary),)
        parts += tuple(ReminderPart(text=text, persisted=True) for text in self.reminders)
        message_id = MessageId(f"{self.id}_summary")
        fold.conversation.push(
            UserMessage(id=message_id, parts=parts, time=self.time), kept_from=self.kept_from
        )
        fold.compacted.summarise(self)
        # An entry that carries nothing does not say which notes there were.
        fold.notes.tell_again(self.seq if self.carried is not None else OPENING_SEQ)


class Compacted:
    """What the compactions of one session mean for what is sent and for what has to be read.

    Owns the last compaction, the results of tools that are left out of what is sent (the
    conversation keeps them), and the first entry of each message, as far as it is known.
    """

    def __init__(self) -> None:
        self.last: Compaction | None = None
        self.is_partial = False
        """Whether entries before the last compaction were not read."""
        self._first_entries: dict[MessageId, int] = {}
        """By message, in their order: the first entry that it and those after it need."""
        self._opened_at = self._all_from = 0
        """A `seq` from which on entries make all that is sent; 0: there is none."""
        self._summarised_at = 0
        """The `seq` of the last summary; messages before it are kept by it."""
        self._pruned: dict[MessageId, tuple[Message, Message]] = {}
        """The original, and what is sent instead."""

    def start(self, seq: int) -> None:
        """Begin with a session whose messages are made by entries from `seq` on; 0: by others."""
        self._first_entries.clear()
        self._opened_at = self._all_from = seq

    def forget_first_entries(self) -> None:
        """Take in that messages were edited, perhaps a summary: any of them may be sent again."""
        self._first_entries.clear()
        self._all_from = self._opened_at

    def note_first_entry(
        self, message: Message | None, seq: int | None, *, after: Message | None = None
    ) -> None:
        """Note the first entry of a message; one that goes on with another one has that of it."""
        if message is None:
            return
        start = self._all_from
        if after is not None:
            start = self._first_entries.get(after.id, start)
        if seq is not None and (after is None or seq < start):
            start = seq
        # A prompt may lead with notes of long before: then what is kept from an earlier message on
        # needs them, too. So first entries never fall from one message to the next.
        for earlier, first in reversed(self._first_entries.items()):
            if first <= start:
                break
            self._first_entries[earlier] = start
        # A message that is pushed again, with more in it, keeps its first entry.
        self._first_entries.setdefault(message.id, start)

    def until(self, seq: int) -> "Compacted":
        """Return what was known at an earlier entry, since which no compaction was made."""
        earlier = Compacted()
        vars(earlier).update(vars(self))
        earlier._pruned = self._pruned.copy()
        firsts = self._first_entries
        # First entries never fall from one message to the next.
        length = late_module("bisect").bisect_right(list(firsts.values()), seq)
        if length < len(firsts) // 2:
            earlier._first_entries = dict(islice(firsts.items(), length))
        else:  # a copy takes a tenth of the time that making it anew does
            earlier._first_entries = firsts.copy()
            for name in islice(reversed(firsts), len(firsts) - length):
                del earlier._first_entries[name]
        return earlier

    def reads_from(self, message_id: MessageId | None, *, head: int) -> int | None:
        """Return the first `seq` to read for everything from a message on; None: all entries.

        Without a message, for nothing but what comes after `head`.
        """
        if message_id is None:
            return head + 1
        start = self._first_entries.get(message_id, self._all_from)
        # With the last summary itself among the entries, for the notes that it tells again, what it
        # keeps is needed to understand it.
        if start <= self._summarised_at:
            start = self._all_from
        return min(start, head + 1) or None

    def summarise(self, entry: Compaction) -> None:
        """Take in that a summary is sent from now on."""
        self._all_from = entry.reads_from or self._all_from
        self._summarised_at = entry.seq

    def prune(self, entry: Compaction, view: Sequence[Message]) -> None:
        """Leave results of tools out of what is sent."""
        found = _pruned_before(entry.kept_from, view)
        # What is pruned already stays the same object: providers cache by it.
        self._pruned |= {
            message_id: (original, pruned)
            for message_id, (original, pruned) in found.items()
            if self._one_as_sent(original) is original
        }

    def as_sent(self, view: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return messages without the results that are left out."""
        return tuple(map(self._one_as_sent, view)) if self._pruned else view

    def _one_as_sent(self, message: Message) -> Message:
        original, pruned = self._pruned.get(message.id, (None, message))
        # A message that was changed since is sent as it is now. Not by identity: an edit of any
        # message makes all of them anew.
        return pruned if original == message else message


def _pruned_before(
    message_id: MessageId | None, view: Sequence[Message]
) -> dict[MessageId, tuple[Message, Message]]:
    """Return the messages before one whose results can be left out: as they are, and without them.

    A call keeps its result; only its content is another.
    """
    indexes = [index for index, message in enumerate(view) if message.id == message_id]
    found: dict[MessageId, tuple[Message, Message]] = {}
    for message in view[: indexes[0]] if indexes else ():
        if isinstance(message, UserMessage) and any(map(is_large, message.parts)):
            parts = tuple(_without_content(part) for part in message.parts)
            found[message.id] = (message, replace(message, parts=parts))
    return found


def is_large(part: Part) -> bool:
    """Whether a part is a result that is worth leaving out."""
    return isinstance(part, ToolResultPart) and _characters(part) >= _SMALLEST


def _without_content(part: Part) -> Part:
    if not isinstance(part, ToolResultPart) or not is_large(part):
        return part
    told = (
        f"[This result of {_characters(part)} characters is old and was left out. "
        "Call the tool again if you need it.]"
    )
    return replace(part, content=(TextPart(text=told),))


def _characters(part: ToolResultPart) -> int:
    """Count the characters of a result; data of media counts, too."""
    return sum(
        len(piece.text) if isinstance(piece, TextPart) else len(piece.data or "")
        for piece in part.content
    )
