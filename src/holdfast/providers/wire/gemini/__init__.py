"""Gemini generateContent on the wire: the Gemini API and Vertex AI."""

from functools import partial

from holdfast.providers.schema_rules import SchemaTargets
from holdfast.providers.wire.accepted_kinds import JPEG
from holdfast.providers.wire.gemini.dialects import GEMINI_API, GeminiDialect
from holdfast.providers.wire.gemini.errors import ERRORS
from holdfast.providers.wire.gemini.reply import GeminiDecoder
from holdfast.providers.wire.gemini.request import (
    RequestEncoder,
    decode_count,
    encode_count,
    encode_request,
)
from holdfast.providers.wire.gemini.schemas import takes_json_schema
from holdfast.providers.wire.protocol import HistoryRules, WireProtocol

_PICTURES = ("image/png", *JPEG, "image/webp", "image/heic", "image/heif")
HISTORY = HistoryRules(
    tool_name_pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$",
    media=(*_PICTURES, "application/pdf", "audio/", "video/", "text/"),
    result_media=(*_PICTURES, "application/pdf"),
)


_OLDER = SchemaTargets(arguments="gemini", output=("gemini",))
_NEWER = SchemaTargets()


def _schema_targets(model: str) -> SchemaTargets:
    return _NEWER if takes_json_schema(model) else _OLDER


def gemini_protocol(dialect: GeminiDialect = GEMINI_API) -> WireProtocol:
    """Return the protocol as `dialect` speaks it."""
    return WireProtocol(
        name="gemini",
        framing="sse",
        encode_request=partial(encode_request, dialect=dialect),
        new_encoder=partial(RequestEncoder, dialect),
        decoder=GeminiDecoder,
        classify=ERRORS.error_of_reply,
        schema_targets=_schema_targets,
        history=HISTORY,
        encode_count=partial(encode_count, dialect=dialect),
        decode_count=decode_count,
    )


PROTOCOL = gemini_protocol()
