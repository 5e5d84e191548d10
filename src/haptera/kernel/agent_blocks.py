"""AgentBlocks: the blocks that all conversations of an agent share, each made once and joined."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from haptera.kernel.blocks.approval_coordinator import ApprovalCoordinator
from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch
from haptera.kernel.blocks.request_builder import build_request
from haptera.kernel.blocks.stream_processor.processor import StreamProcessor
from haptera.kernel.blocks.tool_registry.registry import ToolRegistryInterface
from haptera.kernel.calls.call_permissions import CallPermissions
from haptera.kernel.calls.file_snapshots import FileSnapshots
from haptera.kernel.calls.tool_dispatcher import ToolDispatcher
from haptera.kernel.calls.tool_execution import ToolExecution
from haptera.kernel.own_blocks import OwnBlocks
from haptera.kernel.query.query import drive
from haptera.kernel.query_runner import ModelBlocks, QueryRunner
from haptera.kernel.session.session import SessionHost
from haptera.kernel.turns.compactor import Compactor
from haptera.kernel.turns.provider_attempts import ModelRouter, ProviderAttempts
from haptera.kernel.turns.spending import SpendingCheck
from haptera.kernel.turns.turn_guards import TurnGuards
from haptera.kernel.turns.turn_runner import TurnRunner
from haptera.model.settings import RuntimeSettings, Settings, limits_tools
from haptera.ports.context_source import ContextSource
from haptera.ports.model_client import ModelCatalogue
from haptera.ports.permissions import NO_SURROUNDINGS, ToolSurroundings
from haptera.ports.runner import SessionBindings
from haptera.ports.snapshots import Snapshotter
from haptera.ports.telemetry import Telemetry
from haptera.system.clock import Clock, Random

if TYPE_CHECKING:
    from haptera.kernel.native.native_query import NativeQueries


class ModelAccess(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How the models of an agent are reached, and what is known of them."""

    route: ModelRouter
    catalogue: ModelCatalogue
    is_native: Callable[[str], bool] = lambda _model: False
    """Whether an agent that keeps its own session answers for a model."""
    make_native: "Callable[[AgentBlocks], NativeQueries] | None" = None
    """Makes what answers queries with such agents, when it is first needed."""


class CallSafety(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What stands around tool calls and turns: rules, files, budgets."""

    permissions: CallPermissions = CallPermissions()
    """Which tool calls run; by default those whose tools do not ask."""
    surroundings: ToolSurroundings = NO_SURROUNDINGS
    snapshotter: Snapshotter | None = None
    """Records files before and after tools change them."""
    budget: SpendingCheck | None = None


_UNGUARDED = CallSafety()
_DEFAULT = OwnBlocks()


class AgentBlocks:
    """Joined blocks. They hold nothing of any query or conversation.

    Owns which block gets which other one. A block of the program's own is used as it is.
    """

    def __init__(
        self,
        models: ModelAccess,
        registry: ToolRegistryInterface,
        *,
        clock: Clock,
        random: Random,
        runtime: RuntimeSettings | None = None,
        hooks: HookDispatch | None = None,
        safety: CallSafety = _UNGUARDED,
        own: OwnBlocks = _DEFAULT,
    ) -> None:
        runtime = runtime or RuntimeSettings()
        self.models, self.clock, self.runtime = models, clock, runtime
        self.hooks = hooks or HookDispatch()
        self.tool_registry = own.tool_registry or registry
        self.request_builder = own.request_builder or build_request
        self.stream_processor = own.stream_processor or StreamProcessor(clock=clock)
        self.turn_runner = own.turn_runner or TurnRunner(
            request_builder=self.request_builder,
            stream_processor=self.stream_processor,
            catalogue=models.catalogue,
            clock=clock,
            runtime=runtime,
        )
        self.permissions = safety.permissions
        self.files = FileSnapshots(safety.snapshotter)
        self.guards = TurnGuards(files=self.files, budget=safety.budget)
        self.dispatcher = ToolDispatcher(
            execution=ToolExecution(
                clock=clock, random=random, surroundings=safety.surroundings, files=self.files
            ),
            permissions=safety.permissions,
        )
        self.query_runner = own.query_runner or self._new_query_runner(random)
        self._own = own

    def _new_query_runner(self, random: Random) -> QueryRunner:
        models = self.models
        attempts = ProviderAttempts(route=models.route, clock=self.clock, random=random)
        blocks = ModelBlocks(
            attempts=attempts,
            turns=self.turn_runner,
            dispatcher=self.dispatcher,
            compactor=Compactor(
                attempts=attempts, catalogue=models.catalogue, runtime=self.runtime
            ),
            clock=self.clock,
            guards=self.guards,
        )
        make = models.make_native
        return QueryRunner(
            blocks,
            is_native=models.is_native,
            make_native=None if make is None else lambda: make(self),
        )

    def host(
        self,
        bindings: SessionBindings,
        *,
        cwd: Path | None = None,
        telemetry: Telemetry | None = None,
        context: ContextSource | None = None,
        ceiling: Settings | None = None,
    ) -> SessionHost:
        """Return what conversations get of these blocks, and of their agent."""
        return SessionHost(
            registry=self.tool_registry,
            clock=self.clock,
            runtime=self.runtime,
            drive=partial(drive, self.query_runner),
            hooks=self.hooks,
            approvals=self._own.approvals or ApprovalCoordinator,
            channel=self._own.channel,
            bindings=bindings,
            cwd=cwd or Path(),
            telemetry=telemetry,
            context=context,
            ceiling=ceiling if ceiling is not None and limits_tools(ceiling) else None,
        )
