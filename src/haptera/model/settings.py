"""Settings: what outlives a query. A session's settings are a fold of its log.

Each field is the one declaration of an option: its sentence, default, bounds and variable. The
options of an agent, the configuration file, the environment and the documentation derive from it.
"""

import contextlib
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from haptera.model.budgets import Watchdogs
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.json_types import JsonObject
from haptera.model.option import Option

Thinking: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
CacheTtl: TypeAlias = Literal["5m", "1h"]
OnLoop: TypeAlias = Literal["ask", "deny", "allow"]
Delivery: TypeAlias = Literal["queue", "steer", "reject", "interrupt"]
ApprovalRule: TypeAlias = Literal["by_tool", "ask"]
PermissionMode: TypeAlias = Literal["default", "accept_edits", "plan", "dont_ask", "ask"]
"""`ask` is another word for `default`."""
OnDeny: TypeAlias = Literal["continue", "stop"]


class _Values(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all settings share: immutable, keyword-only; configuration refuses unknown fields."""


class RetrySettings(_Values, frozen=True, kw_only=True):
    """How a failed model call is repeated within one turn. Has presets."""

    RATE_LIMIT: ClassVar["RetrySettings"]
    """For accounts that are often limited: 10 repeats, after 5 s to 60 s."""
    NETWORK: ClassVar["RetrySettings"]
    """For connections that often fail: 3 repeats, after 1, 2 and 4 s."""
    QUICK: ClassVar["RetrySettings"]
    """For programs that cannot wait: 3 calls in all, after 100 and 200 ms."""

    max_retries: Annotated[
        int,
        Option(
            "Repeats after the first call; 0 means none.", least=0, most=100, variable="MAX_RETRIES"
        ),
    ] = 5
    first_delay: Annotated[float, Option("Seconds before the first repeat.", least=0)] = 2.0
    factor: Annotated[
        float, Option("How much longer each wait is than the one before.", least=1)
    ] = 2.0
    longest_delay: Annotated[float, Option("Seconds that no wait exceeds.", least=0)] = 30.0
    jitter: Annotated[
        float,
        Option("Share by which each wait is made shorter or longer at random.", least=0, most=1),
    ] = 0.1
    longest_retry_after: Annotated[
        float,
        Option(
            "Seconds; a provider that asks for more has limited the account, not the moment.",
            least=0,
        ),
    ] = 60.0
    interruption_retries: Annotated[
        int, Option("Repeats of a stream that broke off; a budget of its own.", least=0, most=100)
    ] = 2
    interruption_delay: Annotated[
        float, Option("Seconds before a stream that broke off is repeated.", least=0)
    ] = 2.0


RetrySettings.RATE_LIMIT = RetrySettings(
    max_retries=10, first_delay=5.0, factor=1.5, longest_delay=60.0
)
RetrySettings.NETWORK = RetrySettings(max_retries=3, first_delay=1.0, longest_delay=10.0)
RetrySettings.QUICK = RetrySettings(max_retries=2, first_delay=0.1, factor=2.0, jitter=0.0)


class ModelStep(_Values, frozen=True, kw_only=True):
    """One model of a fallback plan."""

    model: Annotated[str, Option("`provider/model`, or a short name of the configuration file.")]
    thinking: Annotated[Thinking | None, Option("How much this model thinks first.")] = None
    max_attempts: Annotated[
        int,
        Option(
            "Calls in all, the first included: 1 means no repeat, 0 the default.", least=0, most=100
        ),
    ] = 2


class Limits(_Values, frozen=True, kw_only=True):
    """What one query may use, and how much one answer may hold; None means no limit.

    A query that reaches one of the first five is brought to an end. An answer that exceeds one of
    the others is a broken or hostile peer: PROTOCOL, and what was said until then is kept.
    """

    turns: Annotated[
        int | None, Option("Requests to a model in one query.", least=1, variable="MAX_TURNS")
    ] = 50
    tokens: Annotated[int | None, Option("Tokens that one query uses.", least=1)] = None
    cost: Annotated[
        float | None,
        Option(
            "US dollars that one query costs; an unknown cost stops nothing.",
            above=0,
            variable="MAX_COST",
        ),
    ] = None
    seconds: Annotated[float | None, Option("Seconds that one query takes.", least=0)] = None
    tool_calls: Annotated[int | None, Option("Tool calls in one query.", least=0)] = None
    part_characters: Annotated[
        int | None,
        Option(
            "Characters of one part: a text, a train of thought, a tool call's arguments, a "
            "provider's own part (as JSON).",
            least=1,
        ),
    ] = 32 * 1024 * 1024
    answer_characters: Annotated[
        int | None, Option("Characters of all parts of one answer.", least=1)
    ] = 64 * 1024 * 1024
    answer_parts: Annotated[
        int | None, Option("Parts of one answer, tool calls included.", least=1)
    ] = 10_000
    reply_bytes: Annotated[
        int | None,
        Option("Bytes of one answer as it travels, with everything around it.", least=1),
    ] = 256 * 1024 * 1024


class Timeouts(_Values, frozen=True, kw_only=True):
    """How long a provider may be silent, in seconds."""

    connect: Annotated[
        float, Option("Seconds to connect.", least=0.001, variable="CONNECT_TIMEOUT")
    ] = 10.0
    first_byte: Annotated[
        float,
        Option(
            "Seconds from the request to the first byte of the reply.",
            least=0.001,
            variable="FIRST_BYTE_TIMEOUT",
        ),
    ] = 60.0
    between_bytes: Annotated[
        float,
        Option(
            "Seconds of silence inside a reply, keep-alives included.",
            least=0.001,
            variable="BETWEEN_BYTES_TIMEOUT",
        ),
    ] = 60.0
    content: Annotated[
        float,
        Option(
            "Seconds without content, whatever else arrives; also for all of an error's body.",
            least=0.001,
            variable="CONTENT_TIMEOUT",
        ),
    ] = 120.0


class Settings(_Values, frozen=True, kw_only=True):
    """What a session sends with every request until it is changed."""

    model: Annotated[
        str,
        Option(
            "The model to use, as `provider/model` or by a short name of the configuration file; "
            "without one, what a key that is found allows, else a small local model.",
            variable="MODEL",
        ),
    ] = ""
    thinking: Annotated[
        Thinking | None,
        Option("How much the model thinks first; None is its own default.", variable="THINKING"),
    ] = None
    system_prompts: Annotated[
        tuple[str, ...],
        Option("The system prompt; one text or several.", variable="SYSTEM_PROMPT", whole=True),
    ] = ()
    max_tokens: Annotated[
        int | None,
        Option(
            "The longest answer, in tokens; 0 or None leave it to the provider.",
            least=0,
            variable="MAX_TOKENS",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Option(
            "How random answers are: sent as given to models that take it, and not to the others.",
            variable="TEMPERATURE",
        ),
    ] = None
    stop: Annotated[
        tuple[str, ...], Option("Texts that end an answer where they appear in it.")
    ] = ()
    seed: Annotated[
        int | None, Option("Makes answers repeatable, where a provider can.", variable="SEED")
    ] = None
    betas: Annotated[
        dict[str, bool],
        Option("Raw feature switches of the provider, merged over those that Haptera sets."),
    ] = msgspec.field(default_factory=dict)
    cache_ttl: Annotated[
        CacheTtl | None,
        Option(
            "How long a prompt cache lives where the provider offers a choice: `5m` or `1h`, which "
            "costs more to write; None turns it off.",
            variable="CACHE_TTL",
        ),
    ] = "5m"
    cached_reminders: Annotated[
        tuple[str, ...],
        Option("Notes that lead the conversation and come back after a compaction."),
    ] = ()
    compaction: Annotated[
        CompactionSettings, Option("How a conversation that grows too long is made shorter.")
    ] = CompactionSettings()
    parallel_tools: Annotated[
        bool,
        Option("Whether the tools of one turn run side by side; otherwise in the model's order."),
    ] = False
    parallel_tool_calls: Annotated[
        bool,
        Option("Whether the model may call several tools in one answer, where it can be told."),
    ] = True
    allowed_tools: Annotated[
        tuple[str, ...] | None,
        Option(
            "Names of tools that the model may use; None allows all, an empty list none.",
            variable="ALLOWED_TOOLS",
        ),
    ] = None
    denied_tools: Annotated[
        tuple[str, ...],
        Option("Names of tools that it may not use; a denial wins.", variable="DENIED_TOOLS"),
    ] = ()
    approval: Annotated[
        ApprovalRule,
        Option(
            'Which tool calls ask for approval: `by_tool`: those whose tool says `approval="ask"`; '
            "`ask`: every call of every tool.",
            variable="APPROVAL",
        ),
    ] = "by_tool"
    loop_threshold: Annotated[
        int | None,
        Option(
            "Which identical tool call in a row is a loop, when all results before it were the "
            "same, too; None: never.",
            least=2,
        ),
    ] = 3
    on_loop: Annotated[
        OnLoop,
        Option(
            'What happens to that call: "allow" runs it, "ask" asks the approver where there is '
            'one. If that denies it, without one and with "deny", it is not run and the model is '
            "told so. If the model insists, the query ends with the stop reason `loop`."
        ),
    ] = "ask"
    permission_mode: Annotated[
        PermissionMode,
        Option(
            "What happens to tool calls that no permission rule allows or denies. `default` (or "
            "`ask`): tools ask as they are marked; `accept_edits`: files are changed without "
            "asking; `plan`: only tools that read may run; `dont_ask`: what would be asked is "
            "denied.",
            variable="PERMISSION_MODE",
        ),
    ] = "default"
    on_deny: Annotated[
        OnDeny,
        Option(
            'What happens after a tool call was denied: with "continue" the model is told and goes '
            'on; with "stop" the query ends with the stop reason `refusal`.'
        ),
    ] = "continue"
    limits: Annotated[
        Limits,
        Option(
            "What one query may use, and how much one answer may hold; on the last turn that they "
            "allow, the model gets no tools and is asked to wrap up."
        ),
    ] = Limits()
    retry: Annotated[
        RetrySettings, Option("How a failed model call is repeated within a turn.")
    ] = RetrySettings()
    watchdogs: Annotated[Watchdogs, Option("When a query that gets nowhere is ended.")] = (
        Watchdogs()
    )
    fallbacks: Annotated[
        tuple[ModelStep, ...], Option("Models to go on with when one fails, in their order.")
    ] = ()
    timeouts: Annotated[Timeouts, Option("How long a provider may be silent.")] = Timeouts()


def changed_settings(settings: Settings, changes: JsonObject) -> Settings:
    """Return settings with some of them replaced; a nested one is replaced as a whole.

    Raises:
        msgspec.ValidationError: when a value does not fit its setting.

    """
    # Converted as a whole, because a struct does not check what `replace` puts into it.
    return (
        msgspec.convert(msgspec.to_builtins(settings) | changes, Settings) if changes else settings
    )


def believed_settings(settings: Settings, changes: object) -> tuple[Settings, frozenset[str]]:
    """Return settings after a stored change, and which of them it has set.

    A value that no version of this program writes changes nothing.
    """
    named: JsonObject = changes if isinstance(changes, dict) else {}
    try:
        return changed_settings(settings, named), frozenset(named)
    except msgspec.ValidationError:
        faults: set[str] = set()
        for name, value in named.items():
            with contextlib.suppress(msgspec.ValidationError):
                settings = changed_settings(settings, {name: value})
                faults.add(name)
        return settings, frozenset(faults)


SETTINGS_WITH_MODELS = frozenset({"model", "fallbacks", "compaction"})


def models_in(settings: Settings) -> tuple[str, ...]:
    """Return the models that settings name."""
    summariser = settings.compaction.model
    fallbacks = (step.model for step in settings.fallbacks)
    return tuple(filter(None, (settings.model, *fallbacks, summariser)))


_BY_STRICTNESS: tuple[ApprovalRule, ...] = ("by_tool", "ask")


def bounded_settings(settings: Settings, ceiling: Settings) -> Settings:
    """Return settings that allow no more than a ceiling does.

    Of the ceiling, `allowed_tools`, `denied_tools` and `approval` count: tools are allowed where
    both allow them, denied where one denies them, and the stricter rule of approval holds.
    """
    allowed, denied, approval = settings.allowed_tools, settings.denied_tools, settings.approval
    if ceiling.allowed_tools is not None:
        permitted = frozenset(ceiling.allowed_tools)
        allowed = (
            ceiling.allowed_tools
            if allowed is None
            else tuple(name for name in allowed if name in permitted)
        )
    if ceiling.denied_tools:
        denied = tuple(dict.fromkeys((*ceiling.denied_tools, *denied)))
    approval = max(approval, ceiling.approval, key=_BY_STRICTNESS.index)
    if (allowed, denied, approval) == (
        settings.allowed_tools,
        settings.denied_tools,
        settings.approval,
    ):
        return settings
    return msgspec.structs.replace(
        settings, allowed_tools=allowed, denied_tools=denied, approval=approval
    )


def limits_tools(ceiling: Settings) -> bool:
    """Whether settings can exceed a ceiling at all; see `bounded_settings`."""
    is_stricter = ceiling.approval != _BY_STRICTNESS[0]
    return is_stricter or ceiling.allowed_tools is not None or bool(ceiling.denied_tools)


def allows_tool(settings: Settings, name: str) -> bool:
    """Whether settings let a model use the tool of a name; a denial wins."""
    allowed = settings.allowed_tools
    return name not in settings.denied_tools and (allowed is None or name in allowed)


class RuntimeSettings(_Values, frozen=True, kw_only=True):
    """How a process runs its sessions; nothing of it is part of a conversation."""

    buffer_size: Annotated[
        int,
        Option(
            "Events that a pulled stream may be ahead of its consumer, or of an async handler.",
            least=0,
        ),
    ] = 100
    observer_buffer: Annotated[
        int,
        Option(
            "Events an observer may lag behind before it is told to resume from its `seq`.",
            least=1,
        ),
    ] = 1024
    checkpoint_bytes: Annotated[
        int, Option("Streamed bytes after which they are stored.", least=1)
    ] = 4096
    checkpoint_seconds: Annotated[
        float, Option("Seconds after which streamed text is stored.", least=0.001)
    ] = 1.0
    heartbeat_seconds: Annotated[
        float,
        Option(
            "Seconds after which, and every so often, `stream.heartbeat` says that a provider is "
            "silent; 0: never.",
            least=0,
        ),
    ] = 30.0
    close_drain_seconds: Annotated[
        float,
        Option(
            "Seconds that a closing session lets its query run on.",
            least=0,
            variable="CLOSE_DRAIN_TIMEOUT",
        ),
    ] = 15.0
    hook_seconds: Annotated[
        float,
        Option("Seconds after which a hook that has not returned has failed; 0: never.", least=0),
    ] = 60.0
    sub_agent_depth: Annotated[
        int, Option("Levels of sub-agents that there may be below a session.", least=0)
    ] = 3
    parallel_sub_agents: Annotated[
        int, Option("Sub-agents of one query that run at the same time.", least=1)
    ] = 8
    auto_compaction: Annotated[
        bool,
        Option(
            "Whether a conversation is compacted by itself before it is too long for the model.",
            variable="AUTO_COMPACTION",
        ),
    ] = True
    cross_session_context: Annotated[
        bool,
        Option(
            "Whether sessions hear of each other: new ones of the notes of their project, any of "
            "sessions that they include, and models of what `recall` finds.",
            variable="CROSS_SESSION_CONTEXT",
        ),
    ] = True


class PoolSettings(_Values, frozen=True, kw_only=True):
    """How many sessions a server or pool keeps open; an agent does not look at it."""

    max_concurrent_sessions: Annotated[
        int,
        Option(
            "Sessions that a pool keeps open; `haptera serve` and `rpc`, too, if it is set.",
            least=1,
            variable="MAX_SESSIONS",
        ),
    ] = 10
    session_timeout: Annotated[
        float,
        Option(
            "Seconds without use after which a pool closes a session; `haptera serve` and `rpc`, "
            "too, if it is set.",
            least=0,
            variable="SESSION_TIMEOUT",
        ),
    ] = 1800.0
