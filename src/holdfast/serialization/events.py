"""Events to JSON, for wires and files: an entry as it is stored, a delta without a `seq`."""

import msgspec

from holdfast.serialization.entries import encode_entry
from holdfast.vocabulary.entries import Entry
from holdfast.vocabulary.events import Event

_encoder = msgspec.json.Encoder()


def encode_event(event: Event) -> bytes:
    """Write an event as one line of JSON without a line end."""
    return encode_entry(event) if isinstance(event, Entry) else _encoder.encode(event)
