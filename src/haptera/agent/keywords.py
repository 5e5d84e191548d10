"""Keywords of functions with options, by `scripts/write_keywords.py`: not by hand.

A module of its own because it is data that a script writes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypedDict

from haptera.access.assembly.agent_inputs import (
    AttachmentInput,
    PathInput,
    TokenFunction,
    TransportFactory,
)
from haptera.agent.query_options import OnAbort
from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.tool_registry.registry import ToolInput
from haptera.kernel.engine.own_blocks import OwnBlocks
from haptera.model.agent_defaults import Permissions
from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.budgets import Budgets, Watchdogs
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.events import Instrumented
from haptera.model.messages import Sender
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.model.results import OutputT
from haptera.model.secrets import Secret
from haptera.model.session_state import SessionState
from haptera.model.settings import (
    ApprovalRule,
    CacheTtl,
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
from haptera.model.tools import ApprovalMode
from haptera.ports.model_client import ModelClient
from haptera.ports.native_agent import NativeAgent
from haptera.ports.session_store import Store
from haptera.ports.telemetry import Telemetry
from haptera.ports.tools import Approver, OutputTransform, Unanswered
from haptera.system.abort import AbortSignal
from haptera.system.clock import Clock, Random
from haptera.system.token_source import TokenSource


class SettingsKeywords(TypedDict, total=False):
    """What the functions take that unpack it."""

    model: str
    """The model to use, as `provider/model` or by a short name of the configuration file; without
    one, what a key that is found allows, else a small local model."""
    thinking: Thinking | None
    """How much the model thinks first; None is its own default."""
    system_prompt: str | Sequence[str] | None
    """The system prompt; one text or several."""
    max_tokens: int | None
    """The longest answer, in tokens; 0 or None leave it to the provider."""
    temperature: float | None
    """How random answers are: sent as given to models that take it, and not to the others."""
    stop: Sequence[str]
    """Texts that end an answer where they appear in it."""
    seed: int | None
    """Makes answers repeatable, where a provider can."""
    betas: dict[str, bool]
    """Raw feature switches of the provider, merged over those that Haptera sets."""
    cache_ttl: CacheTtl | None
    """How long a prompt cache lives where the provider offers a choice: `5m` or `1h`, which costs
    more to write; None turns it off."""
    cached_reminders: Sequence[str]
    """Notes that lead the conversation and come back after a compaction."""
    compaction: CompactionSettings
    """How a conversation that grows too long is made shorter."""
    parallel_tools: bool
    """Whether the tools of one turn run side by side; otherwise in the model's order."""
    parallel_tool_calls: bool
    """Whether the model may call several tools in one answer, where it can be told."""
    allowed_tools: Sequence[str] | None
    """Names of tools that the model may use; None allows all, an empty list none."""
    denied_tools: Sequence[str]
    """Names of tools that it may not use; a denial wins."""
    approval: ApprovalRule
    """Which tool calls ask for approval: `by_tool`: those whose tool says `approval="ask"`; `ask`:
    every call of every tool."""
    loop_threshold: int | None
    """Which identical tool call in a row is a loop, when all results before it were the same, too;
    None: never."""
    on_loop: OnLoop
    """What happens to that call: "allow" runs it, "ask" asks the approver where there is one. If
    that denies it, without one and with "deny", it is not run and the model is told so. If the
    model insists, the query ends with the stop reason `loop`."""
    permission_mode: PermissionMode
    """What happens to tool calls that no permission rule allows or denies. `default` (or `ask`):
    tools ask as they are marked; `accept_edits`: files are changed without asking; `plan`: only
    tools that read may run; `dont_ask`: what would be asked is denied."""
    on_deny: OnDeny
    """What happens after a tool call was denied: with "continue" the model is told and goes on;
    with "stop" the query ends with the stop reason `refusal`."""
    limits: Limits
    """What one query may use, and how much one answer may hold; on the last turn that they allow,
    the model gets no tools and is asked to wrap up."""
    retry: RetrySettings
    """How a failed model call is repeated within a turn."""
    watchdogs: Watchdogs
    """When a query that gets nowhere is ended."""
    fallbacks: Sequence[ModelStep | str]
    """Models to go on with when one fails, in their order."""
    timeouts: Timeouts
    """How long a provider may be silent."""


