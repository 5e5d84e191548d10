"""Keywords: what users may say to agents, sessions and queries, checked at the door."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import msgspec

from holdfast.assembly.attachments import AttachmentInput
from holdfast.assembly.components import (
    Components,
    ConfigurationSources,
    OwnAccess,
    PathInput,
    TokenFunction,
    TransportFactory,
)
from holdfast.blocks.tool_registry.running import run_in_thread
from holdfast.blocks.tool_registry.tool import Tool
from holdfast.engine.query_input import Unanswered
from holdfast.ports.abort import AbortSignal
from holdfast.ports.approver import Approver
from holdfast.ports.clock import Clock, Random
from holdfast.ports.model_client import ModelClient
from holdfast.ports.session_store import Store
from holdfast.ports.token_source import TokenSource
from holdfast.ports.tool_hooks import BeforeTool, OutputTransform
from holdfast.serialization.session_state import SessionState
from holdfast.vocabulary.approvals import ApprovalRequest, Decision
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.events import Instrumented
from holdfast.vocabulary.messages import Sender, UserMessage
from holdfast.vocabulary.parts import Part
from holdfast.vocabulary.secrets import Secret
from holdfast.vocabulary.settings import (
    CacheTtl,
    CompactionSettings,
    Delivery,
    Limits,
    ModelStep,
    RetrySettings,
    RuntimeSettings,
    Settings,
    Thinking,
    Timeouts,
)

if TYPE_CHECKING:
    from holdfast.config.resolution import Resolved

Prompt: TypeAlias = str | Sequence[Part] | UserMessage
OnAbort: TypeAlias = Literal["raise", "return"]


class SettingsOptions(TypedDict, total=False):
    """What outlives a query; also what `configure` takes."""

    model: str
    thinking: Thinking | None
    system_prompt: str | Sequence[str] | None
    max_tokens: int | None
    temperature: float | None
    stop: Sequence[str]
    seed: int | None
    betas: dict[str, bool]
    cache_ttl: CacheTtl | None
    cached_reminders: Sequence[str]
    compaction: CompactionSettings
    parallel_tools: bool
    parallel_tool_calls: bool
    allowed_tools: Sequence[str] | None
    denied_tools: Sequence[str]
    loop_threshold: int | None
    limits: Limits
    retry: RetrySettings
    fallbacks: Sequence[ModelStep | str]
    timeouts: Timeouts


class AgentOptions(SettingsOptions, total=False):
    """What an agent may be told."""

    tools: Iterable[Tool | Callable[..., object]]
    store: str | Store
    owner: str
    project: str
    providers: Iterable[ModelClient]
    api_key: str | Secret | TokenSource | TokenFunction | None
    base_url: str | None
    headers: dict[str, str]
    transport: TransportFactory | None
    """Makes the way to a provider, instead of HTTP as the environment has it set up."""
    record_to: PathInput | None
    """A file for requests and answers, to be replayed by `holdfast.testing.ReplayClient`."""
    environment: Mapping[str, str] | None
    """Variables to use instead of the process's own."""
    config_dir: PathInput | None
    config_path: PathInput | None
    cwd: PathInput | None
    approver: Approver | Callable[[ApprovalRequest], Decision] | None
    unanswered: Unanswered
    before_tool: BeforeTool | None
    instrumentation: Callable[[Instrumented], None] | None
    runtime: RuntimeSettings
    clock: Clock
    random: Random


class SendOptions(TypedDict, total=False):
    """What may be said of a prompt, also to a session that another process holds."""

    delivery: Delivery
    sender: Sender | None
    attachments: Sequence[AttachmentInput]
    """Files by their path, content, URLs, or parts; read when the prompt is sent."""


class QueryOptions(SendOptions, total=False):
    """What one query may be told."""

    signal: AbortSignal | None
    on_abort: OnAbort
    timeout: float | None
    """Seconds that one attempt of one model call may take; a slow consumer's do not count."""
    total_timeout: float | None
    """Seconds that the whole query may take by the clock: everything that it waits for counts, the
    queries before it, too."""
    output_type: Any
    reminders: Sequence[str]
    require_tool: str | None
    """The tool that the model must call first; what it does after that is its own choice."""
    transform: OutputTransform | None


