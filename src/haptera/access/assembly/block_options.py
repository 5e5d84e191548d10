"""The options of `make_blocks` and `blocks.hold`, each declared once, and where others belong."""

from collections.abc import Callable
from typing import Annotated, TypedDict

from haptera.access.assembly.agent_inputs import (
    AgentInputs,
    ClockOption,
    ConfigurationSources,
    HooksOption,
    OwnAccess,
    RandomOption,
    RuntimeOption,
    ToolsOption,
)
from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator, MakeApprovals
from haptera.kernel.blocks.control_channel.channel import ControlChannelInterface
from haptera.kernel.blocks.request_builder import RequestBuilder, build_request
from haptera.kernel.blocks.stream_processor.processor import StreamProcessorInterface
from haptera.kernel.blocks.tool_registry.registry import ToolRegistryInterface
from haptera.kernel.engine.query import Runner
from haptera.kernel.engine.turn_runner import TurnRunnerInterface
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.option_declarations import Option, function_option, options_of
from haptera.model.settings import Settings
from haptera.ports.tools import Approver


def _block_option(sentence: str, *, method: str, wanted: str) -> Option:
    """Declare an option that is a block of the caller's own; None is the default block."""

    def fits(value: object) -> bool:
        is_block = not isinstance(value, type) and callable(getattr(value, method, None))
        return value is None or is_block

    return Option(sentence, default=None, fits=fits, wanted=wanted)


class BlockOptions(TypedDict, total=False):
    """What `make_blocks` can be given beside the model; everything has a default."""

    tools: ToolsOption
    tool_registry: Annotated[
        ToolRegistryInterface | None,
        _block_option(
            "A tool registry of your own, instead of one of `tools`.",
            method="current",
            wanted="a ToolRegistryInterface",
        ),
    ]
    request_builder: Annotated[
        RequestBuilder,
        Option(
            "A function of your own that builds requests.",
            default=build_request,
            shown="build_request",
            fits=callable,
            wanted="a function",
        ),
    ]
    stream_processor: Annotated[
        StreamProcessorInterface | None,
        _block_option(
            "A stream processor of your own.",
            method="begin",
            wanted="a StreamProcessorInterface",
        ),
    ]
    turn_runner: Annotated[
        TurnRunnerInterface | None,
        _block_option(
            "A turn runner of your own.",
            method="run",
            wanted="a TurnRunnerInterface",
        ),
    ]
    query_runner: Annotated[
        Runner | None,
        _block_option(
            "A query runner of your own, which answers every prompt.",
            method="start",
            wanted="a Runner",
        ),
    ]
    hooks: HooksOption
    clock: ClockOption
    random: RandomOption
    runtime: RuntimeOption


class HoldOptions(TypedDict, total=False):
    """What `blocks.hold` can be given beside the conversation; everything has a default."""

    settings: Annotated[
        Settings | None,
        Option(
            "What requests are built from: model, system prompts, limits and so on; None: those of "
            "`make_blocks`.",
            default=None,
            fits=lambda value: value is None or isinstance(value, Settings),
            wanted="Settings",
        ),
    ]
    channel: Annotated[
        ControlChannelInterface | None,
        _block_option(
            "A channel of your own, which delivers events and takes commands.",
            method="publish",
            wanted="a ControlChannelInterface",
        ),
    ]
    approvals: Annotated[
        MakeApprovals,
        Option(
            "Makes approval coordinators of your own, of the parameters of `ApprovalCoordinator`.",
            default=ApprovalCoordinator,
            shown="ApprovalCoordinator",
            fits=callable,
            wanted="a function",
        ),
    ]
    approver: Annotated[
        Approver | Callable[[ApprovalRequest], Decision] | None,
        function_option(
            "Asked about tool calls that must be approved; without one they wait for an "
            "`ApproveCall` or a `DenyCall` that is submitted to the channel."
        ),
    ]


_OF_AGENTS = frozenset(
    {
        *AgentInputs.__struct_fields__,
        *AgentDefaults.__struct_fields__,
        *ConfigurationSources.__struct_fields__,
    }
)


def place_of_option(name: str) -> str | None:
    """Say where an option belongs that blocks are not told here."""
    if name in {*Settings.__struct_fields__, "system_prompt"}:
        return f"{name} is a setting; pass it as blocks.hold(settings=Settings(...))"
    if name in options_of(HoldOptions):
        return f"{name} is an option of blocks.hold()"
    if name in options_of(BlockOptions):
        return f"{name} is an option of make_blocks()"
    if name in OwnAccess.__struct_fields__:
        return (
            f"{name} is an option of Agent(); for blocks, write it into [providers.NAME] of the "
            "configuration file, set the variable of the provider, or pass a ModelClient of your "
            "own as the model"
        )
    return f"{name} is an option of Agent()" if name in _OF_AGENTS else None
