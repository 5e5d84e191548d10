"""Settings: what outlives a query. A session's settings are a fold of its log."""

from typing import Literal, TypeAlias

import msgspec

Thinking: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
CacheTtl: TypeAlias = Literal["5m", "1h"]
Delivery: TypeAlias = Literal["queue", "steer", "reject", "interrupt"]


class _Values(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all settings share: immutable, keyword-only, unknown fields refused at the door."""


class RetrySettings(_Values, frozen=True, kw_only=True):
    """How a failed model call is repeated within one turn."""

    max_retries: int = 5
    """Repeats after the first call; 0 means none."""
    first_delay: float = 2.0
    factor: float = 2.0
    longest_delay: float = 30.0
    jitter: float = 0.1
    """Share by which each wait is made shorter or longer at random."""
    longest_retry_after: float = 60.0
    """A provider that asks for more than this has limited the account, not the moment."""
    interruption_retries: int = 2
    """Own budget for streams that broke off."""
    interruption_delay: float = 2.0


RATE_LIMIT_RETRIES = RetrySettings(max_retries=10, first_delay=5.0, factor=1.5, longest_delay=60.0)
"""Preset for accounts that are often limited."""

NETWORK_RETRIES = RetrySettings(max_retries=3, first_delay=1.0, factor=2.0, longest_delay=10.0)
"""Preset for shaky connections."""


class ModelStep(_Values, frozen=True, kw_only=True):
    """One model of a fallback plan."""

    model: str
    thinking: Thinking | None = None
    max_attempts: int = 2
    """Calls in all, the first included."""


class Limits(_Values, frozen=True, kw_only=True):
    """What one query may use, and how much one answer may hold; None means no limit.

    A query that reaches one of the first five is brought to an end. An answer that exceeds one of
    the others is a broken or hostile peer: PROTOCOL, and what was said until then is kept.
    """

    turns: int | None = None
    tokens: int | None = None
    cost: float | None = None
    """In US dollars; a query whose cost is unknown is not stopped by it."""
    seconds: float | None = None
    tool_calls: int | None = None
    part_characters: int | None = 32 * 1024 * 1024
    """Of one part: a text, a train of thought, a tool call's arguments, a provider's own part."""
    answer_characters: int | None = 64 * 1024 * 1024
    """Of all parts of one answer."""
    answer_parts: int | None = 10_000
    """How many parts one answer may have, tool calls included."""
    reply_bytes: int | None = 256 * 1024 * 1024
    """Of one answer as it travels, with everything around it."""


class Timeouts(_Values, frozen=True, kw_only=True):
    """How long a provider may be silent, in seconds."""

    connect: float = 10.0
    first_byte: float = 60.0
    between_bytes: float = 60.0
    """Longest silence inside a stream, keep-alives included."""
    content: float = 120.0
    """Longest time without content, whatever else arrives; also for all of an error's body."""


class CompactionSettings(_Values, frozen=True, kw_only=True):
    """When a provider may compact the conversation itself."""

    enabled: bool = False
    input_tokens: int | None = None
    pause_after: bool = False


class Settings(_Values, frozen=True, kw_only=True):
    """What a session sends with every request until it is changed."""

    model: str = ""
    """`provider/model`."""
    thinking: Thinking | None = None
    system_prompts: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    betas: dict[str, bool] = msgspec.field(default_factory=dict)
    """Raw feature switches of the provider, merged over what we ask for ourselves."""
    cache_ttl: CacheTtl | None = "1h"
    """Lifetime of the prompt cache where the provider offers one; None turns it off."""
    cached_reminders: tuple[str, ...] = ()
    """Notes that lead the conversation and come back after a compaction."""
    compaction: CompactionSettings = CompactionSettings()
    parallel_tools: bool = False
    """Whether the tools of one turn run at once; otherwise in the model's order."""
    parallel_tool_calls: bool = True
    """Whether a model may ask for several tools in one turn, where its provider can be told."""
    allowed_tools: tuple[str, ...] | None = None
    """Names that may be used; None means all, an empty tuple none."""
    denied_tools: tuple[str, ...] = ()
    loop_threshold: int | None = 3
    """Which identical tool call in a query counts as a loop; None never."""
    limits: Limits = Limits()
    retry: RetrySettings = RetrySettings()
    fallbacks: tuple[ModelStep, ...] = ()
    timeouts: Timeouts = Timeouts()


class RuntimeSettings(_Values, frozen=True, kw_only=True):
    """How sessions are held in a process, whatever they talk about.

    The first four are for the pool of sessions and for compaction, which read them once they are
    there.
    """

    max_concurrent_sessions: int = 10
    session_timeout: float = 1800.0
    """Seconds without use after which a pooled session is closed."""
    auto_compaction: bool = True
    cross_session_context: bool = True
    buffer_size: int = 100
    """Events that a pulled stream may be ahead of its consumer, or of an async handler."""
    observer_buffer: int = 1024
    """Events an observer may lag behind before it is told to resume from its `seq`."""
    checkpoint_bytes: int = 4096
    checkpoint_seconds: float = 1.0
    close_drain_seconds: float = 15.0
