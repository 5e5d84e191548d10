"""Composition: the blocks of one agent, each built once and joined, and its open sessions."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.assembly import late
from holdfast.assembly.agent_inputs import AgentInputs, split_model
from holdfast.assembly.configuration import Configuration
from holdfast.assembly.mcp_tool_sources import configured_servers
from holdfast.assembly.model_clients import ClientOptions, ModelClients, NamedProviders
from holdfast.assembly.side_questions import ask_for_title
from holdfast.assembly.stored_sessions import StoredSessions
from holdfast.assembly.sub_agent_blocks import SubAgentBlocks
from holdfast.assembly.workspace import Workspace
from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.hook_dispatch.dispatch import HookDispatch
from holdfast.blocks.request_builder import RequestExtras, lead_with_reminders
from holdfast.blocks.token_estimate import estimate_tokens
from holdfast.blocks.tool_registry.registry import (
    ToolInput,
    ToolRegistry,
    ToolRegistryInterface,
)
from holdfast.engine.agent_blocks import BlockInputs, join_blocks
from holdfast.engine.call_permissions import CallPermissions
from holdfast.engine.native_opening import NativePolicy
from holdfast.engine.native_query_runner import NativeBlocks, NativeQueryRunner
from holdfast.engine.native_turns import TurnTimes
from holdfast.engine.watched_runner import Watch, WatchedRunner
from holdfast.ports.model_client import ModelCatalogue
from holdfast.ports.owned_tasks import OwnedTasks
from holdfast.ports.permissions import ToolSurroundings
from holdfast.ports.session_store import Store
from holdfast.session.answered_commands import Answering
from holdfast.session.live_session import LiveSession, SessionResources
from holdfast.session.opening import open_session
from holdfast.session.session_descriptions import SessionRequest
from holdfast.session.spending import Spending, SpendingCheck
from holdfast.vocabulary.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    SessionError,
    shortened,
)
from holdfast.vocabulary.ids import SessionId
from holdfast.vocabulary.json_types import writable
from holdfast.vocabulary.messages import Message, UserMessage
from holdfast.vocabulary.option_declarations import did_you_mean, meant_name
from holdfast.vocabulary.parts import media_of
from holdfast.vocabulary.requests import TokenCount

_OPENING_SECONDS = 15.0
"""How long a closing agent waits until an opening has given back what it holds."""


class Composition(StoredSessions):
    """The joined blocks of one agent, and the sessions that are open on them.

    Owns the openings: each is a task of its own, so that whatever it holds is given back when its
    caller is cancelled. The blocks hold nothing of any query or session.
    """

    def __init__(self, inputs: AgentInputs, configuration: Configuration) -> None:
        self.configuration = configuration
        self.clients = ModelClients(
            configuration,
            given=inputs.providers,
            own=inputs.own_access,
            options=ClientOptions(
                clock=inputs.clock,
                transport=inputs.transport,
                record_to=inputs.record_to,
                # A function, because the store is made when it is first needed.
                store=lambda: self.store,
                claude_options=inputs.claude_options,
            ),
        )
        self.clock = inputs.clock
        self.hooks = inputs.hooks
        self.inputs = inputs
        self._sub_agents = SubAgentBlocks(self, inputs, Composition)
        self._title_model = configuration.title_model
        self.workspace = Workspace(inputs, configuration)
        self.registry = ToolRegistry(
            [
                *inputs.tools,
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
        self._permissions = CallPermissions(
            configuration.permission_rules,
            folder=writable(str(configuration.cwd.resolve())),
            project=configuration.decisions.for_owner(configuration.resolved.agent.owner),
        )
        catalogue = configuration.known_models(self.clock)
        self.budget = self._make_budget(catalogue)
        self._blocks = join_blocks(
            BlockInputs(
                budget=self.budget.if_needed(),
                route=self.clients.route,
                catalogue=catalogue,
                tool_registry=self.registry,
                clock=self.clock,
                random=inputs.random,
                runtime=inputs.runtime,
                permissions=self._permissions,
                surroundings=self._surroundings(),
                hooks=HookDispatch(inputs.hooks, seconds=inputs.runtime.hook_seconds),
                snapshotter=self.workspace.snapshotter,
            )
        )
        self._runner = self._make_runner()

    def _make_budget(self, catalogue: ModelCatalogue) -> SpendingCheck:
        """Make what checks budgets, by what the logs of the owner's sessions say."""
        agent = self.configuration.resolved.agent
        spending = Spending(lambda: self.store, owner=agent.owner, clock=self.clock)
        return SpendingCheck(agent.budgets, spending, catalogue=catalogue)

    def _make_runner(self) -> WatchedRunner:
        """Put native agents before the runner for models, and watch all of them."""
        native = self.configuration.resolved.agent.claude_agent
        runner = NativeQueryRunner(
            self._blocks.query_runner,
            NativeBlocks(
                route=self.clients.native,
                is_native=self.clients.is_native,
                dispatcher=self._blocks.dispatcher,
                permissions=self._permissions,
                catalogue=self.configuration.known_models(self.clock),
                clock=self.clock,
                runtime=self.inputs.runtime,
                policy=NativePolicy(
                    resume=native.resume,
                    times=TurnTimes(
                        send=native.turn_send_timeout, result=native.turn_result_timeout
                    ),
                ),
            ),
        )
        return WatchedRunner(
            runner,
            Watch(
                guards=self._blocks.guards,
                files=self._blocks.files,
                is_native=self.clients.is_native,
                clock=self.clock,
                context=self.workspace.context,
            ),
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
        if not self.configuration.resolved.agent.recall:
            return ()
        if not self.inputs.runtime.cross_session_context:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                "recall=True needs the runtime setting cross_session_context, which is off",
            )
        owner, project = self.configuration.resolved.agent.owner, self.configuration.project
        return (late.recall_tool(lambda: self.store, owner=owner, project=project),)

    def begin_opening(self, request: SessionRequest) -> asyncio.Task[LiveSession]:
        """Begin to open a session, or to make it; the task raises what stands against it.

        Raises:
            SessionError: CLOSED.

        """
        if self._closed:
            raise SessionError(ErrorCode.CLOSED, "the agent is closed")
        return self._openings.start(self._open(request), name="holdfast-open")

    async def _open(self, request: SessionRequest) -> LiveSession:
        try:
            live = await open_session(self.session_resources(), request)
        except AgentError as error:
            raise shortened(error) from error.__cause__
        self._sessions.append(live)  # from here on the agent closes it
        return live

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
        if is_one_shot and self.inputs.store == "memory":
            self._one_shots.add(live.session_id)
        fold = live.fold
        is_over = fold.unfinished_query() is None and not fold.inputs
        if is_over and live.session_id in self._one_shots - self.kept:
            self._one_shots.discard(live.session_id)
            await self._sub_agents.delete_children(live.session_id)
            await self.store.log.delete(live.session_id)

    @property
    def store(self) -> Store:
        """The store of the sessions; it is made when it is first needed."""
        if self._store is None and self._closed:
            raise SessionError(ErrorCode.CLOSED, "the agent is closed")
        if self._store is None:
            given = self.inputs.store
            owner = self.configuration.resolved.agent.owner
            self._store = make_store(given, owner=owner) if isinstance(given, str) else given
        return self._store

    def session_resources(self) -> SessionResources:
        """Return what sessions share."""
        telemetry = self.inputs.telemetry
        return SessionResources(
            store=self.store,
            runner=self._runner,
            tools=self.registry,
            clock=self.clock,
            runtime=self.inputs.runtime,
            approver=self.inputs.approver,
            unanswered=self.inputs.unanswered,
            deps=self.inputs.deps,
            cwd=self.configuration.cwd,
            telemetry=NamedProviders(telemetry) if telemetry is not None else None,
            instrumentation=self.inputs.instrumentation,
            hooks=self._blocks.hooks,
            make_title=self._make_title if self._title_model else None,
            title_model=self._title_model or "",
            answering=Answering(
                snapshotter=self.workspace.snapshotter, is_native=self.clients.is_native
            ),
        )

    async def _make_title(self, messages: Sequence[Message]) -> str:
        return await ask_for_title(
            self.session_resources(),
            self.configuration.settings,
            messages,
            model=self._title_model or "",
        )

    async def count_tokens(
        self, fold: SessionFold, tools: ToolRegistryInterface, message: UserMessage | None
    ) -> TokenCount:
        """Count what a session's next request would hold; with a message, if it were said now.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet and there is no message.
            ConfigError: CONFIG_INVALID when the message holds media that the model does not take.

        """
        settings = fold.settings
        client, model = None, split_model(settings.model)[1]
        if not self.clients.is_native(settings.model):
            client, model = await self.clients.route(settings.model)
        if message is not None:
            message = lead_with_reminders(message, settings.cached_reminders, fold.sent_view())
        offered = tools.current().view(settings.allowed_tools, settings.denied_tools)
        media = media_of(message.parts) if message is not None else ()
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
            closings = [live.close() for live in self._sessions]
            outcomes = await asyncio.gather(*closings, return_exceptions=True)
        finally:
            self._sessions.clear()
            await self._sub_agents.close()
            await self._close_shared()
        # Raised last: a session that fails to close must not keep the others open.
        for failure in outcomes:
            if failure is not None:
                raise failure

    async def _close_shared(self) -> None:
        """Close the clients, what runs behind tools, and the store unless it was handed in."""
        await self.registry.close()
        await self.clients.close()
        store, self._store = self._store, None
        if store is not None and isinstance(self.inputs.store, str):
            await store.close()


