"""Composition: the blocks of one agent, each built once and joined."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.assembly.models import ClientOptions, ModelClients, OwnAccess, TransportFactory
from holdfast.assembly.stores import make_store
from holdfast.assembly.system import SystemClock, system_random
from holdfast.blocks.stream_processor.processor import StreamProcessor
from holdfast.blocks.tool_registry.registry import ToolRegistry
from holdfast.blocks.tool_registry.tool import Tool
from holdfast.engine.provider_attempts import ProviderAttempts
from holdfast.engine.query_runner import QueryRunner
from holdfast.engine.scopes import Unanswered
from holdfast.engine.tool_dispatcher import BeforeTool, ToolDispatcher
from holdfast.engine.tool_execution import ToolExecution
from holdfast.engine.turn_runner import TurnRunner
from holdfast.ports.approver import Approver
from holdfast.ports.clock import Clock, Random
from holdfast.ports.model_client import ModelClient
from holdfast.ports.session_store import Store
from holdfast.session.live_session import SessionParts
from holdfast.vocabulary.settings import RuntimeSettings

if TYPE_CHECKING:
    from holdfast.assembly.configuration import Configuration


class Ingredients(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is made of; everything has a default but nothing is hidden."""

    tools: Iterable[Tool | Callable[..., object]] = ()
    providers: Iterable[ModelClient] = ()
    own_access: OwnAccess = msgspec.field(default_factory=OwnAccess)
    store: str | Store = "memory"
    approver: Approver | None = None
    unanswered: Unanswered = "stop"
    before_tool: BeforeTool | None = None
    transport: TransportFactory | None = None
    record_to: str | Path | None = None
    runtime: RuntimeSettings = msgspec.field(default_factory=RuntimeSettings)
    clock: Clock = msgspec.field(default_factory=SystemClock)
    random: Random = msgspec.field(default_factory=system_random)


class Composition:
    """The joined blocks of one agent. Holds nothing of any query or session."""

    def __init__(self, ingredients: Ingredients, configuration: "Configuration") -> None:
        self.clients = ModelClients(
            configuration,
            given=ingredients.providers,
            own=ingredients.own_access,
            options=ClientOptions(
                clock=ingredients.clock,
                transport=ingredients.transport,
                record_to=None if ingredients.record_to is None else Path(ingredients.record_to),
            ),
        )
        self.clock = ingredients.clock
        self.registry = ToolRegistry(ingredients.tools)
        self._ingredients = ingredients
        self._store: Store | None = None
        turns = TurnRunner(
            processor=StreamProcessor(clock=self.clock),
            catalogue=configuration.known_models(self.clock),
            clock=self.clock,
            runtime=ingredients.runtime,
        )
        self._runner = QueryRunner(
            attempts=ProviderAttempts(
                turns=turns,
                route=self.clients.route,
                clock=self.clock,
                random=ingredients.random,
            ),
            dispatcher=ToolDispatcher(
                registry=self.registry,
                execution=ToolExecution(clock=self.clock),
                before_tool=ingredients.before_tool,
            ),
            registry=self.registry,
            clock=self.clock,
        )

    def parts(self) -> SessionParts:
        """Return what sessions share; the store is made when the first session needs it."""
        if self._store is None:
            given = self._ingredients.store
            self._store = make_store(given) if isinstance(given, str) else given
        return SessionParts(
            store=self._store,
            runner=self._runner,
            clock=self.clock,
            runtime=self._ingredients.runtime,
            approver=self._ingredients.approver,
            unanswered=self._ingredients.unanswered,
        )

    async def close(self) -> None:
        """Close what was made here: clients, and the store unless it was handed in."""
        await self.clients.close()
        store, self._store = self._store, None
        if store is not None and isinstance(self._ingredients.store, str):
            await store.close()
