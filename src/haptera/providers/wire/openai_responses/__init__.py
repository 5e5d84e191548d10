"""OpenAI Responses: the API of OpenAI, Azure, OpenRouter, xAI, DeepSeek and others."""

from functools import partial

from haptera.providers.wire.accepted_inputs import TEXT_ONLY_MODELS
from haptera.providers.wire.openai_responses.dialects import OPENAI, ResponsesDialect
from haptera.providers.wire.openai_responses.reply import ResponsesDecoder
from haptera.providers.wire.openai_responses.reply_format import ERRORS
from haptera.providers.wire.openai_responses.request import (
    RequestEncoder,
    decode_count,
    encode_count,
)
from haptera.providers.wire.protocol import HistoryRules, SchemaTargets, WireProtocol

_SCHEMAS = SchemaTargets(arguments="openai", output=("openai_strict", "openai"))


def protocol_for(dialect: ResponsesDialect = OPENAI) -> WireProtocol:
    """Return the protocol for one dialect."""
    return WireProtocol(
        name="openai-responses",
        framing="sse",
        new_encoder=partial(RequestEncoder, dialect),
        decoder=ResponsesDecoder,
        classify=ERRORS.error_of_reply,
        schema_targets=lambda _model: _SCHEMAS,
        history=HistoryRules(
            media=dialect.media,
            result_media=dialect.result_media,
            media_models=dialect.media_models,
            text_models=TEXT_ONLY_MODELS,
        ),
        encode_count=partial(encode_count, dialect=dialect) if dialect.can_count else None,
        decode_count=decode_count if dialect.can_count else None,
    )


PROTOCOL = protocol_for()
