"""Stream parts: what a provider emits while it answers, in one grammar for all providers.

A stream is `StreamOpened`, then any number of parts (`PartOpened`, `PartDelta`*, `PartClosed`, or
one `PartOpaque`), then exactly one `StreamFinished`; or it raises. `key` tells parts of one stream
apart and means nothing outside of it. A client hands them on in lists, one list per read.
"""

from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from haptera.model.json_types import JsonObject
from haptera.model.parts import PartKind
from haptera.model.usage import Usage

FinishKind: TypeAlias = Literal[
    "stop", "tool_calls", "length", "context_window", "refusal", "pause", "compaction", "other"
]
"""Why a model stopped, in our words; the provider's own word travels beside it."""


class StreamOpened(msgspec.Struct, frozen=True, kw_only=True):
    """The provider has begun to answer."""

    model: str = ""
    """The model that answers, as the provider names it."""
    response_id: str | None = None
    request_id: str | None = None
    """The provider's id of the request, from the head of its reply."""


class PartOpened(msgspec.Struct, frozen=True, kw_only=True):
    """A part begins."""

    key: str
    kind: PartKind
    call_id: str | None = None
    """For tool calls: the provider's id of the call."""
    name: str | None = None
    """For tool calls: the tool."""


class PartDelta(msgspec.Struct, frozen=True, gc=False):
    """More of a part: text, reasoning text, or a piece of a tool call's JSON."""

    # Not `kw_only`: an answer has thousands of these, and positions are faster than names.

    key: str
    text: str


class PartClosed(msgspec.Struct, frozen=True, kw_only=True):
    """A part is complete."""

    key: str
    signature: str | None = None
    native: JsonObject | None = None


class PartOpaque(msgspec.Struct, frozen=True, kw_only=True):
    """A whole part that we do not model; it is kept and replayed to the same provider."""

    payload: JsonObject


class StreamFinished(msgspec.Struct, frozen=True, kw_only=True):
    """The answer is complete; nothing follows."""

    kind: FinishKind
    reason: str = ""
    """The provider's own word."""
    usage: Usage = Usage()
    context_tokens: int | None = None
    """How much of the context window request and answer fill, where `usage` counts some of it more
    than once because a server's own tools took several rounds; 0 if that is not known."""
    cost: Decimal | None = None
    """What the provider says it billed, where it says so."""
    native: JsonObject | None = None
    model: str = ""
    """The model that answered, if it was not known yet when the stream was opened."""


StreamPart: TypeAlias = (
    StreamOpened | PartOpened | PartDelta | PartClosed | PartOpaque | StreamFinished
)