class SessionOptions(TypedDict, total=False):
    """What opening a session may be told."""

    restore: SessionState | dict[str, Any] | None
    busy: Literal["wait", "reject"]
    must_exist: bool


class OneCallOptions(AgentOptions, QueryOptions, total=False):
    """What a single query may be told about its agent and itself."""


class CreateSessionOptions(AgentOptions, SessionOptions, total=False):
    """What a single session may be told about its agent and itself."""

    name: str
    """A name or id; without one the session is new."""


_COMPONENTS = frozenset(
    {
        "tools",
        "store",
        "providers",
        "approver",
        "unanswered",
        "before_tool",
        "instrumentation",
        "runtime",
        "clock",
        "random",
        "record_to",
        "transport",
    }
)


_GROUPS: dict[str, type[msgspec.Struct]] = {
    "compaction": CompactionSettings,
    "limits": Limits,
    "retry": RetrySettings,
    "timeouts": Timeouts,
}


def hide_key(options: AgentOptions) -> None:
    """Mask a key that was given as text: from here on no frame of ours shows it."""
    key = options.get("api_key")
    if isinstance(key, str) and key.strip():
        options["api_key"] = Secret(key)


def components_of(options: AgentOptions, resolved: "Resolved") -> Components:
    """Pick what an agent is made of from its options, and from what configuration says."""
    chosen: dict[str, Any] = {name: value for name, value in options.items() if name in _COMPONENTS}
    runtime = chosen.get("runtime", resolved.runtime)
    chosen["runtime"] = msgspec.convert(msgspec.to_builtins(runtime), RuntimeSettings)
    chosen.setdefault("store", resolved.agent.store or "memory")
    if chosen.get("approver") is not None:
        chosen["approver"] = _as_async(chosen["approver"])
    chosen["own_access"] = OwnAccess(
        api_key=options.get("api_key"),
        base_url=options.get("base_url"),
        headers=options.get("headers", {}),
    )
    return Components(**chosen)


def sources_of(options: AgentOptions) -> ConfigurationSources:
    """Pick where configuration is looked for from an agent's options."""
    return ConfigurationSources(
        environment=options.get("environment"),
        config_dir=options.get("config_dir"),
        config_path=options.get("config_path"),
        cwd=options.get("cwd"),
    )


def _as_async(approver: Callable[[ApprovalRequest], Any]) -> Approver:
    """Let a plain function approve, too: it runs in a thread, because it may wait for a person."""
    if inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(
        getattr(approver, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    ):
        return approver

    async def ask(request: ApprovalRequest) -> Decision:
        answer: Any = await run_in_thread(lambda: approver(request))
        decision: Decision = await answer if inspect.isawaitable(answer) else answer
        return decision

    return ask


def settings_changes(options: SettingsOptions) -> dict[str, Any]:
    """Return settings that options speak of, as plain JSON values, checked.

    Raises:
        ConfigError: CONFIG_INVALID naming the field.

    """
    known: dict[str, Any] = {
        name: value for name, value in options.items() if name in SettingsOptions.__annotations__
    }
    if "system_prompt" in known:
        prompt = known.pop("system_prompt")
        known["system_prompts"] = [prompt] if isinstance(prompt, str) else prompt or ()
    if isinstance(known.get("fallbacks"), list | tuple):
        known["fallbacks"] = [
            {"model": step} if isinstance(step, str) else step for step in known["fallbacks"]
        ]
    try:
        plain: dict[str, Any] = msgspec.to_builtins(known)
        msgspec.convert(plain, Settings)
        msgspec.json.encode(plain)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"an option is not valid: {error}") from error
    for name in set(plain) & set(_GROUPS):
        if unknown := set(plain[name]) - set(_GROUPS[name].__struct_fields__):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, f"option {name!r} has no {', '.join(sorted(unknown))}"
            )
    return plain
