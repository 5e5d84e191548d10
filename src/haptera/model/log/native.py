"""Entries about native agents; and the native session: up to which message, and its cost."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, TypeGuard

import msgspec

from haptera.model.ids import MessageId, QueryId
from haptera.model.json_types import JsonObject
from haptera.model.log.entry import DROPPED, KEPT, Entry, ImportRule
from haptera.model.log.sessions import SessionChanged, SessionOpened
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import MediaPart, TextPart, ToolResultPart
from haptera.model.usage import Usage

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold


class UsageReported(Entry, frozen=True, kw_only=True, tag="usage.reported"):
    """A provider reports its own usage and cost."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = KEPT
    usage: Usage | None = None
    model_usage: JsonObject | None = None
    total_cost_usd: Decimal | None = None

    def apply(self, fold: "SessionFold") -> None:
        """Keep the running total of the native session."""
        fold.native = fold.native.reported(self)


class TranscriptMirrored(Entry, frozen=True, kw_only=True, tag="transcript.mirrored"):
    """A native agent has written lines to the transcript of its session.

    In a log of their own beside the session's.
    """

    survives_rewind: ClassVar[bool] = True
    imported: ClassVar[ImportRule] = DROPPED
    lines: tuple[JsonObject, ...] = ()

    def apply(self, fold: "SessionFold") -> None:
        """Change nothing: it is for the native agent."""


class NativeSessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says of the session that a native agent keeps.

    `session.changed` names the native session, the last message that it was given or gave, and
    where its transcript ended when it had answered. All survive a rewind: the native session is not
    rewound by it.
    """

    session_id: str | None = None
    fork_of: str | None = None
    """The native session to go on with in a copy."""
    through: MessageId | None = None
    """The last message that the native session has."""
    total_cost: Decimal = Decimal(0)
    """The running total that it reported last."""
    sent_in: QueryId | None = None
    """The query in which it took that message."""
    entry: str | None = None
    """The last entry of its conversation when it had answered; None when that is not known."""
    entries: int = 0
    """How many entries its conversation had then."""
    answered: MessageId | None = None
    """The last message of ours then."""
    system: str | None = None
    """The digest of the system prompt that it began with."""

    def opened(self, entry: SessionOpened, tip: Message | None) -> "NativeSessionState":
        """Return the place of a session that begins, on top of what it inherits."""
        copies = entry.native_parent is not None
        begun = self if copies else NativeSessionState()
        return msgspec.structs.replace(
            begun,
            session_id=entry.native_session_id,
            fork_of=entry.native_parent,
            through=tip.id if copies and tip is not None else None,
        )

    def changed(self, entry: SessionChanged) -> "NativeSessionState":
        """Return the place after a change of the session."""
        changes, before = entry.changes, self
        named = changes.get("native_session_id", self.session_id)
        # A copy goes on from the running total of the session that it was copied from.
        if named != self.session_id and self.fork_of is None:
            before = NativeSessionState(through=self.through if named else None)
        after = msgspec.structs.replace(
            before,
            session_id=named,
            fork_of=None if "native_session_id" in changes else self.fork_of,
            system=changes.get("native_system", before.system),
        )
        if "native_through" not in changes:
            return after
        through = changes["native_through"]
        after = msgspec.structs.replace(after, through=through, sent_in=entry.query_id)
        if (last := changes.get("native_entry")) is None:
            return after
        count = changes.get("native_entries", 0)
        return msgspec.structs.replace(after, entry=last, entries=count, answered=through)

    def reported(self, entry: UsageReported) -> "NativeSessionState":
        """Return the place after the agent reported what it used."""
        total = entry.total_cost_usd
        return self if total is None else msgspec.structs.replace(self, total_cost=total)

    def left_behind(self) -> "NativeSessionState":
        """Return the place after an edit of the conversation: the native session has another."""
        return msgspec.structs.replace(self, through=None)

    def knows(self, messages: Sequence[Message]) -> bool:
        """Whether the native session has exactly this conversation.

        What follows the last message that it is known to have must be its own answer: a query that
        was cut off is recorded up to where it came.
        """
        for index in range(len(messages) - 1, -1, -1):
            if messages[index].id == self.through:
                asked_in = messages[index].query_id
                return all(item.query_id == asked_in for item in messages[index + 1 :])
        return not messages and self.session_id is None and self.fork_of is None

    def unanswered(self, messages: Sequence[Message]) -> Sequence[UserMessage]:
        """Return the prompts that were said since the native session had answered."""
        ids = [message.id for message in messages]
        begin = 0
        if self.answered in ids:
            begin = ids.index(self.answered) + 1
        elif self.through in ids:
            # Nothing was recorded of the transcript: only the last message is in doubt.
            begin = ids.index(self.through)
        return [message for message in messages[begin:] if holds_prompt(message)]


def holds_prompt(message: Message) -> TypeGuard[UserMessage]:
    """Whether a message is something that was said, and not only results of calls."""
    if not isinstance(message, UserMessage):
        return False
    kinds = {type(part) for part in message.parts}
    # A result of a tool may have media beside it.
    return TextPart in kinds or (MediaPart in kinds and ToolResultPart not in kinds)
