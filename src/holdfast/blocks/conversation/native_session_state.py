"""NativeSessionState: the native session of a session, up to which message, and what it has cost.

A module of its own because the fold is as long as a module may be.
"""

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from holdfast.vocabulary.entries import SessionOpened, UsageReported
from holdfast.vocabulary.ids import MessageId
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import Message


class NativeSessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says of the session that a native agent keeps.

    `session.changed` names the native session and the last message that it was given or gave. Both
    survive a rewind: the native session is not rewound by it.
    """

    session_id: str | None = None
    fork_of: str | None = None
    """The native session to go on with in a copy."""
    through: MessageId | None = None
    """The last message that the native session has."""
    total_cost: Decimal = Decimal(0)
    """The running total that it reported last."""

    def opened(self, entry: SessionOpened, tip: Message | None) -> "NativeSessionState":
        """Return the place of a session that begins, on top of what it inherits."""
        copies = entry.native_parent is not None
        return NativeSessionState(
            session_id=entry.native_session_id,
            fork_of=entry.native_parent,
            through=tip.id if copies and tip is not None else None,
            total_cost=self.total_cost if copies else Decimal(0),
        )

    def changed(self, changes: JsonObject) -> "NativeSessionState":
        """Return the place after a change of the session."""
        named = changes.get("native_session_id", self.session_id)
        # A copy goes on from the running total of the session that it was copied from.
        is_other = named != self.session_id and self.fork_of is None
        return NativeSessionState(
            session_id=named,
            fork_of=None if "native_session_id" in changes else self.fork_of,
            through=changes.get("native_through", self.through),
            total_cost=Decimal(0) if is_other else self.total_cost,
        )

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
