"""Options of agents, and those that sessions and queries share. Each is declared once.

A declaration is a type and an `Option` with its sentence, default and check. What a file can set
has these in `holdfast.vocabulary`, and only its type here. `query_options` has those of
prompts, queries and openings; `option_checks` derives the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypedDict

from holdfast.assembly import late
from holdfast.assembly.agent_inputs import (
    PathInput,
    SystemClock,
    TokenFunction,
    TransportFactory,
    is_credential,
)
from holdfast.blocks.hook_dispatch.registration import Hooks
from holdfast.blocks.tool_registry.registry import ToolInput
from holdfast.ports.clock import Clock, Random
from holdfast.ports.model_client import ModelClient
from holdfast.ports.native_agent import NativeAgent
from holdfast.ports.session_store import Store
from holdfast.ports.telemetry import Telemetry
from holdfast.ports.token_source import TokenSource
from holdfast.ports.tools import Approver, Unanswered
from holdfast.vocabulary.agent_defaults import Permissions
from holdfast.vocabulary.approvals import ApprovalRequest, Decision
from holdfast.vocabulary.budgets import Budgets, Watchdogs
from holdfast.vocabulary.compaction_settings import CompactionSettings
from holdfast.vocabulary.events import Instrumented
from holdfast.vocabulary.native_settings import ClaudeAgentSettings, ClaudeOptions
from holdfast.vocabulary.option_declarations import (
    Option,
    function_option,
    is_list,
    list_option,
    path_option,
)
from holdfast.vocabulary.secrets import Secret
from holdfast.vocabulary.settings import (
    ApprovalRule,
    CacheTtl,
    Limits,
    ModelStep,
    OnDeny,
    OnLoop,
    PermissionMode,
    RetrySettings,
    RuntimeSettings,
    Thinking,
    Timeouts,
)


def _new_random() -> Random:
    """Return what spreads retries; no secret depends on it."""
    return late.Random()


def _is_store(value: object) -> bool:
    return isinstance(value, str) or hasattr(value, "leases")


def is_anything(_value: object) -> bool:
    """Leave the check to what takes the value."""
    return True


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
    approval: ApprovalRule
    loop_threshold: int | None
    on_loop: OnLoop
    permission_mode: PermissionMode
    on_deny: OnDeny
    limits: Limits
    retry: RetrySettings
    watchdogs: Watchdogs
    fallbacks: Sequence[ModelStep | str]
    timeouts: Timeouts


class ScopedOptions(SettingsOptions, total=False):
    """What an agent, a session or a query may be told; what is told to the narrower one wins."""

    tools: Annotated[
        Iterable[ToolInput] | None,
        Option(
            "Functions that the model may call, what `@tool` made of them, and sources of tools; "
            "given to a session or a query, instead of those of the agent.",
            default=None,
            fits=lambda value: value is None or is_list(value),
            wanted="a list of tools",
        ),
    ]
    deps: Annotated[
        Any,
        Option(
            "Any object for tools that ask for it, as `ToolContext.deps`; given to a session or a "
            "query, instead of the agent's. Never stored.",
            default=None,
            fits=is_anything,
        ),
    ]


class AgentOptions(ScopedOptions, total=False):
    """What an agent may be told."""

    workspace: Annotated[PathInput | None, path_option("A folder for the built-in tools.")]
    permissions: Permissions
    store: Annotated[str | Store, Option(fits=_is_store, wanted="a store")]
    owner: str
    project: str | None
    title_model: str | None
    recall: bool
    snapshots: bool
    context_files: Sequence[str]
    skill_folders: Sequence[str]
    budgets: Budgets
    mcp_servers: Sequence[str] | None
    providers: Annotated[
        Iterable[ModelClient | NativeAgent],
        list_option(
            "Model clients of your own, found by their `provider`.",
            wanted="a list of model clients, such as [MyClient()]",
        ),
    ]
    claude_agent: ClaudeAgentSettings
    claude_options: ClaudeOptions
    api_key: Annotated[
        str | Secret | TokenSource | TokenFunction | None,
        Option(
            "The key for the model's provider, instead of the one that is found.",
            default=None,
            fits=is_credential,
            wanted="a key, a Secret, a function that returns one, or a TokenSource",
        ),
    ]
    base_url: Annotated[
        str | None, Option("The URL of the model's provider, instead of its own.", default=None)
    ]
    headers: Annotated[
        dict[str, str],
        Option("More headers for each request to the model's provider.", make=dict, shown="{}"),
    ]
    transport: Annotated[
        TransportFactory | None,
        function_option(
            "Makes the transport to a provider; None is HTTP as the environment has it set up."
        ),
    ]
    record_to: Annotated[
        PathInput | None,
        path_option(
            "A file for requests and answers, to be replayed by `holdfast.testing.ReplayClient`."
        ),
    ]
    environment: Annotated[
        Mapping[str, str] | None,
        Option(
            "Variables to use instead of the process's own.",
            default=None,
            fits=lambda value: value is None or isinstance(value, Mapping),
            wanted="a mapping",
        ),
    ]
    config_dir: Annotated[
        PathInput | None,
        path_option("The folder of the configuration file, instead of the user's own."),
    ]
    config_path: Annotated[
        PathInput | None,
        path_option("The configuration file itself, which must exist."),
    ]
    cwd: Annotated[
        PathInput | None,
        path_option("The folder that relative paths are taken from; None is the working folder."),
    ]
    approver: Annotated[
        Approver | Callable[[ApprovalRequest], Decision] | None,
        function_option("A function, async or not, from `ApprovalRequest` to `Approve` or `Deny`."),
    ]
    unanswered: Annotated[
        Unanswered,
        Option(
            "Without an approver: `stop` (the query rests) or `deny`.",
            default="stop",
        ),
    ]
    hooks: Annotated[
        Hooks | None,
        Option(
            "Functions that are called before and after queries, turns, tool calls and "
            "compactions, that change requests, and that are told of sessions; a "
            "`holdfast.hooks.Hooks`.",
            default=None,
            fits=lambda value: value is None or isinstance(value, Hooks),
            wanted="a Hooks of holdfast.hooks",
        ),
    ]
    instrumentation: Annotated[
        Callable[[Instrumented], None] | None,
        function_option(
            "A function that gets measurements of each query, turn and tool call, as events "
            "(`holdfast.vocabulary.events.Instrumented`)."
        ),
    ]
    telemetry: Annotated[
        Telemetry | None,
        Option(
            "Where queries, turns and tool calls are traced, such as "
            "`holdfast.telemetry.OpenTelemetry()`.",
            default=None,
            fits=lambda value: value is None or callable(getattr(value, "begin", None)),
            wanted="a Telemetry, such as OpenTelemetry()",
        ),
    ]
    runtime: Annotated[
        RuntimeSettings,
        Option(
            "Buffers, checkpoints, how long closing waits; a "
            "`holdfast.vocabulary.settings.RuntimeSettings` or a dictionary.",
            default=RuntimeSettings(),
            fits=is_anything,
        ),
    ]
    clock: Annotated[
        Clock,
        Option(
            "The time, for tests.",
            make=SystemClock,
            shown="<the machine's clock>",
            fits=lambda value: hasattr(value, "time_ms"),
            wanted="a Clock",
        ),
    ]
    random: Annotated[
        Random,
        Option(
            "Random numbers, for tests.",
            make=_new_random,
            shown="<the machine's random numbers>",
            fits=lambda value: hasattr(value, "random"),
            wanted="a Random",
        ),
    ]
