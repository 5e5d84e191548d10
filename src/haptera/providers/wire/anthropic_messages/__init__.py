"""Anthropic Messages: the API of Anthropic's models."""

from haptera.formats.anthropic_messages.encoding import DOCUMENT_TYPES, IMAGE_TYPES
from haptera.providers.wire.anthropic_messages.models import traits_of
from haptera.providers.wire.anthropic_messages.reply import MessagesDecoder
from haptera.providers.wire.anthropic_messages.reply_format import ERRORS
from haptera.providers.wire.anthropic_messages.request import (
    RequestEncoder,
    decode_count,
    encode_count,
)
from haptera.providers.wire.protocol import HistoryRules, SchemaTargets, WireProtocol

_STRICT = SchemaTargets(arguments="anthropic", output=("anthropic_strict", "anthropic"))
_BY_TOOL = SchemaTargets(arguments="anthropic", output=("anthropic",))


def _schema_targets(model: str) -> SchemaTargets:
    return _STRICT if traits_of(model).takes_output_schema else _BY_TOOL


PROTOCOL = WireProtocol(
    name="anthropic-messages",
    framing="sse",
    new_encoder=RequestEncoder,
    decoder=MessagesDecoder,
    classify=ERRORS.error_of_reply,
    schema_targets=_schema_targets,
    history=HistoryRules(
        call_id_pattern=r"^[A-Za-z0-9_-]{1,64}$",
        tool_name_pattern=r"^[A-Za-z0-9_-]{1,128}$",
        reasoning="same_model",
        media=(*IMAGE_TYPES, *DOCUMENT_TYPES),
        result_media=(*IMAGE_TYPES, *DOCUMENT_TYPES),
    ),
    encode_count=encode_count,
    decode_count=decode_count,
)
