"""Options of agents, and those that sessions and queries share. Each is declared once.

A declaration is a type and an `Option` with its sentence, default and check. What a file can set is
declared as a field of a struct in `haptera.model`, and named here with its type. What
`make_blocks` takes, too, is declared in `assembly.agent_inputs`. `query_options` has those of
prompts, queries and openings.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypedDict

from haptera.access.assembly.agent_inputs import (
    ClockOption,
    HooksOption,
    PathInput,
    RandomOption,
    RuntimeOption,
    TokenFunction,
    ToolsOption,
    TransportFactory,
    is_credential,
)
from haptera.model.agent_defaults import AgentDefaults, FileLocations, Permissions
from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.budgets import Budgets, Watchdogs
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.events import Instrumented
from haptera.model.native_settings import ClaudeAgentSettings, ClaudeOptions
from haptera.model.option_declarations import (
    Option,
    function_option,
    is_anything,
    list_option,
    path_option,
)
from haptera.model.secrets import Secret
from haptera.model.settings import (
    ApprovalRule,
    CacheTtl,
    Limits,
    ModelStep,
    OnDeny,
    OnLoop,
    PermissionMode,
    RetrySettings,
    Settings,
    Thinking,
    Timeouts,
)
from haptera.model.tools import ApprovalMode, ToolRules
from haptera.ports.model_client import ModelClient
from haptera.ports.native_agent import NativeAgent
from haptera.ports.session_store import Store
from haptera.ports.telemetry import Telemetry
from haptera.ports.tools import Approver, Unanswered
from haptera.system.token_source import TokenSource

_SETTING = Option(of=Settings, fits=is_anything)
"""Configuration checks settings: what is given here is only the strongest of several values."""
_AGENT_DEFAULT = Option(of=AgentDefaults)


def _is_store(value: object) -> bool:
    return isinstance(value, str) or hasattr(value, "leases")


def _is_system_prompt(value: object) -> bool:
    if value is None or isinstance(value, str):
        return True
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


class SettingsOptions(TypedDict, total=False):
    """What outlives a query; also what `configure` takes."""

    model: Annotated[str, _SETTING]
    thinking: Annotated[Thinking | None, _SETTING]
    system_prompt: Annotated[
        str | Sequence[str] | None,
        Option(
            of=Settings,
            field="system_prompts",
            fits=_is_system_prompt,
            wanted="a text or a list of texts",
        ),
    ]
    max_tokens: Annotated[int | None, _SETTING]
    temperature: Annotated[float | None, _SETTING]
    stop: Annotated[Sequence[str], _SETTING]
    seed: Annotated[int | None, _SETTING]
    betas: Annotated[dict[str, bool], _SETTING]
    cache_ttl: Annotated[CacheTtl | None, _SETTING]
    cached_reminders: Annotated[Sequence[str], _SETTING]
    compaction: Annotated[CompactionSettings, _SETTING]
    parallel_tools: Annotated[bool, _SETTING]
    parallel_tool_calls: Annotated[bool, _SETTING]
    allowed_tools: Annotated[Sequence[str] | None, _SETTING]
    denied_tools: Annotated[Sequence[str], _SETTING]
    approval: Annotated[ApprovalRule, _SETTING]
    loop_threshold: Annotated[int | None, _SETTING]
    on_loop: Annotated[OnLoop, _SETTING]
    permission_mode: Annotated[PermissionMode, _SETTING]
    on_deny: Annotated[OnDeny, _SETTING]
    limits: Annotated[Limits, _SETTING]
    retry: Annotated[RetrySettings, _SETTING]
    watchdogs: Annotated[Watchdogs, _SETTING]
    fallbacks: Annotated[Sequence[ModelStep | str], _SETTING]
    timeouts: Annotated[Timeouts, _SETTING]


class ScopedOptions(SettingsOptions, total=False):
    """What an agent, a session or a query may be told; what is told to the narrower one wins."""

    tools: ToolsOption
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
    permissions: Annotated[Permissions, _AGENT_DEFAULT]
    store: Annotated[str | Store, Option(of=AgentDefaults, fits=_is_store, wanted="a store")]
    owner: Annotated[str, _AGENT_DEFAULT]
    project: Annotated[str | None, _AGENT_DEFAULT]
    title_model: Annotated[str | None, _AGENT_DEFAULT]
    recall: Annotated[bool, _AGENT_DEFAULT]
    snapshots: Annotated[bool, _AGENT_DEFAULT]
    context_files: Annotated[Sequence[str], _AGENT_DEFAULT]
    skill_folders: Annotated[Sequence[str], _AGENT_DEFAULT]
    budgets: Annotated[Budgets, _AGENT_DEFAULT]
    mcp_servers: Annotated[Sequence[str] | None, _AGENT_DEFAULT]
    plugins: Annotated[bool, _AGENT_DEFAULT]
    tool_plugins: Annotated[Sequence[str], _AGENT_DEFAULT]
    providers: Annotated[
        Iterable[ModelClient | NativeAgent],
        list_option(
            "Model clients of your own, found by their `provider`.",
            wanted="a list of model clients, such as [MyClient()]",
        ),
    ]
    claude_agent: Annotated[ClaudeAgentSettings, _AGENT_DEFAULT]
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
            "A file for requests and answers, to be replayed by `haptera.testing.ReplayClient`."
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
    config_dir: Annotated[PathInput | None, path_option(of=FileLocations)]
    config_path: Annotated[PathInput | None, path_option(of=FileLocations)]
    cwd: Annotated[
        PathInput | None,
        path_option(
            "The folder that relative paths are taken from, but for those in `store` and in "
            "`local:PATH`; None is the working folder."
        ),
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
    hooks: HooksOption
    instrumentation: Annotated[
        Callable[[Instrumented], None] | None,
        function_option(
            "A function that gets measurements of each query, turn and tool call, as events "
            "(`haptera.events.Instrumented`)."
        ),
    ]
    telemetry: Annotated[
        Telemetry | None,
        Option(
            "Where queries, turns and tool calls are traced, such as "
            "`haptera.telemetry.OpenTelemetry()`.",
            default=None,
            fits=lambda value: value is None or callable(getattr(value, "begin", None)),
            wanted="a Telemetry, such as OpenTelemetry()",
        ),
    ]
    runtime: RuntimeOption
    clock: ClockOption
    random: RandomOption


_RULE = Option(of=ToolRules)


class SubAgentOptions(TypedDict, total=False):
    """What `as_tool` may be told beside the name and the description of the tool."""

    approval: Annotated[ApprovalMode, _RULE]
    timeout: Annotated[float | None, _RULE]
    output_type: Annotated[
        object,
        Option(
            "The type of the answers, as for a query; the model that calls the tool gets JSON.",
            default=None,
            fits=is_anything,
        ),
    ]


def _other_names() -> dict[str, str]:
    """Return how an option is written here, by the names that other libraries have for it."""
    names = {
        "system_prompt": "instructions system system_message system_instruction",
        "model": "llm model_name model_id",
        "max_tokens": "max_output_tokens max_completion_tokens max_new_tokens",
        "stop": "stop_sequences",
        "thinking": "effort reasoning reasoning_effort thinking_budget",
        "limits=Limits(turns=...)": "max_turns max_iterations max_steps recursion_limit",
        "limits=Limits(cost=...)": "max_budget_usd max_cost",
        "tools": "functions toolsets",
        "output_type": "output_format output_schema response_format response_model result_type",
        "deps": "context dependencies",
        "store": "checkpointer db memory",
        "hooks": "callbacks",
        "base_url": "api_base endpoint",
        "fallbacks": "fallback_model fallback_models",
        "workspace": "working_directory root",
    }
    return {name: here for here, listed in names.items() for name in listed.split()}


OTHER_NAMES = _other_names()
"""For the error of an option that is called something else here."""
