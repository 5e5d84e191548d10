"""Prefix cache: keeps what was computed for the beginning of each conversation.

Messages are immutable and shared from turn to turn, and a conversation grows at its end. What was
computed for its beginning therefore stays valid, and a turn pays only for the messages it adds.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from holdfast.providers.wire.lenient_decoding import encode_lenient
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import Message, UserMessage

ValueT = TypeVar("ValueT")

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


class EncodedMessages:
    """Encodes the messages of conversations, each message once. For one model and endpoint."""

    def __init__(self) -> None:
        self._cache: PrefixCache[tuple[bytes, ...]] = PrefixCache()

    def encode(
        self, messages: tuple[Message, ...], lower: Callable[[Message], Sequence[JsonObject]]
    ) -> list[bytes]:
        """Return, for each message, the objects that `lower` makes of it, joined with commas."""
        known, before = self._cache.get(messages)
        pieces = list(before or ())
        # The brackets of each list are cut off: the pieces become items of one array.
        pieces += [encode_lenient(lower(message))[1:-1] for message in messages[known:]]
        stable = stable_length(messages)
        if stable > known:
            kept = tuple(pieces[:stable])
            self._cache.put(messages[:stable], kept, weight=sum(map(len, kept)))
        return pieces


def body_with_array(fields: JsonObject, name: str, pieces: Sequence[bytes]) -> bytes:
    """Return a JSON object of `fields` and, under `name`, the array whose content is `pieces`."""
    opening = b'%b,"%b":[' % (encode_lenient(fields)[:-1], name.encode())
    first, *more = [piece for piece in pieces if piece] or [b""]
    # All is joined in one go, so that a long conversation is copied once.
    if not more:
        return b"".join((opening, first, b"]}"))
    more[-1] += b"]}"
    return b",".join((opening + first, *more))
