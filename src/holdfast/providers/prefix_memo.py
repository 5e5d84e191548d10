"""A memory of what was made of the beginning of each conversation.

Messages are immutable and shared from turn to turn, and a conversation grows at its end. So what
was made of its beginning stays true, and a turn only pays for what it added.
"""

from typing import Generic, TypeVar

import msgspec

from holdfast.vocabulary.messages import Message, UserMessage

MadeT = TypeVar("MadeT")

_WEIGHT_LIMIT = 16 * 1024 * 1024


class _Kept(msgspec.Struct, Generic[MadeT], frozen=True):
    seen: tuple[Message, ...]
    made: MadeT
    weight: int


class PrefixMemo(Generic[MadeT]):
    """Remembers one value per conversation, and forgets those that were not asked for lately.

    It keeps two generations: when the young one weighs too much it becomes the old one, and what is
    in the old one lives on only if somebody asks for it. Not for use from two threads at once.
    """

    __slots__ = ("_limit", "_old", "_weight", "_young")

    def __init__(self, *, limit: int = _WEIGHT_LIMIT) -> None:
        self._limit = limit
        self._weight = 0
        # By the first message: an entry holds it, so its identity cannot pass to another object.
        self._young: dict[int, _Kept[MadeT]] = {}
        self._old: dict[int, _Kept[MadeT]] = {}

    def recall(self, messages: tuple[Message, ...]) -> tuple[int, MadeT | None]:
        """Return for how many of the first messages a value is known, and that value."""
        if not messages:
            return 0, None
        key = id(messages[0])
        kept = self._young.get(key) or self._old.get(key)
        if kept is None or messages[: len(kept.seen)] != kept.seen:
            return 0, None
        return len(kept.seen), kept.made

    def keep(self, seen: tuple[Message, ...], made: MadeT, *, weight: int) -> None:
        """Remember what was made of `seen`; it takes about `weight` bytes."""
        if not seen:
            return
        replaced = self._young.pop(id(seen[0]), None)
        self._weight += weight - (replaced.weight if replaced else 0)
        if self._weight > self._limit:
            self._old, self._young, self._weight = self._young, {}, weight
        self._young[id(seen[0])] = _Kept(seen, made, weight)


def settled_length(messages: tuple[Message, ...]) -> int:
    """Return how many of the first messages will be sent the same in later turns.

    The last user message is not one of them: it may carry notes and marks of this request only.
    """
    for place in range(len(messages) - 1, -1, -1):
        if isinstance(messages[place], UserMessage):
            return place
    return len(messages)
