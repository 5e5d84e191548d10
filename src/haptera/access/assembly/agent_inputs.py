"""What an agent is built from: options of an agent that no file can say, each declared once.

`import haptera` loads this
file, so it imports types only.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.tool_registry.registry import ToolInput
from haptera.kernel.own_blocks import OwnBlocks
from haptera.model.agent_defaults import AgentDefaults, FileLocations
from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.events import Instrumented
from haptera.model.late_names import late_module
from haptera.model.option import Option
from haptera.model.parts import MediaPart
from haptera.model.secrets import Secret
from haptera.model.settings import RuntimeSettings
from haptera.model.vendors import split_model
from haptera.options.declarations import (
    function_option,
    is_anything,
    is_list,
    list_option,
    object_option,
    path_option,
)
from haptera.ports.model_client import ModelClient
from haptera.ports.native_agent import NativeAgent
from haptera.ports.session_store import Store
from haptera.ports.telemetry import Telemetry
from haptera.ports.tools import Approver, Unanswered
from haptera.system.clock import Clock, Random, SystemClock
from haptera.system.token_source import TokenSource

if TYPE_CHECKING:
    from haptera.providers.transport.protocol import Transport

    TransportFactory: TypeAlias = Callable[[], Transport]
    """Makes the transport to a provider; called once for each."""
else:  # types of fields are looked up when options are declared
    TransportFactory: TypeAlias = Callable

PathInput: TypeAlias = str | os.PathLike[str]
"""A path, as users write it."""
TokenFunction: TypeAlias = Callable[[], "str | Secret | Awaitable[str | Secret]"]
AttachmentInput: TypeAlias = MediaPart | PathInput | bytes
"""A part as it is; a file; a path, or a URL that begins like one; or content."""


def new_random() -> Random:
    """Return what spreads retries; no secret depends on it."""
    # `import haptera` loads this module, and `random` would make it slower.
    made: Random = late_module("random").Random()
    return made


_HANDED_THROUGH = frozenset({"mcp_servers", "hooks", "agents"})


def _is_store(value: object) -> bool:
    return isinstance(value, str) or hasattr(value, "leases")


ToolsOption: TypeAlias = Annotated[
    Iterable[ToolInput] | None,
    Option(
        "Functions that the model may call, what `@tool` made of them, and sources of tools; "
        "given to a session or a query, instead of those of the agent.",
        fits=lambda value: value is None or is_list(value),
        wanted="a list of tools",
    ),
]
DepsOption: TypeAlias = Annotated[
    Any,
    Option(
        "Any object for tools that ask for it, as `ToolContext.deps`; given to a session or a "
        "query, instead of the agent's. Never stored.",
        fits=is_anything,
    ),
]
HooksOption: TypeAlias = Annotated[
    Hooks | None,
    Option(
        "Functions that are called before and after queries, turns, tool calls and "
        "compactions, that change requests, and that are told of sessions; a "
        "`haptera.hooks.Hooks`.",
        fits=lambda value: value is None or isinstance(value, Hooks),
        wanted="a Hooks of haptera.hooks",
    ),
]
RuntimeOption: TypeAlias = Annotated[
    RuntimeSettings,
    Option(
        "Buffers, checkpoints, how long closing waits; a "
        "`haptera.settings.RuntimeSettings` or a dictionary.",
        shown="RuntimeSettings()",
        fits=is_anything,
    ),
]
"""Without it, configuration decides, which also checks it."""
ClockOption: TypeAlias = Annotated[
    Clock,
    Option(
        "The time, for tests.",
        shown="<the machine's clock>",
        fits=lambda value: hasattr(value, "time_ms"),
        wanted="a Clock",
    ),
]
RandomOption: TypeAlias = Annotated[
    Random,
    Option(
        "Random numbers, for tests.",
        shown="<the machine's random numbers>",
        fits=lambda value: hasattr(value, "random"),
        wanted="a Random",
    ),
]


def is_credential(value: object) -> bool:
    """Whether a value may be given as a key."""
    is_source = callable(value) or callable(getattr(value, "token", None))
    return value is None or isinstance(value, str | Secret) or is_source


class ConfigurationSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where configuration is looked for; everything has the usual default."""

    environment: Annotated[
        Mapping[str, str] | None,
        Option(
            "Variables to use instead of the process's own.",
            fits=lambda value: value is None or isinstance(value, Mapping),
            wanted="a mapping",
        ),
    ] = None
    config_dir: Annotated[PathInput | None, path_option(of=FileLocations)] = None
    config_path: Annotated[PathInput | None, path_option(of=FileLocations)] = None
    cwd: Annotated[
        PathInput | None,
        path_option(
            "The folder that relative paths are taken from, but for those in `store` and in "
            "`local:PATH`; None is the working folder."
        ),
    ] = None


class OwnAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What the program itself says of the way to its model's provider."""

    api_key: Annotated[
        str | Secret | TokenSource | TokenFunction | None,
        Option(
            "The key for the model's provider, instead of the one that is found.",
            fits=is_credential,
            wanted="a key, a Secret, a function that returns one, or a TokenSource",
        ),
    ] = None
    base_url: Annotated[
        str | None, Option("The URL of the model's provider, instead of its own.")
    ] = None
    headers: Annotated[
        dict[str, str], Option("More headers for each request to the model's provider.")
    ] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        # Neither the key nor the headers, which may hold one.
        return f"OwnAccess(base_url={self.base_url!r})"


class ObserverOptions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Who is asked and told of what happens in an agent, and by which clock it runs."""

    approver: Annotated[
        Approver | Callable[[ApprovalRequest], Decision] | None,
        function_option("A function, async or not, from `ApprovalRequest` to `Approve` or `Deny`."),
    ] = None
    unanswered: Annotated[
        Unanswered, Option("Without an approver: `stop` (the query rests) or `deny`.")
    ] = "stop"
    hooks: HooksOption = None
    instrumentation: Annotated[
        Callable[[Instrumented], None] | None,
        function_option(
            "A function that gets measurements of each query, turn and tool call, as events "
            "(`haptera.events.Instrumented`)."
        ),
    ] = None
    telemetry: Annotated[
        Telemetry | None,
        object_option(
            "Where queries, turns and tool calls are traced, such as "
            "`haptera.telemetry.OpenTelemetry()`.",
            method="begin",
            wanted="a Telemetry, such as OpenTelemetry()",
        ),
    ] = None
    runtime: RuntimeOption = RuntimeSettings()
    clock: ClockOption = msgspec.field(default_factory=SystemClock)
    random: RandomOption = msgspec.field(default_factory=new_random)


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the blocks of an agent are made from."""

    tools: ToolsOption = None
    deps: DepsOption = None
    workspace: Annotated[PathInput | None, path_option("A folder for the built-in tools.")] = None
    store: Annotated[str | Store, Option(of=AgentDefaults, fits=_is_store, wanted="a store")] = (
        "memory"
    )
    providers: Annotated[
        Iterable[ModelClient | NativeAgent],
        list_option(
            "Model clients of your own, found by their `provider`.",
            wanted="a list of model clients, such as [MyClient()]",
        ),
    ] = ()
    claude_options: Annotated[
        Mapping[str, Any],
        Option(
            "`mcp_servers`, `hooks` and `agents` for models of `claude-agent/…`, as "
            "claude-agent-sdk takes them.",
            fits=lambda value: isinstance(value, Mapping) and set(value) <= _HANDED_THROUGH,
            wanted="a mapping with `mcp_servers`, `hooks` or `agents`",
        ),
    ] = msgspec.field(default_factory=dict)
    own_access: OwnAccess = OwnAccess()
    transport: Annotated[
        TransportFactory | None,
        function_option(
            "Makes the transport to a provider; None is HTTP as the environment has it set up."
        ),
    ] = None
    record_to: Annotated[
        PathInput | None,
        path_option(
            "A file for requests and answers, to be replayed by `haptera.testing.ReplayClient`."
        ),
    ] = None
    blocks: Annotated[
        OwnBlocks | None,
        Option(
            "Blocks of your own, used instead of the default ones; a "
            "`haptera.building_blocks.OwnBlocks`.",
            fits=lambda value: value is None or isinstance(value, OwnBlocks),
            wanted="an OwnBlocks of haptera.building_blocks",
        ),
    ] = None
    around: ObserverOptions = msgspec.field(default_factory=ObserverOptions)


def checked_model(model: str) -> tuple[str, str]:
    """Split `provider/model`.

    Raises:
        ConfigError: CONFIG_INVALID when one of them is missing.

    """
    provider, name = split_model(model)
    if not provider or not name:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"model {model!r} must be written as 'provider/model', "
            "for example 'anthropic/claude-sonnet-5'",
        )
    return provider, name
