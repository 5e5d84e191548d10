"""OpenAI Chat Completions and everything that speaks it: one protocol, its dialects as data."""

from functools import partial

from holdfast.providers.schema_rules import SchemaTargets
from holdfast.providers.wire.accepted_kinds import TEXT_MODELS
from holdfast.providers.wire.chat_completions.dialects import GENERIC, Dialect
from holdfast.providers.wire.chat_completions.errors import ERRORS
from holdfast.providers.wire.chat_completions.reply import ChatDecoder
from holdfast.providers.wire.chat_completions.request import RequestEncoder, encode_request
from holdfast.providers.wire.protocol import HistoryRules, WireProtocol

_STRICT = SchemaTargets(arguments="openai", output=("openai_strict", "openai"))
_PLAIN = SchemaTargets(arguments="openai")


def chat_protocol(dialect: Dialect = GENERIC) -> WireProtocol:
    """Return Chat Completions as `dialect` speaks it."""
    return WireProtocol(
        name=f"chat-completions/{dialect.name}",
        framing="sse",
        encode_request=partial(encode_request, dialect=dialect),
        new_encoder=partial(RequestEncoder, dialect),
        decoder=partial(ChatDecoder, dialect.cost),
        classify=ERRORS.error_of_reply,
        schema_targets=lambda _model: _STRICT if dialect.strict_output else _PLAIN,
        history=HistoryRules(
            call_id_pattern=dialect.call_id_pattern,
            reasoning="never" if dialect.reasoning_replay == "never" else "same_model",
            media=dialect.media,
            linked_media=("image/",) if dialect.media_urls else (),
            result_media=dialect.result_media,
            media_models=dialect.media_models,
            text_models=TEXT_MODELS,
        ),
    )


PROTOCOL = chat_protocol()
