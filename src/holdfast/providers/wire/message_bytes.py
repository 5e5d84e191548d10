"""Encodes each message of a conversation only once, so that a turn's cost does not grow with it."""

from collections.abc import Callable, Sequence

from holdfast.providers.message_memo import MessageMemo
from holdfast.providers.wire.lenient_json import encode_lenient
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import Message


class MessageBytes:
    """What was made of messages, as the inside of a JSON array. For one model and endpoint."""

    def __init__(self) -> None:
        self._memo: MessageMemo[bytes] = MessageMemo()

    def of(self, message: Message, make: Callable[[Message], Sequence[JsonObject]]) -> bytes:
        """Return the objects that `make` makes of `message`, with commas between them."""
        known = self._memo.get(message)
        if known is None:
            known = encode_lenient(make(message))[1:-1]
            self._memo.put(message, known, weight=len(known))
        return known


def body_with(fields: JsonObject, name: str, pieces: Sequence[bytes]) -> bytes:
    """Return an object of `fields` and, under `name`, the array that `pieces` make up."""
    array = b",".join(piece for piece in pieces if piece)
    return b'%b,"%b":[%b]}' % (encode_lenient(fields)[:-1], name.encode(), array)
