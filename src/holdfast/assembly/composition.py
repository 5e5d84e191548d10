"""Composition: the blocks of one agent, each built once and joined; its store by its string."""

from pathlib import Path

from holdfast.assembly.components import Components
from holdfast.assembly.configuration import Configuration
from holdfast.assembly.models import ClientOptions, ModelClients
from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.request_builder import RequestExtras, build_request, lead_with_reminders
from holdfast.blocks.tool_registry.registry import ToolRegistry
from holdfast.engine.provider_attempts import ProviderAttempts
from holdfast.engine.query_runner import QueryRunner
from holdfast.engine.tool_dispatcher import ToolDispatcher
from holdfast.engine.tool_execution import ToolExecution
from holdfast.engine.turn_runner import TurnRunner
from holdfast.ports.session_store import Store
from holdfast.session.live_session import LiveSession, SessionParts
from holdfast.session.opening import find_session, open_session
from holdfast.session.remote import RemoteSession
from holdfast.session.requests import SessionRequest
from holdfast.vocabulary.errors import ConfigError, ErrorCode, SessionError
from holdfast.vocabulary.messages import UserMessage
from holdfast.vocabulary.parts import media_of
from holdfast.vocabulary.requests import TokenCount


class Composition:
    """The joined blocks of one agent. Holds nothing of any query or session."""

    def __init__(self, components: Components, configuration: Configuration) -> None:
        self.clients = ModelClients(
            configuration,
            given=components.providers,
            own=components.own_access,
            options=ClientOptions(
                clock=components.clock,
                transport=components.transport,
                record_to=components.record_to,
            ),
        )
        self.clock = components.clock
        self.registry = ToolRegistry(components.tools)
        self._components = components
        self._store: Store | None = None
        turns = TurnRunner(
            catalogue=configuration.known_models(self.clock),
            clock=self.clock,
            runtime=components.runtime,
        )
        self._runner = QueryRunner(
            attempts=ProviderAttempts(
                route=self.clients.route, clock=self.clock, random=components.random
            ),
            turns=turns,
            dispatcher=ToolDispatcher(
                execution=ToolExecution(clock=self.clock), before_tool=components.before_tool
            ),
            registry=self.registry,
            clock=self.clock,
        )

    async def open(self, request: SessionRequest) -> LiveSession:
        """Open a session, or make it.

        Raises:
            SessionError: BUSY when another process holds it, NOT_FOUND when it must exist.

        """
        return await open_session(self.parts(), request)

    async def reach(self, request: SessionRequest) -> RemoteSession:
        """Reach a session, also one that another process holds.

        Raises:
            SessionError: NOT_FOUND when the store has no such session.

        """
        parts = self.parts()
        record = await find_session(parts, request)
        if record is None:
            raise SessionError(ErrorCode.NOT_FOUND, f"there is no session {request.reference!r}")
        return RemoteSession(parts.store, record.id)

    def parts(self) -> SessionParts:
        """Return what sessions share; the store is made when the first session needs it."""
        if self._store is None:
            given = self._components.store
            self._store = make_store(given) if isinstance(given, str) else given
        return SessionParts(
            store=self._store,
            runner=self._runner,
            tools=self.registry,
            clock=self.clock,
            runtime=self._components.runtime,
            approver=self._components.approver,
            unanswered=self._components.unanswered,
        )

    async def count_tokens(self, fold: SessionFold, message: UserMessage | None) -> TokenCount:
        """Count what a session's next request would hold; with a message, if it were said now.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet and there is no message.
            ConfigError: CONFIG_INVALID when the message holds media that the model does not take.

        """
        settings = fold.settings
        client, model = await self.clients.route(settings.model)
        if message is not None:
            message = lead_with_reminders(message, settings.cached_reminders, fold.sent_view())
        offered = self.registry.current().view(settings.allowed_tools, settings.denied_tools)
        media = media_of(message.parts) if message is not None else ()
        extras = RequestExtras(model=model, tools=offered.wire_tools, fresh_media=media)
        return await client.count_tokens(build_request(settings, fold.sent_view(message), extras))

    async def close(self) -> None:
        """Close what was made here: clients, and the store unless it was handed in."""
        await self.clients.close()
        store, self._store = self._store, None
        if store is not None and isinstance(self._components.store, str):
            await store.close()


def make_store(location: str) -> Store:
    """Make the store that a string names: `memory`, `jsonl:DIR` or `sqlite:FILE`.

    Raises:
        ConfigError: CONFIG_INVALID when no store is called that.

    """
    # Only what is used is imported: a driver costs time and memory.
    kind, _, place = location.partition(":")
    if location == "memory":
        from holdfast.stores.memory import MemoryStore  # noqa: PLC0415 - if used

        return MemoryStore()
    if kind in {"jsonl", "sqlite"} and not place:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"store {location!r} does not say where")
    if kind == "jsonl":
        from holdfast.stores.jsonl.store import JsonlStore  # noqa: PLC0415 - if used

        return JsonlStore(Path(place).expanduser().absolute())
    if kind == "sqlite":
        from holdfast.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - if used

        return SqliteStore(Path(place).expanduser().absolute())
    raise ConfigError(
        ErrorCode.CONFIG_INVALID,
        f"{location!r} names no store; use 'memory', 'jsonl:FOLDER' or 'sqlite:FILE'",
    )