class AgentKeywords(SettingsKeywords, total=False):
    """What the functions take that unpack it."""

    store: str | Store
    """Where sessions are kept: `memory`, `jsonl:DIR`, `sqlite:FILE` or `postgresql://URL`; or a
    store object, which its owner closes."""
    owner: str
    """Whose sessions these are."""
    project: str | None
    """What its sessions belong to; None is the working folder. A session's name is unique within
    its owner and project."""
    recall: bool
    """Whether the model gets the tool `recall`, which searches the other sessions of the same owner
    and project."""
    snapshots: bool
    """Whether the files of the workspace are recorded before and after tools change them, for
    `session.diff` and `session.rewind(files=True)`. Needs the program `git`."""
    mcp_servers: Sequence[str] | None
    """Which MCP servers of the user's file (`[mcpServers]`) are offered, by name; None: all that
    are not disabled; an empty list: none. Those made in Python are given as `tools`."""
    title_model: str | None
    """A small model that gives sessions a title after their first exchange, in the background; None
    makes none."""
    context_files: Sequence[str]
    """Instruction files that the model is told when there is a workspace: names that are looked for
    from the workspace up to the root of its repository and in the user's configuration folder (of
    each folder the first that exists), or paths; an empty list: none."""
    skill_folders: Sequence[str]
    """Folders of the workspace with skills (`NAME/SKILL.md`), which the model can load by the tool
    `load_skill`; the user's own are in `skills` of the configuration folder. An empty list:
    none."""
    budgets: Budgets
    """What sessions may spend, checked before each call of a model; a `haptera.settings.Budgets` or
    a dictionary."""
    permissions: Permissions
    """Rules for tool calls: which are allowed, asked about and denied. Rules of the user's file, of
    a trusted project file and of the program all count; a `haptera.settings.Permissions` or a
    dictionary."""
    claude_agent: ClaudeAgentSettings
    """How models of `claude-agent/…` are run."""
    tools: Iterable[ToolInput] | None
    """Functions that the model may call, what `@tool` made of them, and sources of tools; given to
    a session or a query, instead of those of the agent."""
    deps: Any
    """Any object for tools that ask for it, as `ToolContext.deps`; given to a session or a query,
    instead of the agent's. Never stored."""
    workspace: PathInput | None
    """A folder for the built-in tools."""
    providers: Iterable[ModelClient | NativeAgent]
    """Model clients of your own, found by their `provider`."""
    claude_options: Mapping[str, Any]
    """`mcp_servers`, `hooks` and `agents` for models of `claude-agent/…`, as claude-agent-sdk takes
    them."""
    transport: TransportFactory | None
    """Makes the transport to a provider; None is HTTP as the environment has it set up."""
    record_to: PathInput | None
    """A file for requests and answers, to be replayed by `haptera.testing.ReplayClient`."""
    approver: Approver | Callable[[ApprovalRequest], Decision] | None
    """A function, async or not, from `ApprovalRequest` to `Approve` or `Deny`."""
    unanswered: Unanswered
    """Without an approver: `stop` (the query rests) or `deny`."""
    hooks: Hooks | None
    """Functions that are called before and after queries, turns, tool calls and compactions, that
    change requests, and that are told of sessions; a `haptera.hooks.Hooks`."""
    instrumentation: Callable[[Instrumented], None] | None
    """A function that gets measurements of each query, turn and tool call, as events
    (`haptera.events.Instrumented`)."""
    telemetry: Telemetry | None
    """Where queries, turns and tool calls are traced, such as
    `haptera.telemetry.OpenTelemetry()`."""
    blocks: OwnBlocks | None
    """Blocks of your own, used instead of the default ones; a
    `haptera.building_blocks.OwnBlocks`."""
    runtime: RuntimeSettings
    """Buffers, checkpoints, how long closing waits; a `haptera.settings.RuntimeSettings` or a
    dictionary."""
    clock: Clock
    """The time, for tests."""
    random: Random
    """Random numbers, for tests."""
    api_key: str | Secret | TokenSource | TokenFunction | None
    """The key for the model's provider, instead of the one that is found."""
    base_url: str | None
    """The URL of the model's provider, instead of its own."""
    headers: dict[str, str]
    """More headers for each request to the model's provider."""
    environment: Mapping[str, str] | None
    """Variables to use instead of the process's own."""
    config_dir: PathInput | None
    """The folder of the configuration file, instead of the user's own."""
    config_path: PathInput | None
    """The configuration file itself, which must exist."""
    cwd: PathInput | None
    """The folder that relative paths are taken from, but for those in `store` and in `local:PATH`;
    None is the working folder."""


class SessionKeywords(SettingsKeywords, total=False):
    """What the functions take that unpack it."""

    tools: Iterable[ToolInput] | None
    """Functions that the model may call, what `@tool` made of them, and sources of tools; given to
    a session or a query, instead of those of the agent."""
    deps: Any
    """Any object for tools that ask for it, as `ToolContext.deps`; given to a session or a query,
    instead of the agent's. Never stored."""
    restore: SessionState | dict[str, Any] | None
    """A `SessionState`, or its plain values, that a new session goes on from."""
    busy: Literal["wait", "reject"]
    """What to do when another process holds the session."""
    must_exist: bool
    """Whether a session that does not exist is NOT_FOUND."""
    native_session_id: str | None
    """The session of a native agent that this session, which has no conversation yet, goes on with.
    One that is not found is NOT_FOUND."""


class CreateSessionKeywords(AgentKeywords, SessionKeywords, total=False):
    """What the functions take that unpack it."""

    name: str | None
    """The session's name or id; without one it is new."""


