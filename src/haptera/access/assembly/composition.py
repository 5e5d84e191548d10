"""Composition: the blocks of one agent, each built once and joined, and its open sessions."""

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import AgentOptions, checked_model
from haptera.access.assembly.configuration import Configuration, ModelBounds, check_folder
from haptera.access.assembly.mcp_tool_sources import configured_servers
from haptera.access.assembly.model_clients import ClientOptions, ModelClients, NamedProviders
from haptera.access.assembly.side_questions import ask_for_title
from haptera.access.assembly.store_strings import files_of, make_store
from haptera.access.assembly.stored_sessions import StoredSessions
from haptera.access.assembly.sub_agent_blocks import SubAgentBlocks
from haptera.kernel.agent_blocks import (
    AgentBlocks,
    CallSafety,
    ModelAccess,
)
from haptera.kernel.blocks.hook_dispatch.dispatch import HookDispatch
from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.request_builder import RequestExtras, lead_with_reminders
from haptera.kernel.blocks.token_estimate import estimate_tokens
from haptera.kernel.blocks.tool_registry.registry import (
    ToolInput,
    ToolRegistry,
    ToolRegistryInterface,
)
from haptera.kernel.blocks.tool_registry.running import as_approver
from haptera.kernel.calls.call_permissions import CallPermissions, shown_anew
from haptera.kernel.own_blocks import OwnBlocks
from haptera.kernel.session.command_effects import Answering
from haptera.kernel.session.live_session import LiveSession, SessionResources
from haptera.kernel.session.opening import find_session, open_session
from haptera.kernel.session.session_descriptions import SessionRequest
from haptera.kernel.turns.spending import Spending, SpendingCheck
from haptera.model.approvals import ApprovalRequest
from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    SessionError,
    without_frames,
)
from haptera.model.ids import SessionId
from haptera.model.json_types import writable
from haptera.model.late_names import on_first_use
from haptera.model.log.session_fold import SessionFold
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import media_of
from haptera.model.requests import TokenCount
from haptera.model.settings import allows_tool, bounded_settings
from haptera.ports.context_source import ContextSource
from haptera.ports.model_client import ModelCatalogue
from haptera.ports.permissions import ToolSurroundings
from haptera.ports.runner import SessionBindings
from haptera.ports.session_store import Store
from haptera.ports.snapshots import Snapshotter
from haptera.system.clock import Clock
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

if TYPE_CHECKING:
    from haptera.access.assembly import native_adoption
    from haptera.access.assembly.native_adoption import NativeSessions
    from haptera.kernel.native import native_query
else:  # few agents are native
    native_adoption = on_first_use("haptera.access.assembly.native_adoption")
    native_query = on_first_use("haptera.kernel.native.native_query")

_logger = scrubbed_logger(__name__)
_OPENING_SECONDS = 15.0
"""How long a closing agent waits until an opening has given back what it holds."""


class Workspace:
    """What an agent has of the folder that it works in: tools, context files and snapshots.

    Without `workspace=`, nothing.
    """

    def __init__(self, inputs: AgentOptions, configuration: Configuration) -> None:
        self._configuration = configuration
        folder = inputs.workspace
        self.folder = None if folder is None else configuration.cwd / Path(folder).expanduser()
        self.tools: list[ToolInput] = []
        self.context: ContextSource | None = None
        """Reads context files and skills; None when there are none to look for."""
        self._toolkit: late.CodingToolkit | None = None
        if self.folder is not None:
            check_folder(self.folder, option="workspace")
            configuration.plugins.keep_apart(self.folder)
            self._toolkit = late.CodingToolkit(self.folder)
            self.tools += self._toolkit.tools
            self._look_for_context(self.folder)
        self.snapshotter: Snapshotter | None = None
        """Records the files; None when no snapshots are taken."""
        if self.folder is not None and configuration.resolved.agent.snapshots:
            self.snapshotter = late.GitTrees(
                self.folder,
                data=configuration.folders.data,
                environment=configuration.environment.variables,
                apart=[*_own_files(inputs, configuration.cwd)],
            )

    async def check_stores(self) -> None:
        """Refuse a store that commands would get at; raises CONFIG_INVALID."""
        if self._toolkit is not None:
            await self._toolkit.check_stores()

    def _look_for_context(self, folder: Path) -> None:
        agent = self._configuration.resolved.agent
        if not agent.context_files and not agent.skill_folders:
            return
        self.context = context = late.ContextFolders(
            folder,
            files=agent.context_files,
            skills=agent.skill_folders,
            user=self._configuration.config_folder,
            environment=self._configuration.environment.variables,
        )
        # A tool without anything to load would only cost tokens in every request.
        if context.look().skills:
            self.tools.append(late.load_skill_tool(context))


