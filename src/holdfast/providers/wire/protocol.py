"""The seam between a wire protocol and the transport: what each protocol file provides.

A protocol is a folder with the same rooms in each, or a file with the same sections:

- `request`: the encoder; beside it `messages`, which lowers a history, and `schemas`
- `reply`: the decoder; beside it `reply_types`, what a provider sends
- `errors`: how an error is read, and the typed codes that are the protocol's own
- `dialects`: where endpoints that speak it differ
- the package itself: the `PROTOCOL` value

All of it is pure: bytes and values in, values and bytes out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from holdfast.providers.schema_rules import SchemaTargets
from holdfast.vocabulary.errors import AgentError
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.stream_parts import StreamPart

Framing: TypeAlias = Literal["sse", "ndjson"]


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One framed piece of a reply: an SSE event, or one line of NDJSON."""

    data: bytes
    event: str = "message"
    id: str = ""
    """The last event id in force, for streams that can be taken up again."""


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request ready to be sent: `path` is relative to the endpoint's base URL."""

    path: str
    body: bytes = b""
    """What is posted; nothing asks with GET."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Feature headers only; credentials and client names are the client's."""


class Decoder(Protocol):
    """Turns the frames of one reply into stream parts; made anew for each reply.

    - Any split of the bytes into frames and of the frames into calls gives the same parts.
    - A frame that reports or causes an error raises after everything before it was put in `out`.
    - Unknown frames are passed over; malformed ones raise PROTOCOL. Nothing but an `AgentError` is
      raised, whatever a frame holds.
    - Every field of a part is of the type it declares: what a provider sends as another one is
      coerced (a number for an id), left out, or PROTOCOL. What is carried without being modelled
      can be sent back as it is.
    """

    def resume(self) -> str | None:
        """Get ready for the rest of a reply that broke off, if the provider keeps it.

        Returns what to append to the request's path to get that rest with GET; its frames go to
        the same decoder. None if nothing is kept.
        """
        ...

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames` and append their parts to `out`."""
        ...

    def finish(self, out: list[StreamPart]) -> None:
        """Take note that the body ended; raises STREAM_INTERRUPTED if the answer did not."""
        ...


class HistoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a protocol accepts of a history that another provider or model may have written."""

    call_id_pattern: str = r"^[A-Za-z0-9_-]{1,64}$"
    """Ids that do not match are replaced, the same for call and result."""
    tool_name_pattern: str = r"^[A-Za-z0-9_-]{1,64}$"
    reasoning: Literal["same_model", "same_provider", "never"] = "same_model"
    """When reasoning is sent back as reasoning; otherwise it is left out."""
    media: tuple[str, ...] = ("image/",)
    """Prefixes of media types that are accepted; others become a line of text."""
    linked_media: tuple[str, ...] = ("",)
    """Those of them that may be named by an address; others must be sent as content."""
    result_media: tuple[str, ...] = ()
    """Prefixes of media types that are accepted inside tool results."""
    media_models: dict[str, str] = msgspec.field(default_factory=dict)
    """Media that only some models take: by prefix, a regular expression for the models."""
    text_models: str = ""
    """Models that read nothing but text, as a regular expression."""

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
    encode_request: Callable[[ModelRequest], WireRequest]
    """Lowers a request whose history already meets `history`."""
    new_encoder: Callable[[], Callable[[ModelRequest], WireRequest]] | None = None
    """Makes an encoder that gives the same as `encode_request` and remembers messages it has seen.

    A client makes one for itself, so that the cost of a turn does not grow with the history.
    """
    decoder: Callable[[], Decoder]
    classify: Callable[[int, Mapping[str, str], bytes], AgentError]
    """Makes the typed error of a reply that is not a success: status, headers, body."""
    history: HistoryRules = HistoryRules()
    schema_targets: Callable[[str], SchemaTargets] = lambda _model: SchemaTargets()
    """Who reads the schemas in requests to a model; `encode_request` sends them as they are."""
    encode_count: Callable[[ModelRequest], WireRequest] | None = None
    """The request that counts tokens, where the provider has one."""
    decode_count: Callable[[bytes], int] | None = None
