"""A neutral request to a model: what the request builder makes and a wire protocol lowers."""

import msgspec

from haptera.model.compaction_settings import CompactionSettings
from haptera.model.json_types import JsonObject
from haptera.model.messages import Message
from haptera.model.parts import MediaPart
from haptera.model.settings import CacheTtl, Limits, Thinking, Timeouts
from haptera.model.tools import ToolSpec


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The JSON Schema that an answer must meet."""

    name: str
    schema: JsonObject
    is_strict: bool = False
    """Whether the provider can enforce it token by token; the client finds that out."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything one model call needs, in no provider's words.

    `messages` is an immutable view that the conversation shares; it is not copied or changed.
    Ephemeral reminders are `ReminderPart`s at the end of the last user message: a prompt-cache
    mark goes before them.
    """

    model: str
    """The provider's name of the model, without the provider."""
    messages: tuple[Message, ...]
    system: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    require_tool: str | None = None
    """The one tool that the model must call."""
    thinking: Thinking | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    output_schema: OutputSchema | None = None
    cache_ttl: CacheTtl | None = None
    caches_tail: bool = True
    """Whether a later request may repeat this one, so that its last message is worth caching."""
    compaction: CompactionSettings = CompactionSettings()
    betas: dict[str, bool] = msgspec.field(default_factory=dict)
    timeouts: Timeouts = Timeouts()
    reply_bytes: int | None = Limits().reply_bytes
    """How many bytes of an answer a client reads before it gives up with PROTOCOL."""
    parallel_tool_calls: bool = True
    """Whether the model may call several tools at once."""
    fresh_media: tuple[MediaPart, ...] = ()
    """Media among the messages that the user has just handed in, and no model has answered yet.

    A client refuses what its model does not take of these, before anything is sent; what it does
    not take of older media it replaces by words.
    """


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens a request holds, and whether that was counted or estimated."""

    tokens: int
    exact: bool
