"""Wire protocol: the interface between one provider API and everything that is not specific to it.

A protocol is a package with the same modules in each, or one file with the same sections:

- `dialects` or `models`: where endpoints or models differ, as data
- `messages`: encodes messages; of APIs whose form files have, too, that is in `formats`
- `request`: the encoder (`RequestEncoder`)
- `reply_format`: what the provider sends, its usage and its errors (`ERRORS`)
- `reply`: the decoder
- `reply_assembly`: content that arrives in pieces, where that is more than text
- the package itself: `PROTOCOL`, and `protocol_for` where there are `DIALECTS`

Protocols are pure: values in, bytes out, and the other way round. They open no connections.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from haptera.model.errors import AgentError
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamPart

Framing: TypeAlias = Literal["sse", "ndjson"]

SchemaTarget: TypeAlias = Literal[
    "any",
    "openai",
    "openai_strict",
    "anthropic",
    "anthropic_strict",
    "gemini",
    "gemini_json_schema",
]
"""Which rules a JSON Schema has to meet; `_strict` where the provider enforces the schema.

`providers.schema_rules` has the rules.
"""


class SchemaTargets(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for the schemas in requests to one model."""

    arguments: SchemaTarget = "any"
    output: tuple[SchemaTarget, ...] = ("any",)
    """The strictest first; a schema is sent by the first rules that it can meet."""


# `gc=False`: one is made for every event of an answer, and none can be part of a cycle.
class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame of a reply: a server-sent event, or one line of NDJSON."""

    data: bytes
    event: str = "message"
    id: str = ""
    """The last event id that was sent; empty outside of server-sent events."""


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An encoded request. `path` is relative to the endpoint's base URL."""

    path: str
    body: bytes = b""
    """Sent with POST; a request without a body is sent with GET."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers that turn on features. The client adds credentials and content types."""


class Decoder(Protocol):
    """Turns the frames of one reply into stream parts. A new one is made for each reply.

    - The parts do not depend on how the bytes are split into reads.
    - A frame that reports or causes an error raises after the parts before it were added to `out`.
    - Unknown frames are ignored; malformed ones raise PROTOCOL. Only `AgentError` is raised,
      whatever a frame holds.
    - Every field of a part has its declared type: a value of another type is coerced (a number for
      an id), left out, or PROTOCOL. Content that is carried without being modelled can be sent
      back unchanged.
    """

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames` and append their parts to `out`."""
        ...

    def finish(self) -> Sequence[StreamPart]:
        """Return the parts that the end of the body completes.

        Raises STREAM_INTERRUPTED if the body ended before the answer did.
        """
        ...

    def resume(self) -> str | None:
        """Prepare for the rest of a reply that broke off, if the provider keeps it.

        Returns what to append to the request's path to fetch the rest with GET; its frames go to
        the same decoder. None if the provider does not keep replies.
        """
        ...


class HistoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a protocol accepts in a history that another provider or model may have written."""

    call_id_pattern: str = r"^[A-Za-z0-9_-]{1,64}$"
    """Ids that do not match are replaced, in the call and in its result."""
    tool_name_pattern: str = r"^[A-Za-z0-9_-]{1,64}$"
    reasoning: Literal["same_model", "same_provider", "never"] = "same_model"
    """When reasoning is sent back; otherwise it is left out."""
    media: tuple[str, ...] = ("image/",)
    """Prefixes of accepted media types; other media are replaced by a line of text."""
    linked_media: tuple[str, ...] = ("",)
    """Prefixes of media types that may be sent as a URL; others must be sent as content."""
    result_media: tuple[str, ...] = ()
    """Prefixes of media types that are accepted inside tool results."""
    media_models: dict[str, str] = msgspec.field(default_factory=dict)
    """Media that only some models accept: by prefix, a regular expression for the models."""
    text_models: str = ""
    """Models that accept text only, as a regular expression."""

    def for_model(self, model: str) -> "HistoryRules":
        """Return the rules for one model."""
        name = model.lower()
        missing = [
            prefix for prefix, models in self.media_models.items() if not re.search(models, name)
        ]
        if self.text_models and re.search(self.text_models, name):
            missing = ["image/", "application/", "audio/", "video/"]
        if not missing:
            return self
        return msgspec.structs.replace(
            self,
            media=_without(self.media, tuple(missing)),
            result_media=_without(self.result_media, tuple(missing)),
        )


def _without(media: tuple[str, ...], prefixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in media if not each.startswith(prefixes))


class WireProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """One wire protocol as a value."""

    name: str
    framing: Framing
    new_encoder: Callable[[], Callable[[ModelRequest], WireRequest]]
    """Makes an encoder of requests whose history and schemas meet the rules below.

    Schemas are sent as they are in the request: they are fitted once, before they come here.

    It caches encoded messages. Every client has its own, so that the cost of a turn does not grow
    with the history.
    """
    decoder: Callable[[], Decoder]
    classify: Callable[[int, Mapping[str, str], bytes], AgentError]
    """Returns the typed error of a reply that is not a success: status, headers, body."""
    history: HistoryRules = HistoryRules()
    schema_targets: Callable[[str], SchemaTargets] = lambda _model: SchemaTargets()
    """Which rules the schemas in requests to a model must meet."""
    encode_count: Callable[[ModelRequest], WireRequest] | None = None
    """Encodes the request that counts tokens; None where the provider has none."""
    decode_count: Callable[[bytes], int] | None = None