def _own_files(inputs: AgentOptions, cwd: Path) -> Iterator[Path]:
    """Yield files that the agent itself writes: going back in them would lose sessions."""
    if (path := files_of(inputs.store)) is not None:
        yield path
    if inputs.record_to is not None:
        yield cwd / inputs.record_to


class Composition:
    """The joined blocks of one agent, and the sessions that are open on them.

    Owns the openings: each is a task of its own, so that whatever it holds is given back when its
    caller is cancelled. The blocks hold nothing of any query or session.
    """

    def __init__(self, inputs: AgentOptions, configuration: Configuration) -> None:
        self.configuration, self.inputs = configuration, inputs
        self.clients = ModelClients(
            configuration,
            given=inputs.providers,
            own=inputs.own_access,
            options=ClientOptions(
                clock=inputs.around.clock,
                transport=inputs.transport,
                record_to=inputs.record_to,
                # A function, because the store is made when it is first needed.
                store=lambda: self.store,
                claude_options=inputs.claude_options,
            ),
        )
        self.hooks = Hooks() if inputs.around.hooks is None else inputs.around.hooks
        self._sub_agents = SubAgentBlocks(self, inputs, Composition)
        self._title_model = configuration.title_model
        self.workspace = Workspace(inputs, configuration)
        self.registry = ToolRegistry(
            [
                *(inputs.tools or ()),
                *self.workspace.tools,
                *self._own_tools(),
                *configured_servers(configuration),
            ]
        )
        self._store: Store | None = None
        self._sessions: list[LiveSession] = []
        self._one_shots: set[SessionId] = set()
        """Sessions of single calls that are to be forgotten when they are over."""
        self.kept: set[SessionId] = set()
        """Sessions that are not forgotten, because others were forked from them."""
        self._openings = OwnedTasks()
        self._closed = False
        catalogue = configuration.known_models(self.clock)
        self.budget = self._make_budget(catalogue)
        self._blocks = self._join_blocks(catalogue)

    @property
    def clock(self) -> Clock:
        """The time that it goes by."""
        return self.inputs.around.clock

    def _join_blocks(self, catalogue: ModelCatalogue) -> AgentBlocks:
        inputs, configuration = self.inputs, self.configuration
        own = inputs.blocks or OwnBlocks()
        if own.tool_registry is not None and inputs.tools:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                "Agent(): 'tools' would not be used beside the tool_registry of 'blocks'; put them "
                "into it",
            )
        return AgentBlocks(
            ModelAccess(
                route=self.clients.route,
                catalogue=catalogue,
                is_native=self.clients.is_native,
                make_native=self._make_native,
            ),
            self.registry,
            clock=self.clock,
            random=inputs.around.random,
            runtime=inputs.around.runtime,
            hooks=HookDispatch(self.hooks, seconds=inputs.around.runtime.hook_seconds),
            safety=CallSafety(
                permissions=CallPermissions(
                    configuration.permission_rules,
                    folder=writable(str(configuration.cwd.resolve())),
                    project=configuration.decisions.for_owner(configuration.resolved.agent.owner),
                ),
                surroundings=self._surroundings(),
                snapshotter=self.workspace.snapshotter,
                budget=self.budget.if_needed(),
            ),
            own=own,
        )

    def _make_budget(self, catalogue: ModelCatalogue) -> SpendingCheck:
        """Make what checks budgets, by what the logs of the owner's sessions say."""
        agent = self.configuration.resolved.agent
        spending = Spending(lambda: self.store, owner=agent.owner, clock=self.clock)
        return SpendingCheck(agent.budgets, spending, catalogue=catalogue)

    def _make_native(self, blocks: AgentBlocks) -> "native_query.NativeQueries":
        settings = self.configuration.resolved.agent.claude_agent
        return native_query.NativeQueries(
            native_query.NativeBlocks(
                route=self.clients.native,
                dispatcher=blocks.dispatcher,
                permissions=blocks.permissions,
                catalogue=blocks.models.catalogue,
                clock=self.clock,
                runtime=self.inputs.around.runtime,
                guards=blocks.guards,
                files=blocks.files,
                resume=settings.resume,
                send_timeout=settings.turn_send_timeout,
                result_timeout=settings.turn_result_timeout,
            )
        )

    def _surroundings(self) -> ToolSurroundings:
        """Return what tools get of the agent: what they keep lives with the session."""
        return ToolSurroundings(
            environment=self.configuration.environment.variables,
            blobs=lambda: self.store.blobs,
            refuses_path=self.configuration.permission_rules.refuses_path,
            hides_paths=self.configuration.permission_rules.hidden_paths,
            child_host=self._sub_agents,
        )

    def _own_tools(self) -> tuple[ToolInput, ...]:
        agent = self.configuration.resolved.agent
        offered = self.configuration.plugins.tools(agent.tool_plugins)
        if not agent.recall:
            return tuple(offered)
        if not self.inputs.around.runtime.cross_session_context:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                "recall=True needs the runtime setting cross_session_context, which is off",
            )
        project = self.configuration.project
        return (late.recall_tool(lambda: self.store, owner=agent.owner, project=project), *offered)

    def restrict_models(self, files: Collection[str]) -> None:
        """Let sessions name no file of a local model but these and those that are configured.

        Where no tool may be used, no agent that has its own may run, either.
        """
        settings, configuration = self.configuration.settings, self.configuration
        has_tools = settings.allowed_tools is None or any(
            allows_tool(settings, name) for name in settings.allowed_tools
        )
        configuration.bounds = ModelBounds(
            refused=frozenset() if has_tools else self.clients.native_providers,
            paths=frozenset(files) | configuration.own_files(),
        )

    def restrict_plugins(self) -> None:
        """Load no plugin that was not named before: from now on others say which models are used.

        What the configuration of the agent names stays usable.
        """
        self.configuration.plugins.restrict()

    def begin_opening(self, request: SessionRequest) -> asyncio.Task[LiveSession]:
        """Begin to open a session, or to make it; the task raises what stands against it.

        Raises:
            SessionError: CLOSED.

        """
        if self._closed:
            raise SessionError(ErrorCode.CLOSED, "the agent is closed")
        return self._openings.start(self._open(request), name="haptera-open")

    async def _open(self, request: SessionRequest) -> LiveSession:
        try:
            resources = self.session_resources()  # makes the store
            await self.workspace.check_stores()
            adopts = request.native_session_id is not None
            is_new = adopts and await find_session(resources, request) is None
            live = await open_session(resources, request)
            if request.native_session_id is not None:
                await self._adopt(live, request.native_session_id, is_new=is_new)
        except AgentError as error:
            raise without_frames(error) from error.__cause__
        self._sessions.append(live)  # from here on the agent closes it
        return live

    async def _adopt(self, live: LiveSession, native_session_id: str, *, is_new: bool) -> None:
        """Go on with a native session; a session that was made for it is gone if that fails."""
        # Callers whose models are bounded are not this machine's user.
        is_own = self.configuration.bounds is None
        try:
            await self.native_sessions.adopt(live, native_session_id, is_own=is_own)
        except BaseException:
            await live.close(force=True)
            if is_new:
                await self.store.log.delete(live.session_id)
            raise

    @property
    def native_sessions(self) -> "NativeSessions":
        """What adopts native sessions."""
        agent = self.configuration.resolved.agent
        return native_adoption.NativeSessions(
            self.clients, owner=agent.owner, policy=agent.claude_agent.resume
        )

    def held(self, session_id: SessionId) -> LiveSession | None:
        """Return the session if this agent has it open."""
        for live in self._sessions:
            if live.session_id == session_id and not live.closed:
                return live
        return self._sub_agents.held(session_id)

    async def forget(self, live: LiveSession, *, is_one_shot: bool = False) -> None:
        """Keep nothing of a session that was closed.

        The session of a single call is gone from the agent's own memory, too, unless it rests:
        then it is gone when it was answered and is closed again.
        """
        self._sessions = [other for other in self._sessions if not other.closed]
        # Only in a memory that the agent made itself: a store that was handed in is its owner's.
        if is_one_shot and self.inputs.store == "memory":
            self._one_shots.add(live.session_id)
        fold = live.fold
        # One that rests on an approval is resumed by its id, so it has to stay.
        is_over = fold.unfinished_query() is None and not fold.inputs
        if is_over and live.session_id in self._one_shots - self.kept:
            self._one_shots.discard(live.session_id)
            await self._sub_agents.delete_children(live.session_id)
            await self.store.log.delete(live.session_id)

    @property
    def store(self) -> Store:
        """The store of the sessions; it is made when it is first needed."""
        # A store that was made now would never be closed.
        if self._store is None and self._closed:
            raise SessionError(ErrorCode.CLOSED, "the agent is closed")
        if self._store is None:
            store = self.inputs.store
            owner = self.configuration.resolved.agent.owner
            self._store = (
                make_store(store, owner=owner, plugins=self.configuration.plugins)
                if isinstance(store, str)
                else store
            )
        return self._store

    @property
    def stored(self) -> StoredSessions:
        """What can be read of its sessions, and asked of their holders, without holding them."""
        return StoredSessions(
            self.configuration.resolved.agent.owner,
            store=lambda: self.store,
            resources=self.session_resources,
        )

    def session_resources(self) -> SessionResources:
        """Return what sessions share."""
        around = self.inputs.around
        telemetry, approver = around.telemetry, around.approver
        return SessionResources(
            host=self._blocks.host(
                SessionBindings(
                    deps=self.inputs.deps,
                    approver=None if approver is None else as_approver(approver),
                    unanswered=around.unanswered,
                ),
                cwd=self.configuration.cwd,
                telemetry=NamedProviders(telemetry) if telemetry is not None else None,
                context=self.workspace.context,
                ceiling=self.configuration.ceiling,
            ),
            store=self.store,
            instrumentation=around.instrumentation,
            make_title=self._make_title if self._title_model else None,
            title_model=self._title_model or "",
            answering=Answering(
                snapshotter=self.workspace.snapshotter,
                is_native=self.clients.is_native,
                check_models=self.configuration.check_models,
            ),
        )

    async def _make_title(self, messages: Sequence[Message]) -> str:
        return await ask_for_title(
            self.session_resources(),
            self.configuration.settings,
            messages,
            model=self._title_model or "",
        )

    async def shown_anew(self, asked: ApprovalRequest) -> ApprovalRequest:
        """Return a recorded question with what its call would do now, by the agent's tools."""
        return await shown_anew(asked, self._blocks.tool_registry.current())

    async def count_tokens(
        self, fold: SessionFold, tools: ToolRegistryInterface, message: UserMessage | None
    ) -> TokenCount:
        """Count what a session's next request would hold; with a message, if it were said now.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet and there is no message.
            ConfigError: CONFIG_INVALID when the message holds media that the model does not take.

        """
        settings = bounded_settings(fold.settings, self.configuration.ceiling)
        client, model = None, checked_model(settings.model)[1]
        if not self.clients.is_native(settings.model):
            client, model = await self.clients.route(settings.model)
        if message is not None:
            message = lead_with_reminders(message, settings.cached_reminders, fold.sent_view())
        offered = tools.current().view(settings.allowed_tools, settings.denied_tools)
        media = media_of(message.parts) if message is not None else ()
        # A native agent reads context files by itself.
        context = fold.context.sections() if fold.context is not None and client else ()
        extras = RequestExtras(
            model=model, tools=offered.wire_tools, fresh_media=media, context=context
        )
        request = self._blocks.request_builder(settings, fold.sent_view(message), extras)
        # What a native agent sends is its own; this is what the conversation has.
        return await client.count_tokens(request) if client else estimate_tokens(request)

    async def close(self) -> None:
        """Close every session, then what was made here. Closing twice is fine."""
        self._closed = True
        try:
            # Openings first: a session that one of them still opens is closed with the others.
            await self._openings.cancel(within=_OPENING_SECONDS)
            sessions = tuple(self._sessions)
            # At the same time: each may wait for its running query.
            outcomes = await asyncio.gather(
                *(live.close() for live in sessions), return_exceptions=True
            )
        finally:
            self._sessions.clear()
            await self._sub_agents.close()
            await self._close_shared()
        # Raised last: a session that fails to close must not keep the others open.
        failures = [
            (live.session_id, failure)
            for live, failure in zip(sessions, outcomes, strict=True)
            if failure is not None
        ]
        for session_id, failure in failures:
            _logger.warning("session %s did not close as it should: %s", session_id, failure)
        if failures:
            raise failures[0][1]

    async def _close_shared(self) -> None:
        """Close the clients, what runs behind tools, and the store unless it was handed in."""
        # Forgotten before the wait: a second close finds nothing left to do.
        store, self._store = self._store, None
        # The last one first; one that fails to close does not keep the others open.
        async with contextlib.AsyncExitStack() as closing:
            if store is not None and isinstance(self.inputs.store, str):
                closing.push_async_callback(store.close)
            closing.push_async_callback(self.clients.close)
            closing.push_async_callback(self.registry.close)