STORES: dict[str, Callable[[str, str], Store]] = {
    "memory": lambda _, __: late.MemoryStore(),
    "jsonl:DIR": lambda place, _: late.JsonlStore(_found(place, folder=0)),
    "sqlite:FILE": lambda place, _: late.SqliteStore(_found(place, folder=1)),
    "postgresql://URL": lambda place, owner: _postgres_store(f"postgresql:{place}", owner),
}
"""Every store string, and what makes its store from what comes after the colon, for an owner."""

_DATABASES = {".db", ".sqlite", ".sqlite3"}


def make_store(location: str, *, owner: str) -> Store:
    """Make the store that a string names, one of `STORES`.

    A store that is shared with other owners shows the sessions of this one only.

    Raises:
        ConfigError: CONFIG_INVALID when no store is called that.

    """
    kind, _, place = location.partition(":")
    for string, make in STORES.items():
        name, _, wanted = string.partition(":")
        if location == name and not wanted:
            return make("", owner)
        if kind == name and wanted:
            if not place:
                told = f"store {location!r} has no location; write {string}"
                raise ConfigError(ErrorCode.CONFIG_INVALID, told)
            return make(place, owner)
    if kind == location and Path(location).suffix in _DATABASES:
        meant = f"; {did_you_mean([f'sqlite:{location}'])}"
    else:
        meant = meant_name(kind, [string.partition(":")[0] for string in STORES])
    told = f"{kind!r} is not a store{f'{meant} Use' if meant else '; use'}"
    raise ConfigError(ErrorCode.CONFIG_INVALID, f"{told} one of {', '.join(STORES)}")


def _postgres_store(url: str, owner: str) -> Store:
    try:
        return late.PostgresStore(url, owner=owner)
    except ImportError as error:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING, "a PostgreSQL store needs `pip install 'holdfast[postgres]'`"
        ) from error


def _found(place: str, *, folder: int) -> Path:
    """Return where a store is: its folder may be missing and is made then, the one above may not.

    `folder` says how far up its folder is. A mistyped path is found out here, before a new and
    empty store is made in a place that nothing else looks at.
    """
    if place.startswith("//"):  # other libraries write URLs, in which /// may begin a relative path
        name = place.lstrip("/") or "FILE"
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"store {place!r}: this is no URL. Write the path right after the colon: {name!r} in "
            f"the working folder, or {f'/{name}'!r}",
        )
    path = Path(place).expanduser().absolute()
    above = [path, *path.parents][folder:][1:2]
    if above and not above[0].is_dir():
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"store {place!r}: there is no folder {str(above[0])!r}. A store makes one missing "
            "folder at most; check the path, or make the folder first",
        )
    return path
