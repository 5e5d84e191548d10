"""SubAgentBlocks: the agents that work as sub-agents of another one, on its store."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec.structs import replace

from haptera.access.assembly.agent_inputs import AgentOptions
from haptera.access.assembly.configuration import Configuration
from haptera.kernel.blocks.permission_rules.decisions import PermissionRules
from haptera.model.errors import ErrorCode, ToolError
from haptera.model.ids import SessionId
from haptera.model.settings import bounded_settings
from haptera.ports.session_store import SessionFilter, Store

if TYPE_CHECKING:
    from haptera.kernel.session.live_session import LiveSession


class JoinedBlocks(Protocol):
    """What is needed of the joined blocks of an agent; `Composition` is it."""

    configuration: Configuration
    inputs: AgentOptions

    @property
    def store(self) -> Store:
        """Where its sessions are."""
        ...

    def held(self, session_id: SessionId) -> "LiveSession | None":
        """Return a session that it has open."""
        ...

    async def close(self) -> None:
        """Close its sessions, and what was made for them."""
        ...


BlocksT = TypeVar("BlocksT", bound=JoinedBlocks)


class SubAgentBlocks(Generic[BlocksT]):
    """Joins the blocks of other agents to the store of one, each once; see `ChildHost`.

    Owns what it has joined: clients of models that were made for it are closed with it. An agent
    that was handed in stays as it is, open or closed.
    """

    def __init__(
        self,
        host: BlocksT,
        inputs: AgentOptions,
        join: Callable[[AgentOptions, Configuration], BlocksT],
    ) -> None:
        self._host = host
        self._inputs = inputs
        self._join = join
        # By the object: two agents with the same options are two, with tools and hooks of their
        # own.
        self._joined: dict[BlocksT, BlocksT] = {}

    @property
    def at_once(self) -> int:
        """How many children of one query may run at the same time."""
        return self._inputs.around.runtime.parallel_sub_agents

    def adopt(self, guest: BlocksT) -> BlocksT:
        """Return the blocks of another agent, joined to this one.

        Raises:
            ToolError: TOOL_FAILED when sub-agents may not be nested any deeper.

        """
        levels = self._inputs.around.runtime.sub_agent_depth
        if levels < 1:
            raise ToolError(
                ErrorCode.TOOL_FAILED,
                "not run: sub-agents may not be nested any deeper (sub_agent_depth)",
            )
        if guest not in self._joined:
            self._joined[guest] = self._join(
                self._inputs_of(guest, levels=levels - 1), self._configuration_of(guest)
            )
        return self._joined[guest]

    def held(self, session_id: SessionId) -> "LiveSession | None":
        """Return a session that a guest has open."""
        for guest in self._joined.values():
            if (live := guest.held(session_id)) is not None:
                return live
        return None

    async def delete_children(self, session_id: SessionId) -> None:
        """Delete what sub-agents left in the store for a session that is forgotten."""
        if self._joined:
            owner = self._host.configuration.resolved.agent.owner
            await _delete_children(self._host.store, owner, session_id)

    async def close(self) -> None:
        """Close what was joined."""
        # Taken out first: a second close finds nothing to close.
        joined, self._joined = list(self._joined.values()), {}
        for guest in joined:
            await guest.close()

    def _inputs_of(self, guest: BlocksT, *, levels: int) -> AgentOptions:
        own, host = guest.inputs.around, self._inputs.around
        # A guest may allow fewer levels than its host, but not more.
        depth = min(own.runtime.sub_agent_depth, levels)
        around = replace(
            own,
            clock=host.clock,
            random=host.random,
            # Without its own, the spans of a child go where those of its caller go.
            telemetry=own.telemetry or host.telemetry,
            instrumentation=own.instrumentation or host.instrumentation,
            runtime=replace(own.runtime, sub_agent_depth=depth),
        )
        # The object and not its name, so that the guest does not close it.
        return replace(guest.inputs, store=self._host.store, around=around)

    def _configuration_of(self, guest: BlocksT) -> Configuration:
        """Return the guest's configuration, for the owner and the project of the host."""
        # A shallow copy: `resolved` is replaced, and the guest keeps its own.
        configuration = copy.copy(guest.configuration)
        resolved, host = configuration.resolved, self._host.configuration
        agent = replace(
            resolved.agent,
            owner=host.resolved.agent.owner,
            project=host.project,
            budgets=host.resolved.agent.budgets,  # a family of sessions has one budget
        )
        # What the caller may not use or must ask about, its sub-agents may not or must, too. Which
        # tools it may use says nothing of theirs: they have other ones.
        ceiling = replace(host.ceiling, allowed_tools=None)
        settings = bounded_settings(resolved.settings, ceiling)
        configuration.resolved = replace(resolved, agent=agent, settings=settings)
        configuration.permission_rules = PermissionRules(
            dict.fromkeys((*configuration.permission_rules.rules, *host.permission_rules.denying))
        )
        if host.bounds is not None:
            own = host.bounds.paths | configuration.own_files()
            configuration.bounds = replace(host.bounds, paths=own)
        return configuration


async def _delete_children(store: Store, owner: str, session_id: SessionId) -> None:
    children = SessionFilter(spawned_by=session_id)
    for child in await store.index.browse(owner, None, matching=children):
        # Children of children first: once the child is gone, nothing leads to them.
        await _delete_children(store, owner, child.id)
        await store.log.delete(child.id)
