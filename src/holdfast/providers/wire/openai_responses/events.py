"""The events of an OpenAI Responses stream, as far as they are looked at.

One struct fits every event, so that the hot path is one typed decode; what only some events hold
stays raw until it is needed. An event that does not fit is read leniently: fields of a wrong type
count as absent.
"""

from decimal import Decimal

import msgspec

from holdfast.vocabulary.json_types import Json, JsonObject
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
_USD_TICKS = Decimal(10) ** 10
_decode = msgspec.json.Decoder(Event).decode
_decode_any = msgspec.json.Decoder().decode


def read_event(data: bytes) -> Event:
    """Decode one event; raises msgspec.DecodeError if it is not a JSON object."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        return _read_leniently(data)


def _read_leniently(data: bytes) -> Event:
    value: Json = _decode_any(data)
    if not isinstance(value, dict):
        return Event()
    event = Event()
    for name, wanted in _FIELD_TYPES.items():
        if isinstance(found := value.get(name), wanted):
            raw = wanted is dict
            setattr(event, name, msgspec.Raw(msgspec.json.encode(found)) if raw else found)
    return event


_FIELD_TYPES: dict[str, type] = {
    **dict.fromkeys(("type", "delta", "item_id", "text", "refusal", "arguments", "input"), str),
    **dict.fromkeys(("output_index", "content_index", "summary_index", "sequence_number"), int),
    **dict.fromkeys(("item", "response"), dict),
}


def read_any(data: bytes | msgspec.Raw) -> JsonObject:
    """Decode a JSON object; anything else, or nothing, counts as an empty one."""
    value: Json = _decode_any(data) if bytes(data) else None
    return value if isinstance(value, dict) else {}


def usage_of(response: JsonObject) -> Usage:
    """Return what a response used: its totals are inclusive already."""
    try:
        tokens = msgspec.convert(response.get("usage") or {}, _Tokens)
    except msgspec.ValidationError:
        return Usage()
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
    """Return what the provider says it billed: OpenRouter in dollars, xAI in ticks of 1e-10."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    if isinstance(cost := usage.get("cost"), int | float):
        return Decimal(str(cost))
    if isinstance(ticks := usage.get("cost_in_usd_ticks"), int):
        return Decimal(ticks) / _USD_TICKS
    return None
