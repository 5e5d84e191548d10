"""OpenAI Responses: the events of a stream, and how usage, cost and errors are read.

One struct fits every event, so that the hot path is one typed decode. Content that only some events
have stays undecoded until it is needed. An event that does not fit is decoded leniently: fields of
the wrong type count as absent.
"""

from collections.abc import Callable
from decimal import Decimal

import msgspec

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json, JsonObject
from haptera.model.usage import Usage
from haptera.providers.wire.failures import Failure, FailureRules, code_table, status_among
from haptera.providers.wire.lenient_decoding import (
    as_text,
    convert_leniently,
    cost_in_dollars,
    cost_in_ticks,
    decode_lenient,
)


class Event(msgspec.Struct, gc=False):
    """An event of any type."""

    # In the order in which text deltas have them, which is the fastest to decode.
    type: str = ""
    sequence_number: int | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    delta: str = ""
    summary_index: int | None = None
    text: str = ""
    refusal: str = ""
    arguments: str = ""
    input: str = ""
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()


class TextDelta(msgspec.Struct, gc=False, tag_field="type"):
    """An event that adds text to a piece, as most events do; no other field of it matters."""

    sequence_number: int | None = None
    item_id: str | None = None
    output_index: int | None = None
    delta: str = ""
    index: int | None = None
    """Of the piece in its item."""


class OutputTextDelta(TextDelta, gc=False, tag="response.output_text.delta"):
    """More of the answer."""

    index: int | None = msgspec.field(default=None, name="content_index")


class ReasoningTextDelta(TextDelta, gc=False, tag="response.reasoning_text.delta"):
    """More reasoning."""

    index: int | None = msgspec.field(default=None, name="content_index")


class SummaryTextDelta(TextDelta, gc=False, tag="response.reasoning_summary_text.delta"):
    """More of a summary of the reasoning."""

    index: int | None = msgspec.field(default=None, name="summary_index")


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
decode_event = msgspec.json.Decoder(Event).decode
"""Decodes one event; raises one of `DECODE_ERRORS` for what is decoded leniently."""

TEXT_DELTAS: dict[str, type[TextDelta]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (OutputTextDelta, ReasoningTextDelta, SummaryTextDelta)
}
decode_text_delta: Callable[[bytes], TextDelta] = msgspec.json.Decoder(
    OutputTextDelta | ReasoningTextDelta | SummaryTextDelta
).decode
"""Decodes an event that adds text; raises one of `DECODE_ERRORS` for any other."""


def read_object(data: bytes | msgspec.Raw) -> JsonObject:
    """Decode a JSON object; anything else counts as an empty one."""
    value = decode_lenient(bytes(data)) if bytes(data) else None
    return value if isinstance(value, dict) else {}


def read_usage(response: JsonObject) -> Usage:
    """Return the usage of a response; its totals are inclusive already."""
    reported = response.get("usage")
    tokens = convert_leniently(reported if isinstance(reported, dict) else {}, _Tokens)
    into = tokens.input_tokens_details or _NO_DETAILS
    out_of = tokens.output_tokens_details or _NO_DETAILS
    return Usage(
        input=tokens.input_tokens or 0,
        output=tokens.output_tokens or 0,
        cache_read=into.cached_tokens or 0,
        cache_write=into.cache_write_tokens or 0,
        reasoning=out_of.reasoning_tokens or 0,
    )


def read_cost(response: JsonObject) -> Decimal | None:
    """Return the cost that the provider reports, if any: routers in dollars, xAI in ticks."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    cost = cost_in_dollars(usage)
    return cost_in_ticks(usage) if cost is None else cost


# Errors

CODES = code_table(
    {
        ErrorCode.AUTH: "invalid_authentication",
        ErrorCode.QUOTA: "usage_limit_reached",
        ErrorCode.RATE_LIMITED: "slow_down",
        ErrorCode.OVERLOADED: "server_is_overloaded",
        ErrorCode.MODEL_NOT_FOUND: "unsupported_model",
        ErrorCode.CONTEXT_LENGTH: "string_above_max_length",
        ErrorCode.CONTENT_FILTER: "image_content_policy_violation invalid_prompt bio_policy"
        " cyber_policy",
        ErrorCode.SERVER_ERROR: "internal_error vector_store_timeout",
        ErrorCode.BAD_REQUEST: "previous_response_not_found",
    }
)


def _read(report: Json) -> Failure:
    outer = report if isinstance(report, dict) else {}
    inner = outer.get("error")
    # xAI sends the message as a string under `error`, and the code beside it.
    details = inner if isinstance(inner, dict) else outer
    return Failure(
        codes=tuple(str(details[name]) for name in ("code", "type") if details.get(name)),
        message=inner if isinstance(inner, str) else as_text(details.get("message")),
        status=status_among(details.get("code"), outer.get("status"), outer.get("status_code")),
    )


ERRORS = FailureRules(read=_read, codes=CODES)
