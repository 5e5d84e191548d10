"""What an agent is built from: the types of its inputs, and where configuration is looked for.

The options that an agent shares with `make_blocks` are declared here. `import haptera` loads this
file, so it imports types only.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.tool_registry.registry import ToolInput
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.events import Instrumented
from haptera.model.late_names import late_module
from haptera.model.option_declarations import Option, is_anything, is_list
from haptera.model.parts import MediaPart
from haptera.model.secrets import Secret
from haptera.model.settings import RuntimeSettings
from haptera.model.vendors import split_model
from haptera.ports.model_client import ModelClient
from haptera.ports.native_agent import NativeAgent
from haptera.ports.session_store import Store
from haptera.ports.telemetry import Telemetry
from haptera.ports.tools import Approver, Unanswered
from haptera.system.clock import Clock, Random, SystemClock
from haptera.system.token_source import TokenSource

if TYPE_CHECKING:
    from haptera.providers.transport.protocol import Transport

PathInput: TypeAlias = str | os.PathLike[str]
"""A path, as users write it."""
TokenFunction: TypeAlias = Callable[[], "str | Secret | Awaitable[str | Secret]"]
TransportFactory: TypeAlias = Callable[[], "Transport"]
"""Makes the transport to a provider; called once for each."""
AttachmentInput: TypeAlias = MediaPart | PathInput | bytes
"""A part as it is; a file; a path, or a URL that begins like one; or content."""


class ConfigurationSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where configuration is looked for; everything has the usual default."""

    environment: Mapping[str, str] | None = None
    config_dir: PathInput | None = None
    config_path: PathInput | None = None
    cwd: PathInput | None = None


class OwnAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What the program itself says of the way to its model's provider."""

    api_key: str | Secret | TokenSource | TokenFunction | None = None
    base_url: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        # Neither the key nor the headers, which may hold one.
        return f"OwnAccess(base_url={self.base_url!r})"


def _new_random() -> Random:
    """Return what spreads retries; no secret depends on it."""
    # `import haptera` loads this module, and `random` would make it slower.
    made: Random = late_module("random").Random()
    return made


ToolsOption: TypeAlias = Annotated[
    Iterable[ToolInput] | None,
    Option(
        "Functions that the model may call, what `@tool` made of them, and sources of tools; "
        "given to a session or a query, instead of those of the agent.",
        default=None,
        fits=lambda value: value is None or is_list(value),
        wanted="a list of tools",
    ),
]
HooksOption: TypeAlias = Annotated[
    Hooks | None,
    Option(
        "Functions that are called before and after queries, turns, tool calls and "
        "compactions, that change requests, and that are told of sessions; a "
        "`haptera.hooks.Hooks`.",
        default=None,
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
        make=SystemClock,
        shown="<the machine's clock>",
        fits=lambda value: hasattr(value, "time_ms"),
        wanted="a Clock",
    ),
]
RandomOption: TypeAlias = Annotated[
    Random,
    Option(
        "Random numbers, for tests.",
        make=_new_random,
        shown="<the machine's random numbers>",
        fits=lambda value: hasattr(value, "random"),
        wanted="a Random",
    ),
]


class AgentInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the blocks of an agent are made from; the options of an agent have the defaults."""

    tools: Iterable[ToolInput]
    workspace: PathInput | None
    deps: object
    providers: Iterable[ModelClient | NativeAgent]
    claude_options: Mapping[str, object]
    own_access: OwnAccess
    store: str | Store
    approver: Approver | None
    unanswered: Unanswered
    hooks: Hooks
    instrumentation: Callable[[Instrumented], None] | None
    telemetry: Telemetry | None
    transport: TransportFactory | None
    record_to: PathInput | None
    runtime: RuntimeSettings
    clock: Clock
    random: Random


def is_credential(value: object) -> bool:
    """Whether a value may be given as a key."""
    is_source = callable(value) or callable(getattr(value, "token", None))
    return value is None or isinstance(value, str | Secret) or is_source


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
