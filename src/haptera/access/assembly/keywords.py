"""Keywords of functions with options, by `scripts/write_keywords.py`: not by hand.

A module of its own because it is data that a script writes.
"""

from collections.abc import Callable, Iterable
from typing import TypedDict

from haptera.kernel.blocks.approval_coordinator import MakeApprovals
from haptera.kernel.blocks.control_channel.channel import ControlChannelInterface
from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.request_builder import RequestBuilder
from haptera.kernel.blocks.stream_processor.processor import StreamProcessorInterface
from haptera.kernel.blocks.tool_registry.registry import ToolInput, ToolRegistryInterface
from haptera.kernel.engine.query import Runner
from haptera.kernel.engine.turn_runner import TurnRunnerInterface
from haptera.model.approvals import ApprovalRequest, Decision
from haptera.model.settings import RuntimeSettings, Settings
from haptera.ports.tools import Approver
from haptera.system.clock import Clock, Random


class BlockOptions(TypedDict, total=False):
    """What `make_blocks` can be given beside the model; everything has a default."""

    tools: Iterable[ToolInput] | None
    """Functions that the model may call, what `@tool` made of them, and sources of tools; given to
    a session or a query, instead of those of the agent."""
    tool_registry: ToolRegistryInterface | None
    """A tool registry of your own, instead of one of `tools`."""
    request_builder: RequestBuilder
    """A function of your own that builds requests."""
    stream_processor: StreamProcessorInterface | None
    """A stream processor of your own."""
    turn_runner: TurnRunnerInterface | None
    """A turn runner of your own."""
    query_runner: Runner | None
    """A query runner of your own, which answers every prompt."""
    hooks: Hooks | None
    """Functions that are called before and after queries, turns, tool calls and compactions, that
    change requests, and that are told of sessions; a `haptera.hooks.Hooks`."""
    clock: Clock
    """The time, for tests."""
    random: Random
    """Random numbers, for tests."""
    runtime: RuntimeSettings
    """Buffers, checkpoints, how long closing waits; a `haptera.settings.RuntimeSettings` or a
    dictionary."""


class HoldOptions(TypedDict, total=False):
    """What `blocks.hold` can be given beside the conversation; everything has a default."""

    settings: Settings | None
    """What requests are built from: model, system prompts, limits and so on; None: those of
    `make_blocks`."""
    channel: ControlChannelInterface | None
    """A channel of your own, which delivers events and takes commands."""
    approvals: MakeApprovals
    """Makes approval coordinators of your own, of the parameters of `ApprovalCoordinator`."""
    approver: Approver | Callable[[ApprovalRequest], Decision] | None
    """Asked about tool calls that must be approved; without one they wait for an `ApproveCall` or a
    `DenyCall` that is submitted to the channel."""
