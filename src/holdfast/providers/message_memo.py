"""A memory of what was made of a message, keyed by the message object itself.

Messages are immutable and shared from turn to turn, so what was made of one stays true. A memo
holds the message, too, so that its identity cannot be taken over by another object.
"""

from typing import Generic, TypeVar

from holdfast.vocabulary.messages import Message

MadeT = TypeVar("MadeT")

_WEIGHT_LIMIT = 16 * 1024 * 1024


class MessageMemo(Generic[MadeT]):
    """Remembers one value per message, and forgets those that were not asked for lately.

    It keeps two generations: when the young one weighs too much it becomes the old one, and what is
    in the old one lives on only if somebody asks for it. Not for use from two threads at once.
    """

    __slots__ = ("_limit", "_old", "_weight", "_young")

    def __init__(self, *, limit: int = _WEIGHT_LIMIT) -> None:
        self._limit = limit
        self._weight = 0
        self._young: dict[int, tuple[Message, MadeT, int]] = {}
        self._old: dict[int, tuple[Message, MadeT, int]] = {}

    def get(self, message: Message) -> MadeT | None:
        """Return what was kept for this very object."""
        key = id(message)
        if found := self._young.get(key):
            return found[1]
        if found := self._old.get(key):
            self.put(message, found[1], weight=found[2])
            return found[1]
        return None

    def put(self, message: Message, made: MadeT, *, weight: int) -> None:
        """Keep `made`, which takes about `weight` bytes."""
        if self._weight + weight > self._limit:
            self._old, self._young, self._weight = self._young, {}, 0
        self._young[id(message)] = (message, made, weight)
        self._weight += weight
