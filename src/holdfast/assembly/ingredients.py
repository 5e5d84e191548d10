"""Ingredients: what an agent is made of."""

from collections.abc import Callable, Iterable

import msgspec

from holdfast.assembly.configuration_places import PathInput
from holdfast.assembly.models import OwnAccess, TransportFactory
from holdfast.assembly.system import SystemClock, system_random
from holdfast.blocks.tool_registry.tool import Tool
from holdfast.engine.query_input import Unanswered
from holdfast.ports.approver import Approver
from holdfast.ports.clock import Clock, Random
from holdfast.ports.model_client import ModelClient
from holdfast.ports.session_store import Store
from holdfast.ports.tool_hooks import BeforeTool
from holdfast.vocabulary.settings import RuntimeSettings


class Ingredients(msgspec.Struct, frozen=True, kw_only=True):
    """What the blocks of an agent are made from; everything has a default, nothing is hidden."""

    tools: Iterable[Tool | Callable[..., object]] = ()
    providers: Iterable[ModelClient] = ()
    own_access: OwnAccess = msgspec.field(default_factory=OwnAccess)
    store: str | Store = "memory"
    approver: Approver | None = None
    unanswered: Unanswered = "stop"
    before_tool: BeforeTool | None = None
    transport: TransportFactory | None = None
    record_to: PathInput | None = None
    runtime: RuntimeSettings = msgspec.field(default_factory=RuntimeSettings)
    clock: Clock = msgspec.field(default_factory=SystemClock)
    random: Random = msgspec.field(default_factory=system_random)
