"""Options: what an agent, a session, a prompt and a query may be told. Each is declared once.

A declaration is a type and an `Option` with its sentence, default and check. What a file can set
has these in `holdfast.vocabulary`, and only its type here. `option_checks` derives the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypedDict

from holdfast.assembly import late
from holdfast.assembly.agent_inputs import (
    AttachmentInput,
    PathInput,
    SystemClock,
    TokenFunction,
    TransportFactory,
    is_credential,
)
from holdfast.blocks.tool_registry.registry import ToolInput
from holdfast.ports.abort import AbortSignal
from holdfast.ports.clock import Clock, Random
from holdfast.ports.model_client import ModelClient
from holdfast.ports.native_agent import NativeAgent
from holdfast.ports.session_store import Store
from holdfast.ports.telemetry import Telemetry
from holdfast.ports.token_source import TokenSource
from holdfast.ports.tools import Approver, BeforeTool, OutputTransform, Unanswered
from holdfast.serialization.session_state import SessionState
from holdfast.vocabulary.agent_defaults import Permissions
from holdfast.vocabulary.approvals import ApprovalRequest, Decision
from holdfast.vocabulary.events import Instrumented
from holdfast.vocabulary.messages import Sender, UserMessage
from holdfast.vocabulary.native_settings import ClaudeAgentSettings, ClaudeOptions
from holdfast.vocabulary.option_declarations import (
    Option,
    function_option,
    is_list,
    list_option,
    path_option,
)
from holdfast.vocabulary.parts import Part
from holdfast.vocabulary.results import OutputT
from holdfast.vocabulary.secrets import Secret
from holdfast.vocabulary.settings import (
    ApprovalRule,
    CacheTtl,
    CompactionSettings,
    Delivery,
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

Prompt: TypeAlias = str | Sequence[Part] | UserMessage
OnAbort: TypeAlias = Literal["raise", "return"]


def _new_random() -> Random:
    """Return what spreads retries; no secret depends on it."""
    return late.Random()


def _is_store(value: object) -> bool:
    return isinstance(value, str) or hasattr(value, "leases")


def _is_anything(_value: object) -> bool:
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
            fits=_is_anything,
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
    providers: Annotated[
        Iterable[ModelClient | NativeAgent],
        list_option(
            "Model clients of your own, found by their `provider`.",
            wanted="a list of model clients",
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
    before_tool: Annotated[
        BeforeTool | None,
        function_option(
            "An async function that is asked about each call before its input is parsed; returns "
            "`Proceed`, `Block` or `Answer` of `holdfast.ports.tools`."
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
            fits=_is_anything,
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


class SendOptions(TypedDict, total=False):
    """What may be said of a prompt, also to a session that another process holds."""

    delivery: Annotated[
        Delivery,
        Option(
            "What happens when the session is busy: `queue`, `steer` (into the running query), "
            "`reject` (BUSY) or `interrupt`.",
            default="queue",
        ),
    ]
    sender: Annotated[
        Sender | None,
        Option(
            "Who speaks: a `holdfast.vocabulary.messages.Sender`, or a dictionary with `kind` "
            "(`human`, `agent` or `orchestrator`) and `user_id`.",
            default=None,
        ),
    ]
    attachments: Annotated[
        Sequence[AttachmentInput],
        list_option(
            "Files by their path, content as bytes, URLs, or parts; read when the prompt is sent.",
            wanted="a list of attachments",
        ),
    ]


class QueryOnlyOptions(SendOptions, Generic[OutputT], total=False):
    """What one query may be told that an agent or a session may not."""

    signal: Annotated[
        AbortSignal | None,
        Option(
            "An `AbortSignal` that stops the query.",
            default=None,
            fits=lambda value: value is None or isinstance(value, AbortSignal),
            wanted="an AbortSignal (of an AbortController: its `signal`)",
        ),
    ]
    on_abort: Annotated[
        OnAbort,
        Option(
            "What an abort does: `raise` ABORTED with the partial result, or `return` it.",
            default="raise",
        ),
    ]
    timeout: Annotated[
        float | None,
        Option(
            "Seconds that one attempt of one model call may take; a slow consumer's do not count. "
            "0 or None: any.",
            default=None,
            least=0,
        ),
    ]
    total_timeout: Annotated[
        float | None,
        Option(
            "Seconds that the whole query may take, from when it is sent; waiting in the queue "
            "counts. 0 or None: any.",
            default=None,
            least=0,
        ),
    ]
    output_type: Annotated[
        type[OutputT] | None,
        Option(
            "The type of the answer: a pydantic model, dataclass, TypedDict, struct or any other "
            "type hint with a JSON Schema; comes back as `result.output`.",
            default=None,
            fits=_is_anything,
        ),
    ]
    reminders: Annotated[
        Sequence[str],
        Option(
            "Notes to the model with the first request only. They are no part of the conversation, "
            "and stored only while their prompt waits in the queue.",
            default=(),
        ),
    ]
    require_tool: Annotated[
        str | None,
        Option(
            "The tool that the model must call first; what it does after that is its own choice.",
            default=None,
        ),
    ]
    transform: Annotated[
        OutputTransform | None,
        function_option(
            "A function from a tool's name and raw output to what the model sees instead."
        ),
    ]


class QueryOptions(ScopedOptions, QueryOnlyOptions[OutputT], Generic[OutputT], total=False):
    """What one query may be told; settings, tools and deps among it are of this query only."""


class OpeningOptions(TypedDict, total=False):
    """What opening a session may be told that an agent or a query may not."""

    restore: Annotated[
        SessionState | dict[str, Any] | None,
        Option(
            "A `SessionState`, or its plain values, that a new session goes on from.",
            default=None,
            fits=_is_anything,
        ),
    ]
    busy: Annotated[
        Literal["wait", "reject"],
        Option("What to do when another process holds the session.", default="reject"),
    ]
    must_exist: Annotated[
        bool, Option("Whether a session that does not exist is NOT_FOUND.", default=False)
    ]


class SessionOptions(ScopedOptions, OpeningOptions, total=False):
    """What a session may be told when it is opened; settings, tools and deps are its own."""


class OneCallOptions(AgentOptions, QueryOnlyOptions[OutputT], Generic[OutputT], total=False):
    """What a single query may be told about its agent and itself."""


class CreateSessionOptions(AgentOptions, OpeningOptions, total=False):
    """What a single session may be told about its agent and itself."""

    name: Annotated[
        str | None,
        Option("The session's name or id; without one it is new.", default=None, fits=_is_anything),
    ]
