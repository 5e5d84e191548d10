"""Chat Completions: the API of OpenAI that many other servers offer, too, each as a dialect."""

from functools import partial

from haptera.providers.wire.accepted_inputs import TEXT_ONLY_MODELS
from haptera.providers.wire.chat_completions.dialects import GENERIC, Dialect
from haptera.providers.wire.chat_completions.reply import ChatDecoder
from haptera.providers.wire.chat_completions.reply_format import ERRORS
from haptera.providers.wire.chat_completions.request import RequestEncoder
from haptera.providers.wire.protocol import HistoryRules, SchemaTargets, WireProtocol

_STRICT = SchemaTargets(arguments="openai", output=("openai_strict", "openai"))
_PLAIN = SchemaTargets(arguments="openai")


def protocol_for(dialect: Dialect = GENERIC) -> WireProtocol:
    """Return the protocol for one dialect."""
    return WireProtocol(
        name=f"chat-completions/{dialect.name}",
        framing="sse",
        new_encoder=partial(RequestEncoder, dialect),
        decoder=partial(ChatDecoder, dialect.cost),
        classify=ERRORS.error_of_reply,
        schema_targets=lambda _model: _STRICT if dialect.strict_output else _PLAIN,
        history=HistoryRules(
            call_id_pattern=dialect.call_id_pattern,
            reasoning="never" if dialect.messages.reasoning_replay == "never" else "same_model",
            media=dialect.media,
            linked_media=("image/",) if dialect.messages.media_urls else (),
            result_media=dialect.result_media,
            media_models=dialect.media_models,
            text_models=TEXT_ONLY_MODELS,
        ),
    )


PROTOCOL = protocol_for()
