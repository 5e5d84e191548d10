"""Encodes each message of a conversation only once, so that a turn's cost does not grow with it."""

from collections.abc import Callable, Sequence

from holdfast.providers.prefix_memo import PrefixMemo, settled_length
from holdfast.providers.wire.lenient_json import encode_lenient
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import Message


class MessageBytes:
    """What was made of messages, each as the inside of a JSON array. For one model and endpoint."""

    def __init__(self) -> None:
        self._memo: PrefixMemo[tuple[bytes, ...]] = PrefixMemo()

    def of(
        self, messages: tuple[Message, ...], make: Callable[[Message], Sequence[JsonObject]]
    ) -> list[bytes]:
        """Return, for each message, the objects that `make` makes of it, with commas between."""
        known, made = self._memo.recall(messages)
        pieces = list(made or ())
        pieces += [encode_lenient(make(message))[1:-1] for message in messages[known:]]
        settled = settled_length(messages)
        if settled > known:
            kept = tuple(pieces[:settled])
            self._memo.keep(messages[:settled], kept, weight=sum(map(len, kept)))
        return pieces


def body_with(fields: JsonObject, name: str, pieces: Sequence[bytes]) -> bytes:
    """Return an object of `fields` and, under `name`, the array that `pieces` make up."""
    array = b",".join(piece for piece in pieces if piece)
    return b'%b,"%b":[%b]}' % (encode_lenient(fields)[:-1], name.encode(), array)
