"""Agent: a model, its tools and a store, joined once and used for any number of sessions."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, Unpack

from holdfast.agent.keywords import (
    AgentOptions,
    Prompt,
    QueryOptions,
    SessionOptions,
    components_of,
    hide_key,
    make_prompt,
    settings_changes,
    sources_of,
)
from holdfast.agent.option_checks import check_options, check_reference, check_text
from holdfast.agent.queries import make_query, stream_query
from holdfast.agent.query_stream import QueryStream
from holdfast.agent.remote import AgentRemote
from holdfast.agent.session import AgentSession
from holdfast.assembly import compose, configure
from holdfast.assembly.components import split_model
from holdfast.engine.owned_tasks import OwnedTasks
from holdfast.serialization.session_state import check_state
from holdfast.session.requests import Fork, SessionRequest
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.events import Instrumented
from holdfast.vocabulary.ids import new_query_id
from holdfast.vocabulary.requests import TokenCount
from holdfast.vocabulary.results import AgentResult
from holdfast.vocabulary.settings import Settings
from holdfast.vocabulary.text import writable

if TYPE_CHECKING:
    from holdfast.session.live_session import LiveSession

_OPENING_SECONDS = 15.0
"""How long a closing agent waits until an opening has given back what it holds."""


class Agent:
    """Holds what queries share. Constructed once; use it with `async with`, or close it.

    Raises:
        ConfigError: CONFIG_INVALID or CONFIG_MISSING naming what is wrong with an option.

    """

    def __init__(self, model: str = "", /, **options: Unpack[AgentOptions]) -> None:
        hide_key(options)
        check_options(options, AgentOptions, of="Agent")
        if model:
            options["model"] = model
        arguments = settings_changes(options)
        for name in ("store", "owner", "project"):
            if isinstance(options.get(name), str):
                arguments[name] = options[name]
        self._configuration = configure(arguments, sources_of(options))
        resolved = self._configuration.resolved
        self._settings = self._configuration.settings
        split_model(self._settings.model)
        self._owner = resolved.agent.owner
        self._project = resolved.agent.project or writable(str(self._configuration.cwd))
        check_text(self._owner, of="the owner")
        check_text(self._project, of="the project")
        self._instrumentation = options.get("instrumentation")
        self._composition = compose(components_of(options, resolved), self._configuration)
        self._sessions: list[LiveSession] = []
        self._openings = OwnedTasks()
        self._closed = False

    @property
    def settings(self) -> Settings:
        """What new sessions start with."""
        return self._settings

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def run(self, prompt: Prompt, **options: Unpack[QueryOptions]) -> AgentResult[Any]:
        """Answer one prompt in a session of its own.

        Raises:
            AgentError: when the query fails or is aborted; its `result` is what was kept.

        """
        return await self.stream(prompt, **options).result()

    def stream(self, prompt: Prompt, **options: Unpack[QueryOptions]) -> QueryStream[Any]:
        """Answer one prompt in a session of its own, and watch the answer come."""
        query = make_query(prompt, options)
        session = self.session()
        cwd = self._configuration.cwd
        return stream_query(session.open, query, options, finish=session.close, cwd=cwd)

    def session(
        self, reference: str | None = None, **options: Unpack[SessionOptions]
    ) -> AgentSession:
        """Return a session by its name or id: a new one, or as the store has it.

        Raises:
            ConfigError: CONFIG_INVALID when the name or a state to restore is not valid.

        """
        check_reference(reference)
        check_options(options, SessionOptions, of="a session")
        state = options.get("restore")
        history = check_state(state).messages if state is not None else ()
        return self._session_of(
            SessionRequest(
                reference=reference,
                owner=self._owner,
                project=self._project,
                settings=self._settings,
                busy=options.get("busy", "reject"),
                history=history,
                must_exist=options.get("must_exist", False),
            )
        )

    async def remote(self, reference: str) -> AgentRemote:
        """Reach a session that another process holds, by its name or id.

        Raises:
            SessionError: NOT_FOUND when the store has no such session.

        """
        check_reference(reference)
        request = SessionRequest(reference=reference, owner=self._owner, project=self._project)
        return AgentRemote(await self._composition.reach(request))

    def _session_of(self, request: SessionRequest) -> AgentSession:
        check_reference(request.reference)

        def begin_opening() -> "asyncio.Task[LiveSession]":
            if self._closed:
                raise SessionError(ErrorCode.CLOSED, "the agent is closed")
            return self._openings.start(self._open(request), name="holdfast-open")

        def open_fork(fork: Fork, name: str | None) -> AgentSession:
            return self._session_of(
                SessionRequest(reference=name, owner=self._owner, project=self._project, fork=fork)
            )

        async def count(live: "LiveSession", prompt: Prompt | None) -> TokenCount:
            message = None if prompt is None else make_prompt(prompt, {}, new_query_id())
            return await self._composition.count_tokens(live.fold, message)

        session = AgentSession(
            begin_opening,
            open_fork,
            count,
            cwd=self._configuration.cwd,
            check_changes=self._configuration.changed,
        )
        session.when_closed(self._forget_closed)
        return session

    async def close(self) -> None:
        """Close every session, then what they share. Closing twice is fine."""
        self._closed = True
        try:
            await self._openings.cancel(within=_OPENING_SECONDS)
            closings = [live.close() for live in self._sessions]
            outcomes = await asyncio.gather(*closings, return_exceptions=True)
        finally:
            self._sessions.clear()
            await self._composition.close()
        for failure in outcomes:
            if failure is not None:
                raise failure

    async def _open(self, request: SessionRequest) -> "LiveSession":
        """Open a session in a task of the agent's own; from its return on the agent closes it."""
        live = await self._composition.open(request)
        self._watch(live)
        return live

    def _watch(self, live: "LiveSession") -> None:
        self._sessions.append(live)
        sink: Callable[[Instrumented], None] | None = self._instrumentation
        if sink is not None:
            live.channel.on(Instrumented, sink)

    async def _forget_closed(self) -> None:
        """Keep nothing of a session that was closed."""
        self._sessions = [item for item in self._sessions if not item.closed]
