"""The events of an OpenAI Responses stream, as far as they are looked at.

One struct fits every event, so that the hot path is one typed decode; what only some events hold
stays raw until it is needed. An event that does not fit is read leniently: fields of a wrong type
count as absent.
"""

from decimal import Decimal

import msgspec

from holdfast.providers.wire.billed_cost import cost_in_dollars, cost_in_ticks
from holdfast.providers.wire.lenient_json import UNREADABLE, decode_lenient
from holdfast.providers.wire.what_fits import keep_what_fits
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.usage import Usage


class Event(msgspec.Struct, gc=False):
    """Any event."""

    type: str = ""
    delta: str = ""
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    sequence_number: int | None = None
    text: str = ""
    refusal: str = ""
    arguments: str = ""
    input: str = ""
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()


class _TokenDetails(msgspec.Struct):
    cached_tokens: int | None = 0
    cache_write_tokens: int | None = 0
    reasoning_tokens: int | None = 0


class _Tokens(msgspec.Struct):
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    input_tokens_details: _TokenDetails | None = None
    output_tokens_details: _TokenDetails | None = None


_NO_DETAILS = _TokenDetails()
_decode = msgspec.json.Decoder(Event).decode


def read_event(data: bytes) -> Event:
    """Decode one event; raises PROTOCOL if it is not JSON."""
    try:
        return _decode(data)
    except UNREADABLE:
        value = decode_lenient(data)
        return keep_what_fits(value, Event) if isinstance(value, dict) else Event()


def read_any(data: bytes | msgspec.Raw) -> JsonObject:
    """Decode a JSON object; anything else, or nothing, counts as an empty one."""
    value = decode_lenient(bytes(data)) if bytes(data) else None
    return value if isinstance(value, dict) else {}


def usage_of(response: JsonObject) -> Usage:
    """Return what a response used: its totals are inclusive already."""
    reported = response.get("usage")
    tokens = keep_what_fits(reported if isinstance(reported, dict) else {}, _Tokens)
    into = tokens.input_tokens_details or _NO_DETAILS
    out_of = tokens.output_tokens_details or _NO_DETAILS
    return Usage(
        input=tokens.input_tokens or 0,
        output=tokens.output_tokens or 0,
        cache_read=into.cached_tokens or 0,
        cache_write=into.cache_write_tokens or 0,
        reasoning=out_of.reasoning_tokens or 0,
    )


def cost_of(response: JsonObject) -> Decimal | None:
    """Return what the provider says it billed: routers in dollars, xAI in ticks."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    cost = cost_in_dollars(usage)
    return cost_in_ticks(usage) if cost is None else cost
