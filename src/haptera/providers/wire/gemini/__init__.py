"""Gemini generateContent: the Gemini API and Vertex AI."""

from functools import partial

from haptera.providers.wire.accepted_inputs import JPEG
from haptera.providers.wire.gemini.dialects import (
    GEMINI_API,
    GeminiDialect,
    takes_json_schema,
)
from haptera.providers.wire.gemini.reply import GeminiDecoder
from haptera.providers.wire.gemini.reply_format import ERRORS
from haptera.providers.wire.gemini.request import (
    RequestEncoder,
    decode_count,
    encode_count,
)
from haptera.providers.wire.protocol import HistoryRules, SchemaTargets, WireProtocol

_IMAGES = ("image/png", *JPEG, "image/webp", "image/heic", "image/heif")
HISTORY = HistoryRules(
    tool_name_pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$",
    media=(*_IMAGES, "application/pdf", "audio/", "video/", "text/"),
    result_media=(*_IMAGES, "application/pdf"),
)


# What OpenAPI's subset cannot say, such as a type that refers to itself, is asked for in words.
_OLDER = SchemaTargets(arguments="gemini", output=("gemini", "any"))
_NEWER = SchemaTargets(arguments="gemini_json_schema", output=("gemini_json_schema",))


def _schema_targets(model: str) -> SchemaTargets:
    return _NEWER if takes_json_schema(model) else _OLDER


def protocol_for(dialect: GeminiDialect = GEMINI_API) -> WireProtocol:
    """Return the protocol for one dialect."""
    return WireProtocol(
        name="gemini",
        framing="sse",
        new_encoder=partial(RequestEncoder, dialect),
        decoder=GeminiDecoder,
        classify=ERRORS.error_of_reply,
        schema_targets=_schema_targets,
        history=HISTORY,
        encode_count=partial(encode_count, dialect=dialect),
        decode_count=decode_count,
    )


PROTOCOL = protocol_for()
