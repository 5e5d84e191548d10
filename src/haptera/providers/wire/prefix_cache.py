"""Prefix cache: keeps what was computed for the beginning of each conversation.

Messages are immutable and shared from turn to turn, and a conversation grows at its end. What was
computed for its beginning therefore stays valid, and a turn pays only for the messages it adds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from haptera.formats.lenient_json import encode_lenient
from haptera.model.json_types import JsonObject
from haptera.model.messages import Message, UserMessage

ValueT = TypeVar("ValueT")
AppendPieces: TypeAlias = Callable[[tuple[bytes, ...], Iterable[bytes]], tuple[bytes, ...]]

# For one generation; there are two, so a cache holds about twice as much at most.
_WEIGHT_LIMIT = 16 * 1024 * 1024


class _CacheEntry(msgspec.Struct, Generic[ValueT], frozen=True):
    messages: tuple[Message, ...]
    value: ValueT
    weight: int


class PrefixCache(Generic[ValueT]):
    """Keeps one value per conversation, and drops conversations that were not used lately.

    It has two generations. When the young one exceeds the limit it becomes the old one, and an
    entry of the old one survives only if it is used again: read or replaced. Conversations that
    begin with the very same message, such as forks, have one entry together, for the last of them.
    Threads that share a cache may lose entries, and never get a wrong one.
    """

    __slots__ = ("_old", "_weight", "_young")

    def __init__(self) -> None:
        self._weight = 0
        # Keyed by the identity of the first message. The entry holds that message, so that the
        # identity cannot be given to another object.
        self._young: dict[int, _CacheEntry[ValueT]] = {}
        self._old: dict[int, _CacheEntry[ValueT]] = {}

    def get(self, messages: tuple[Message, ...]) -> tuple[int, ValueT | None]:
        """Return the value that is kept of a beginning, and how many messages that has."""
        if not messages:
            return 0, None
        key = id(messages[0])
        entry = self._young.get(key) or self._old.get(key)
        # The comparison is one of identities for messages that are shared, as they nearly always
        # are.
        if entry is None or messages[: len(entry.messages)] != entry.messages:
            return 0, None
        if key not in self._young:
            self._keep(entry)
        return len(entry.messages), entry.value

    def put(self, messages: tuple[Message, ...], value: ValueT, *, weight: int) -> None:
        """Keep the value of `messages`, which takes about `weight` bytes."""
        if messages:
            self._keep(_CacheEntry(messages, value, weight))

    def _keep(self, entry: _CacheEntry[ValueT]) -> None:
        """Make an entry one of the young, in place of the one that it replaces."""
        key = id(entry.messages[0])
        replaced = self._young.pop(key, None)
        self._weight += entry.weight - (replaced.weight if replaced else 0)
        if self._weight > _WEIGHT_LIMIT:
            self._old, self._young, self._weight = self._young, {}, entry.weight
        # An entry is in one generation only: in both it would be held, and weigh, twice.
        self._old.pop(key, None)
        self._young[key] = entry


def stable_length(messages: tuple[Message, ...]) -> int:
    """Return how many of the first messages are sent unchanged in later turns.

    The last user message is not one of them: it may hold reminders and marks for this request only.
    """
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], UserMessage):
            return index
    return len(messages)


def append_apart(head: tuple[bytes, ...], added: Iterable[bytes]) -> tuple[bytes, ...]:
    """Append items of a JSON array, each as a piece of its own."""
    return (*head, *added)


def append_joined(head: tuple[bytes, ...], added: Iterable[bytes]) -> tuple[bytes, ...]:
    """Append items of a JSON array to pieces of one, so that few pieces stand for many items.

    Joining thousands of small pieces anew costs most of what a request of a long conversation
    does. A piece is joined to the one before it unless that is twice as large. So there are about
    as many pieces as the length has binary digits, and a byte is seldom copied more often.
    """
    pieces = list(head)
    for item in filter(None, added):
        first, size = len(pieces), len(item)
        while first and len(pieces[first - 1]) < 2 * size:
            first -= 1
            size += len(pieces[first])
        pieces[first:] = [b",".join((*pieces[first:], item))]
    return tuple(pieces)


class EncodedMessages:
    """Encodes the messages of conversations, each message once. For one model and endpoint."""

    def __init__(self, append: AppendPieces = append_joined) -> None:
        self._append = append
        self._cache: PrefixCache[tuple[bytes, ...]] = PrefixCache()

    def encode(
        self, messages: tuple[Message, ...], lower: Callable[[Message], Sequence[JsonObject]]
    ) -> tuple[bytes, ...]:
        """Return pieces of an array of the objects that `lower` makes of the messages."""
        stable = stable_length(messages)
        length, head = self._cache.get(messages)
        # After a rewind, what is cached may end behind the last user message.
        if head is None or length > stable:
            length, head = 0, ()
        head = self._append(head, _items(messages[length:stable], lower))
        self._cache.put(messages[:stable], head, weight=sum(map(len, head)))
        return (*head, *_items(messages[stable:], lower))


def _items(
    messages: Iterable[Message], lower: Callable[[Message], Sequence[JsonObject]]
) -> Iterator[bytes]:
    # The brackets of each list are cut off: the pieces become items of one array.
    return (encode_lenient(lower(message))[1:-1] for message in messages)


def body_with_array(fields: JsonObject, name: str, pieces: Sequence[bytes]) -> bytes:
    """Return a JSON object of `fields` and, under `name`, the array whose content is `pieces`."""
    parts = [b'%b,"%b":[' % (encode_lenient(fields)[:-1], name.encode())]
    for piece in filter(None, pieces):
        parts += (piece, b",")
    if len(parts) > 1:
        parts.pop()  # the comma behind the last one
    # All is joined in one go, so that a long conversation is copied once.
    return b"".join((*parts, b"]}"))