class ResumeKeywords(SettingsKeywords, Generic[OutputT], total=False):
    """What the functions take that unpack it."""

    tools: Iterable[ToolInput] | None
    """Functions that the model may call, what `@tool` made of them, and sources of tools; given to
    a session or a query, instead of those of the agent."""
    deps: Any
    """Any object for tools that ask for it, as `ToolContext.deps`; given to a session or a query,
    instead of the agent's. Never stored."""
    signal: AbortSignal | None
    """An `AbortSignal` that stops the query."""
    on_abort: OnAbort
    """What an abort does: `raise` ABORTED with the partial result, or `return` it."""
    total_timeout: float | None
    """Seconds that the whole query may take, from when it is sent; waiting in the queue counts. 0
    or None: any."""
    output_type: type[OutputT] | None
    """The type of the answer: a pydantic model, dataclass, TypedDict, struct or any other type hint
    with a JSON Schema; comes back as `result.output`."""
    output_schema: dict[str, Any] | None
    """The JSON Schema that the answer must match; comes back as `result.output`, as plain values or
    what `output_type` makes of them. Needs the package `jsonschema`."""
    reminders: Sequence[str]
    """Notes to the model with the first request only. They are not part of the conversation, and
    stored only while their prompt waits in the queue."""
    require_tool: str | None
    """The tool that the model must call first; what it does after that is its own choice."""
    timeout: float | None
    """Seconds that one attempt of one model call may take; a slow consumer's do not count. 0 or
    None: any."""
    transform: OutputTransform | None
    """A function from a tool's name and raw output to what the model sees instead."""
    delivery: Delivery
    """What happens when the session is busy: `queue`, `steer` (into the running query), `reject`
    (BUSY) or `interrupt`."""


class SingleQueryKeywords(SettingsKeywords, Generic[OutputT], total=False):
    """What the functions take that unpack it."""

    tools: Iterable[ToolInput] | None
    """Functions that the model may call, what `@tool` made of them, and sources of tools; given to
    a session or a query, instead of those of the agent."""
    deps: Any
    """Any object for tools that ask for it, as `ToolContext.deps`; given to a session or a query,
    instead of the agent's. Never stored."""
    signal: AbortSignal | None
    """An `AbortSignal` that stops the query."""
    on_abort: OnAbort
    """What an abort does: `raise` ABORTED with the partial result, or `return` it."""
    total_timeout: float | None
    """Seconds that the whole query may take, from when it is sent; waiting in the queue counts. 0
    or None: any."""
    output_type: type[OutputT] | None
    """The type of the answer: a pydantic model, dataclass, TypedDict, struct or any other type hint
    with a JSON Schema; comes back as `result.output`."""
    output_schema: dict[str, Any] | None
    """The JSON Schema that the answer must match; comes back as `result.output`, as plain values or
    what `output_type` makes of them. Needs the package `jsonschema`."""
    reminders: Sequence[str]
    """Notes to the model with the first request only. They are not part of the conversation, and
    stored only while their prompt waits in the queue."""
    require_tool: str | None
    """The tool that the model must call first; what it does after that is its own choice."""
    timeout: float | None
    """Seconds that one attempt of one model call may take; a slow consumer's do not count. 0 or
    None: any."""
    transform: OutputTransform | None
    """A function from a tool's name and raw output to what the model sees instead."""
    sender: Sender | None
    """Who speaks: a `haptera.settings.Sender`, or a dictionary with `kind` (`human`, `agent` or
    `orchestrator`) and `user_id`."""
    attachments: Sequence[AttachmentInput]
    """Files by their path, content as bytes, URLs, or parts; read when the prompt is sent."""


class QueryKeywords(
    SingleQueryKeywords[OutputT], ResumeKeywords[OutputT], Generic[OutputT], total=False
):
    """What the functions take that unpack it."""


class OneCallKeywords(AgentKeywords, SingleQueryKeywords[OutputT], Generic[OutputT], total=False):
    """What the functions take that unpack it."""


class AdmissionKeywords(TypedDict, total=False):
    """What may be said of a prompt that is sent without waiting for the answer."""

    delivery: Delivery
    """What happens when the session is busy: `queue`, `steer` (into the running query), `reject`
    (BUSY) or `interrupt`."""
    sender: Sender | None
    """Who speaks: a `haptera.settings.Sender`, or a dictionary with `kind` (`human`, `agent` or
    `orchestrator`) and `user_id`."""
    attachments: Sequence[AttachmentInput]
    """Files by their path, content as bytes, URLs, or parts; read when the prompt is sent."""
    message_id: str | None
    """An id for the message, of your choice and unique in the session. A message that the session
    has already is not taken in again, so sending may be repeated."""


class SubAgentKeywords(TypedDict, total=False):
    """What `as_tool` may be told beside the name and the description of the tool."""

    approval: ApprovalMode
    """Whether a person is asked before each call."""
    timeout: float | None
    """Seconds that a call may take; 0 or None: any."""
    output_type: object
    """The type of the answers, as for a query; the model that calls the tool gets JSON."""
