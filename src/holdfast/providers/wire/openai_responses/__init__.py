"""OpenAI Responses on the wire: what OpenAI, Azure, OpenRouter, xAI, DeepSeek and others speak."""

from functools import partial

import msgspec

from holdfast.providers.wire.openai_responses.dialects import OPENAI, ResponsesDialect
from holdfast.providers.wire.openai_responses.errors import classify
from holdfast.providers.wire.openai_responses.reply import ResponsesDecoder
from holdfast.providers.wire.openai_responses.request import encode_count, encode_request
from holdfast.providers.wire.protocol import HistoryRules, WireProtocol

HISTORY = HistoryRules(
    media=("image/", "application/pdf"), result_media=("image/", "application/pdf")
)


class _Count(msgspec.Struct):
    input_tokens: int


def decode_count(body: bytes) -> int:
    """Read how many tokens a request holds."""
    return msgspec.json.decode(body, type=_Count).input_tokens


def responses_protocol(dialect: ResponsesDialect = OPENAI) -> WireProtocol:
    """Return the protocol as `dialect` speaks it."""
    return WireProtocol(
        name="openai_responses",
        framing="sse",
        encode_request=partial(encode_request, dialect=dialect),
        decoder=ResponsesDecoder,
        classify=classify,
        history=HISTORY,
        encode_count=partial(encode_count, dialect=dialect) if dialect.can_count else None,
        decode_count=decode_count if dialect.can_count else None,
    )


PROTOCOL = responses_protocol()
