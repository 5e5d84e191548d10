"""FoldPoints: states of a session at earlier entries, from which it can be folded anew.

A rewind needs the session as it was at an earlier entry. Folding begins at the last point before
that one, and only what follows the point is read again. A point holds positions and settings, and
no message but the last: what came before it stays in the conversation as it is. So whatever changes
earlier messages drops the points.
"""

import copy
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from haptera.model.log.conversation import Conversation
from haptera.model.log.entry import Entry
from haptera.model.log.history import Rewound
from haptera.model.messages import Message

_DISTANCE = 500
"""How many entries lie between two points at least."""
_KEPT_ELSEWHERE = frozenset(
    {"conversation", "compacted", "points", "unended", "calls", "approvals", "child_answers"}
)
"""What a point does not hold: it is long, or empty whenever a point is taken."""


class FoldPoint(msgspec.Struct, frozen=True):
    """A session after the entry `seq`: how long its conversation was, and what else there was."""

    seq: int
    length: int
    tip: Message | None
    state: dict[str, Any]

    def needs_only(self, entries: Sequence[Entry]) -> bool:
        """Whether none of the entries after it goes back to before it."""
        return all(entry.to_seq >= self.seq for entry in entries if isinstance(entry, Rewound))


class FoldPoints:
    """The points of one session, in their order; all of them lie on its current path."""

    def __init__(self, points: Sequence[FoldPoint] = ()) -> None:
        self._points = list(points)

    def offer(self, fold: Mapping[str, Any], seq: int) -> None:
        """Take a point after the entry `seq`, if the last one is far away and nothing is open.

        `fold` has the attributes of the session's fold.
        """
        last = self._points[-1].seq if self._points else 0
        if seq - last < _DISTANCE or fold["open_turn"] is not None:
            return
        conversation = fold["conversation"]
        if fold["calls"] or fold["approvals"] or fold["child_answers"]:
            return
        if isinstance(conversation, Conversation):
            state = {
                name: _copied(value) for name, value in fold.items() if name not in _KEPT_ELSEWHERE
            }
            self._points.append(FoldPoint(seq, len(conversation), conversation.tip, state))

    def clear(self) -> None:
        """Forget all points: messages before them have changed."""
        self._points.clear()

    def until(self, seq: int) -> FoldPoint | None:
        """Return the last point that is not after an entry."""
        index = bisect_right(self._points, seq, key=lambda point: point.seq)
        return self._points[index - 1] if index else None

    def before_message(self, index: int) -> FoldPoint | None:
        """Return the last point at which the message with this index was not there yet."""
        # A conversation only grows from one point to the next.
        place = bisect_right(self._points, index, key=lambda point: point.length)
        return self._points[place - 1] if place else None

    def after_message(self, index: int) -> FoldPoint | None:
        """Return the first point at which the message with this index was not the last any more."""
        place = bisect_right(self._points, index + 1, key=lambda point: point.length)
        return self._points[place] if place < len(self._points) else None

    def restored(self, point: FoldPoint, fold: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes that a session's fold had at one of its points."""
        state = {name: _copied(value) for name, value in point.state.items()}
        return state | {
            "conversation": fold["conversation"].shortened(point.length, point.tip),
            "compacted": fold["compacted"].until(point.seq),
            "points": FoldPoints([each for each in self._points if each.seq <= point.seq]),
        }


def copied_fold(fold: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a session's fold for another session, which changes its own ones."""
    conversation = fold["conversation"]
    state = {name: _copied(value) for name, value in fold.items()}
    return state | {
        "conversation": conversation.shortened(len(conversation), conversation.tip),
        "compacted": fold["compacted"].until(fold["head"]),
        "points": FoldPoints(),
    }


def kept_fold(fold: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a session's fold that goes on with another conversation."""
    goes_on = ("conversation", "compacted", "points")
    return {name: each if name in goes_on else _copied(each) for name, each in fold.items()}


def _copied(value: object) -> object:
    """Copy what the fold changes in place: its containers, and those of its helpers."""
    if isinstance(value, dict | list):
        return copy.copy(value)
    if isinstance(value, msgspec.Struct) or not hasattr(value, "__dict__"):
        return value
    copied = copy.copy(value)
    vars(copied).update({name: _copied(each) for name, each in vars(value).items()})
    return copied
