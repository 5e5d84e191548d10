"""The blocks that all conversations of an agent share, each made once and joined here."""

from collections.abc import Callable

import msgspec

from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch
from haptera.kernel.blocks.request_builder import RequestBuilder, build_request
from haptera.kernel.blocks.stream_processor.processor import (
    StreamProcessor,
    StreamProcessorInterface,
)
from haptera.kernel.blocks.tool_registry.registry import ToolRegistryInterface
from haptera.kernel.engine.call_permissions import CallPermissions
from haptera.kernel.engine.compactor import Compactor
from haptera.kernel.engine.file_snapshots import FileSnapshots
from haptera.kernel.engine.provider_attempts import ModelRouter, ProviderAttempts
from haptera.kernel.engine.query_runner import QueryRunner
from haptera.kernel.engine.query_scope import QueryScope
from haptera.kernel.engine.tool_dispatcher import ToolDispatcher
from haptera.kernel.engine.tool_execution import ToolExecution
from haptera.kernel.engine.turn_guards import TurnGuards
from haptera.kernel.engine.turn_runner import TurnRunner, TurnRunnerInterface
from haptera.model.settings import RuntimeSettings
from haptera.ports.budgets import BudgetCheck
from haptera.ports.model_client import ModelCatalogue
from haptera.ports.permissions import NO_SURROUNDINGS, ToolSurroundings
from haptera.ports.runner import Runner
from haptera.ports.snapshots import Snapshotter
from haptera.system.clock import Clock, Random


class BlockInputs(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the blocks are made from; a block that is given is used instead of the default one."""

    route: ModelRouter
    catalogue: ModelCatalogue
    tool_registry: ToolRegistryInterface
    clock: Clock
    random: Random
    runtime: RuntimeSettings = RuntimeSettings()
    hooks: HookDispatch = msgspec.field(default_factory=HookDispatch)
    permissions: CallPermissions = CallPermissions()
    """Which tool calls run; by default those whose tools do not ask."""
    surroundings: ToolSurroundings = NO_SURROUNDINGS
    snapshotter: Snapshotter | None = None
    """Records files before and after tools change them."""
    budget: BudgetCheck | None = None
    request_builder: RequestBuilder = build_request
    stream_processor: StreamProcessorInterface | None = None
    turn_runner: TurnRunnerInterface | None = None


def _are_open() -> None:
    """Raise nothing: an agent closes its sessions, and these ask no blocks afterwards."""


class AgentBlocks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Joined blocks. They hold nothing of any query or conversation."""

    request_builder: RequestBuilder
    stream_processor: StreamProcessorInterface
    tool_registry: ToolRegistryInterface
    turn_runner: TurnRunnerInterface
    dispatcher: ToolDispatcher
    files: FileSnapshots
    guards: TurnGuards
    hooks: HookDispatch
    query_runner: Runner[QueryScope]
    check_open: Callable[[], None] = _are_open
    """Raises CLOSED once their owner has closed what they use."""


def join_blocks(inputs: BlockInputs) -> AgentBlocks:
    """Make the blocks that were not given, and join all of them."""
    processor = inputs.stream_processor or StreamProcessor(clock=inputs.clock)
    turns = inputs.turn_runner or TurnRunner(
        request_builder=inputs.request_builder,
        stream_processor=processor,
        catalogue=inputs.catalogue,
        clock=inputs.clock,
        runtime=inputs.runtime,
    )
    files = FileSnapshots(inputs.snapshotter)
    guards = TurnGuards(files=files, budget=inputs.budget)
    dispatcher = ToolDispatcher(
        execution=ToolExecution(
            clock=inputs.clock,
            random=inputs.random,
            surroundings=inputs.surroundings,
            files=files,
        ),
        permissions=inputs.permissions,
    )
    attempts = ProviderAttempts(route=inputs.route, clock=inputs.clock, random=inputs.random)
    queries = QueryRunner(
        attempts=attempts,
        compactor=Compactor(attempts=attempts, catalogue=inputs.catalogue, runtime=inputs.runtime),
        turns=turns,
        dispatcher=dispatcher,
        clock=inputs.clock,
        guards=guards,
    )
    return AgentBlocks(
        request_builder=inputs.request_builder,
        stream_processor=processor,
        tool_registry=inputs.tool_registry,
        turn_runner=turns,
        dispatcher=dispatcher,
        files=files,
        guards=guards,
        hooks=inputs.hooks,
        query_runner=queries,
    )
