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
from holdfast.blocks.tool_registry.registry import ToolInput
from holdfast.blocks.tool_registry.running import run_in_thread
from holdfast.ports.abort import AbortSignal
from holdfast.ports.approver import Approver, Unanswered
from holdfast.ports.clock import Clock, Random
from holdfast.ports.model_client import ModelClient
from holdfast.ports.session_store import Store
from holdfast.ports.token_source import TokenSource
from holdfast.ports.tool_hooks import BeforeTool, OutputTransform
from holdfast.serialization.session_state import SessionState
from holdfast.vocabulary.approvals import ApprovalRequest, Decision
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.events import Instrumented
from holdfast.vocabulary.ids import QueryId, new_message_id
from holdfast.vocabulary.messages import Sender, UserMessage
from holdfast.vocabulary.parts import MediaPart, Part, ReminderPart, TextPart, check_content
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
from holdfast.vocabulary.text import writable

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

    tools: Iterable[ToolInput]
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


class QueryOptions(TypedDict, total=False):
    """What one query may be told."""

    signal: AbortSignal | None
    on_abort: OnAbort
    timeout: float | None
    """Seconds that one attempt of one model call may take; a slow consumer's do not count."""
    total_timeout: float | None
    """Seconds that the whole query may take by the clock: everything that it waits for counts, the
    queries before it, too."""
    delivery: Delivery
    output_type: Any
    reminders: Sequence[str]
    require_tool: str | None
    """The tool that the model must call first; what it does after that is its own choice."""
    transform: OutputTransform | None
    sender: Sender | None
    attachments: Sequence[AttachmentInput]
    """Files by their path, content, addresses, or parts; read when the query starts."""


class SessionOptions(TypedDict, total=False):
    """What opening a session may be told."""

    restore: SessionState | dict[str, Any] | None
    busy: Literal["wait", "reject"]
    must_exist: bool


_COMPONENTS = frozenset(
    {
        "tools",
        "store",
        "providers",
        "approver",
        "unanswered",
        "before_tool",
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


_PROMPT_PARTS = (TextPart, MediaPart, ReminderPart)
"""What a user can say; everything else is a model's, or the runtime's answer to it."""


def make_prompt(prompt: Prompt, options: QueryOptions, query_id: QueryId) -> UserMessage:
    """Make the user message of a prompt.

    Raises:
        ConfigError: CONFIG_INVALID when there is nothing in it, or something that cannot be said.

    """
    parts = _parts_of(prompt)
    says_something = any(not isinstance(part, TextPart) or part.text.strip() for part in parts)
    if not says_something and not options.get("attachments"):
        raise ConfigError(ErrorCode.CONFIG_INVALID, "Empty prompt: there is nothing to send")
    parts = tuple(_writable(part) for part in parts)
    given = prompt.sender if isinstance(prompt, UserMessage) else None
    sender = _sender(options.get("sender") or given)
    return UserMessage(id=new_message_id(), parts=parts, query_id=query_id, sender=sender)


def _sender(given: object) -> Sender | None:
    """Return who speaks, as a value of ours; plain values are fine, too."""
    try:
        return msgspec.convert(msgspec.to_builtins(given), Sender | None)
    except (msgspec.ValidationError, TypeError) as error:
        raise _no_prompt(f"the sender of a prompt is not valid: {error}") from error


def _parts_of(prompt: Prompt) -> tuple[Part, ...]:
    if isinstance(prompt, str):
        return (TextPart(text=prompt),)
    if isinstance(prompt, UserMessage):
        prompt = prompt.parts
    if not isinstance(prompt, Sequence):
        raise _no_prompt(f"a prompt must be text or a list of parts, not {type(prompt).__name__}")
    return tuple(_prompt_part(part) for part in prompt)


def _prompt_part(part: object) -> Part:
    if not isinstance(part, _PROMPT_PARTS):
        raise _no_prompt(f"a prompt cannot hold {type(part).__name__}")
    try:
        return check_content(part)
    except ValueError as error:
        raise _no_prompt(f"a prompt cannot hold this: {error}") from error


def _no_prompt(message: str) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, message)


def _writable(part: Part) -> Part:
    if isinstance(part, TextPart | ReminderPart):
        return msgspec.structs.replace(part, text=writable(part.text))
    return part
