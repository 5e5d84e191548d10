"""The options of `make_blocks` and `blocks.hold`, each declared once, and where others belong."""

from collections.abc import Callable
from typing import Annotated

import msgspec

from haptera.access.assembly.agent_inputs import (
    AgentOptions,
    ClockOption,
    ConfigurationSources,
    HooksOption,
    ObserverOptions,
    OwnAccess,
    RandomOption,
    RuntimeOption,
    ToolsOption,
    new_random,
)
from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator, MakeApprovals
from haptera.kernel.blocks.control_channel import ControlChannelInterface
from haptera.kernel.blocks.request_builder import RequestBuilder, build_request
from haptera.kernel.blocks.stream_processor.processor import StreamProcessorInterface
from haptera.kernel.blocks.tool_registry.registry import ToolRegistryInterface
from haptera.kernel.query.query import Runner
from haptera.kernel.turns.turn_runner import TurnRunnerInterface
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.option import Option
from haptera.model.settings import RuntimeSettings, Settings
from haptera.options.declarations import declared_options, function_option, object_option
from haptera.ports.tools import Approver
from haptera.system.clock import SystemClock


class BlockChoices(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What `make_blocks` can be given beside the model; everything has a default."""

    tools: ToolsOption = None
    tool_registry: Annotated[
        ToolRegistryInterface | None,
        object_option(
            "A tool registry of your own, instead of one of `tools`.",
            method="current",
            wanted="a ToolRegistryInterface",
        ),
    ] = None
    request_builder: Annotated[
        RequestBuilder,
        Option(
            "A function of your own that builds requests.",
            shown="build_request",
            fits=callable,
            wanted="a function",
        ),
    ] = build_request
    stream_processor: Annotated[
        StreamProcessorInterface | None,
        object_option(
            "A stream processor of your own.",
            method="begin",
            wanted="a StreamProcessorInterface",
        ),
    ] = None
    turn_runner: Annotated[
        TurnRunnerInterface | None,
        object_option(
            "A turn runner of your own.",
            method="run",
            wanted="a TurnRunnerInterface",
        ),
    ] = None
    query_runner: Annotated[
        Runner | None,
        object_option(
            "A query runner of your own, which answers every prompt.",
            method="start",
            wanted="a Runner",
        ),
    ] = None
    hooks: HooksOption = None
    clock: ClockOption = msgspec.field(default_factory=SystemClock)
    random: RandomOption = msgspec.field(default_factory=new_random)
    runtime: RuntimeOption = RuntimeSettings()


class HoldChoices(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What `blocks.hold` can be given beside the conversation; everything has a default."""

    settings: Annotated[
        Settings | None,
        Option(
            "What requests are built from: model, system prompts, limits and so on; None: those of "
            "`make_blocks`.",
            fits=lambda value: value is None or isinstance(value, Settings),
            wanted="Settings",
        ),
    ] = None
    channel: Annotated[
        ControlChannelInterface | None,
        object_option(
            "A channel of your own, which delivers events and takes commands.",
            method="publish",
            wanted="a ControlChannelInterface",
        ),
    ] = None
    approvals: Annotated[
        MakeApprovals,
        Option(
            "Makes approval coordinators of your own, of the parameters of `ApprovalCoordinator`.",
            shown="ApprovalCoordinator",
            fits=callable,
            wanted="a function",
        ),
    ] = ApprovalCoordinator
    approver: Annotated[
        Approver | Callable[[ApprovalRequest], Decision] | None,
        function_option(
            "Asked about tool calls that must be approved; without one they wait for an "
            "`ApproveCall` or a `DenyCall` that is submitted to the channel."
        ),
    ] = None


_OF_AGENTS = frozenset(
    {
        *AgentOptions.__struct_fields__,
        *ObserverOptions.__struct_fields__,
        *AgentDefaults.__struct_fields__,
        *ConfigurationSources.__struct_fields__,
    }
)


def place_of_option(name: str) -> str | None:
    """Say where an option belongs that blocks are not told here."""
    if name in {*Settings.__struct_fields__, "system_prompt"}:
        return f"{name} is a setting; pass it as blocks.hold(settings=Settings(...))"
    if name in declared_options(HoldChoices):
        return f"{name} is an option of blocks.hold()"
    if name in declared_options(BlockChoices):
        return f"{name} is an option of make_blocks()"
    if name in OwnAccess.__struct_fields__:
        return (
            f"{name} is an option of Agent(); for blocks, write it into [providers.NAME] of the "
            "configuration file, set the variable of the provider, or pass a ModelClient of your "
            "own as the model"
        )
    return f"{name} is an option of Agent()" if name in _OF_AGENTS else None
