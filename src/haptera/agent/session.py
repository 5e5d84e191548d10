"""AgentSession: a conversation that holds, as users see it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from msgspec.structs import replace

from haptera.agent import late
from haptera.agent.history_editing import HistoryEditing
from haptera.agent.keywords import QueryKeywords, ResumeKeywords
from haptera.agent.option_checks import (
    check_options,
    named_settings,
)
from haptera.agent.prompts import make_prompt, make_query, with_attachments, with_options
from haptera.agent.query_options import QUERY, RESUME, Prompt, QueryOptions, SendOptions
from haptera.agent.query_stream import QueryStream
from haptera.agent.session_surroundings import SessionSurroundings
from haptera.kernel.session.session_descriptions import (
    Fork,
    NamedSettings,
    SessionRequest,
    SessionView,
    Unfinished,
    find_unfinished,
    resume_input,
    state_of,
    view_of,
)
from haptera.model.commands import ConfigureSession, PlainCommand
from haptera.model.errors import AgentError, ErrorCode, SessionError
from haptera.model.events import Event, Idle, SessionStatus, check_handler
from haptera.model.ids import SessionId, new_query_id
from haptera.model.messages import Message, UserMessage
from haptera.model.requests import TokenCount
from haptera.model.results import AgentResult, OutputT
from haptera.model.session_state import SessionState
from haptera.model.settings import Delivery, Settings, changed_settings
from haptera.options.checks import filled
from haptera.options.signatures import takes
from haptera.ports.runner import QueryInput
from haptera.system.owned_tasks import LEAVING_SECONDS, to_its_end

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.kernel.engine.query_handle import QueryHandle
    from haptera.kernel.session.branching import Branches
    from haptera.kernel.session.live_session import LiveSession

EventT = TypeVar("EventT", bound=Event)


class AgentSession(HistoryEditing["AgentSession"], SessionSurroundings["AgentSession"]):
    """One conversation. Made by `agent.session()`; use it with `async with`, or close it.

    Opening it is lazy: the store is first asked when the session is entered or used.
    """

    def __init__(
        self,
        composition: "Composition",
        request: SessionRequest,
        *,
        closes_after_query: bool = False,
        closes_agent: bool = False,
    ) -> None:
        super().__init__(composition)
        # Tools get the object that the program has, so that a subclass is itself there, too.
        self._request = replace(request, bindings=replace(request.bindings, face=self))
        self._closes_after_query, self._closes_agent = closes_after_query, closes_agent
        self._one_opens = asyncio.Lock()
        self._opening: asyncio.Task[LiveSession] | None = None
        self._live: LiveSession | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else type(self.status).__name__ if self._live else "new"
        return f"<AgentSession {self.session_id or ''} {state.lower()}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await to_its_end(self.close(), name="haptera-leaving", within=LEAVING_SECONDS)

    @property
    def session_id(self) -> SessionId | None:
        """The session's id; None until it is open."""
        return self._live.session_id if self._live else None

    @property
    def native_session_id(self) -> str | None:
        """The id of the session that a native agent keeps for this one; None without one."""
        return self._live.fold.native.session_id if self._live else None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed or (self._live is not None and self._live.closed)

    @property
    def status(self) -> SessionStatus:
        """What the session is doing."""
        return self._live.status if self._live else Idle()

    @property
    def settings(self) -> Settings:
        """The settings in force: they allow no more than those that its agent was given."""
        return self._opened().settings

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return self._opened().fold.messages()

    @property
    def unfinished(self) -> Unfinished:
        """What an earlier process or query left to be carried on."""
        return find_unfinished(self._opened().fold)

    def view(self) -> SessionView:
        """Return what the session is at this moment, as a value."""
        live = self._opened()
        return view_of(live.session_id, live.fold)

    @takes(QUERY)
    async def chat(
        self, prompt: Prompt, **options: Unpack[QueryKeywords[OutputT]]
    ) -> AgentResult[OutputT]:
        """Send a prompt and wait for the answer.

        Raises:
            AgentError: when the query fails or is aborted; its `result` is what was kept.

        """
        check_options(options, QUERY, function="session.chat()")
        return await self._stream(prompt, options).result()

    @takes(QUERY)
    def stream(
        self, prompt: Prompt, **options: Unpack[QueryKeywords[OutputT]]
    ) -> QueryStream[OutputT]:
        """Send a prompt and watch the answer come; nothing is sent before the first use."""
        check_options(options, QUERY, function="session.stream()")
        return self._stream(prompt, options)

    def _stream(self, prompt: Prompt, given: Mapping[str, Any]) -> QueryStream[Any]:
        send, options = filled(given, SendOptions), filled(given, QueryOptions)
        # Before the stream is returned: what is wrong with the call is raised by the call.
        # Attachments are read later, when the prompt is sent.
        query, named = make_query(prompt, send, given), self._named_by(given)

        async def start() -> "QueryHandle":
            cwd = self._composition.configuration.cwd
            message = query.message and await with_attachments(query.message, send, cwd=cwd)
            ready = replace(query, message=message, is_only=self._closes_after_query)
            return await self._submit(ready, named, options, delivery=send.delivery)

        return QueryStream(start, self.close if self._closes_after_query else None, options)

    @takes(RESUME)
    def resume(self, **options: Unpack[ResumeKeywords[OutputT]]) -> QueryStream[OutputT]:
        """Carry an unfinished query on; await it for its result, or iterate it.

        Prompts that wait run after it. Without an unfinished query, the first of them is it.

        Raises:
            SessionError: NOTHING_TO_SEND when every query has ended and no prompt waits.

        """
        check_options(options, RESUME, function="session.resume()")
        delivery, told = options.get("delivery", "queue"), filled(options, QueryOptions)
        named = self._named_by(options)

        async def start() -> "QueryHandle":
            live = await self._live_session()
            query = resume_input(live.fold, live.recorder.waiting().values())
            ready = with_options(query, options)
            return await self._submit(ready, named, told, delivery=delivery)

        return QueryStream(start, None, told)

    def _named_by(self, options: Mapping[str, Any]) -> NamedSettings:
        """Return the settings of one query, checked; one that is stopped already needs none."""
        signal = options.get("signal")
        if signal is not None and signal.aborted:
            return NamedSettings()
        return named_settings(options, self._composition.configuration.changed)

    async def _submit(
        self,
        query: QueryInput,
        named: NamedSettings,
        options: QueryOptions[Any],
        *,
        delivery: Delivery = "queue",
    ) -> "QueryHandle":
        live = await self._live_session()
        # A table that is named in part is laid over what the query was told before, if it was.
        now = changed_settings(live.fold.settings, query.settings)
        settings = query.settings | named.over(now)
        handle = live.new_handle(
            replace(query, settings=settings), total_timeout=options.total_timeout
        )
        await live.submit(handle, delivery)
        return handle

    async def count_tokens(self, prompt: Prompt | None = None) -> TokenCount:
        """Count the tokens that the next request would hold; with a prompt, if it were said now.

        The provider counts where it can; elsewhere it is an estimate, and `exact` is False.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet and there is no prompt.

        """
        message = None if prompt is None else make_prompt(prompt, SendOptions(), new_query_id())
        live = await self._live_session()
        return await self._composition.count_tokens(live.fold, live.registry, message)

    async def drain_queue(self) -> tuple[UserMessage, ...]:
        """Take every prompt that waits out of the queue and return them."""
        return await (await self._live_session()).queue.drain()

    async def wait_idle(self) -> SessionStatus:
        """Wait until no query runs and none is about to; returns the status then.

        A session that rests on an approval is idle: `approvals` and `waiting` of the status say
        what it rests on, and how many prompts wait behind it.

        Raises:
            SessionError: BUSY in a tool, an approver or a hook of the query that runs.

        """
        live = await self._live_session()
        await live.queue.wait_idle()
        return live.status

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Stop the query (with an id: only that one), from any thread; what came is kept."""
        if self._live is not None:
            self._live.abort(reason, query_id=query_id)

    # The session as a whole.

    async def export(self) -> SessionState:
        """Return the conversation as a value that a new session can be restored from."""
        live = await self._live_session()
        fold = await live.branches.whole_fold()
        return state_of(fold, exported_at=live.stamp.clock.time_ms())

    async def events(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Observe the session from a `seq` on: what was, then what happens.

        An observer that is too slow gets an `ObserverLagged` as its last event. It misses no entry
        if it goes on with `events(after=lagged.resume_after)`.
        """
        live = await self._live_session()
        async with aclosing(live.events(after=after)) as events:
            async for event in events:
                yield event

    def on(self, kind: type[EventT], handler: Callable[[EventT], Any]) -> Callable[[], None]:
        """Call `handler` for every event of a kind; returns a function that ends this.

        A coroutine function is awaited, one event at a time; if it falls far behind, the query
        waits for it (`RuntimeSettings.buffer_size`), and only a tool's progress is skipped.

        Raises:
            ConfigError: CONFIG_INVALID when the kind is no class of events, or the handler no
                function.

        """
        check_handler(kind, handler)  # also of a session that is not open yet
        return self._opened().channel.on(kind, handler)

    async def close(self, *, force: bool = False, abort: bool = False) -> None:
        """Close the session: a running query may end by itself for a while, and is suspended then.

        A suspended query has no end: the next `resume()`, server or worker carries it on. With
        `force` it is suspended at once. With `abort` it ends now, as aborted.
        """
        # First: an opening that ends while this waits must not make the session open again.
        self._closed = True
        live = self._live
        if live is None and self._opening is not None:
            live = await _give_up(self._opening)
        elif live is not None:
            await live.close(force=force, abort=abort)
        if live is not None:
            await self._composition.forget(live, is_one_shot=self._closes_after_query)
        if self._closes_agent:
            await self._composition.close()

    async def delete(self) -> None:
        """Close the session by force and delete it, as `agent.sessions.delete()` does."""
        # Read before the close, after which the session cannot be reached any more.
        session_id = (await self._live_session()).session_id
        await self.close(abort=True)
        owner, project = self._request.owner, self._request.project
        await late.Catalogue(self._composition, owner=owner, project=project).delete(session_id)

    async def open(self) -> Self:
        """Open the session if it is not open yet, and return it.

        Raises:
            SessionError: BUSY when another process holds it, NOT_FOUND when it must exist and does
                not, CLOSED when it was closed.

        """
        await self._live_session()
        return self

    async def _tell(self, command: PlainCommand) -> None:
        await (await self._live_session()).commands.carry_out(command)

    async def _configure(self, order: ConfigureSession) -> None:
        await (await self._live_session()).change({"settings": order.settings})

    async def _fork_point(self, after: str | None) -> Fork:
        return await (await self._branches()).fork(after)

    async def _open_session(self, request: SessionRequest) -> "AgentSession":
        return await AgentSession(self._composition, request).open()

    def _opened(self) -> "LiveSession":
        if self._live is None:
            raise _not_open(closed=self._closed)
        return self._live

    async def _live_session(self) -> "LiveSession":
        """Open the session if it is not open yet, and return what stands behind it."""
        if self._closed:
            raise _not_open(closed=True)
        if self._live is None:
            await self._open_once()
        # It was closed while it was opened, or while this waited for another opening.
        if self._live is None:
            raise _not_open(closed=True)
        return self._live

    async def _branches(self) -> "Branches":
        live = await self._live_session()
        live.check_open()
        return live.branches

    async def _open_once(self) -> None:
        """Open the session for the first of its callers; the others wait for that.

        The opening is a task of the agent's. A caller that gives up, or a close, cancels it and
        continues when nothing is held any more.
        """
        async with self._one_opens:
            if self._live is not None or self._closed:
                return
            if self._opening is not None:
                await _give_up(self._opening)  # its caller was cancelled again while it did that
            self._opening = opening = self._composition.begin_opening(self._request)
            try:
                # `wait` does not pass a cancellation on: `_give_up` does, and waits for the end.
                await asyncio.wait({opening})
            except asyncio.CancelledError:
                await _give_up(opening)
                raise
            if opening.cancelled():
                raise SessionError(
                    ErrorCode.CLOSED, "the session was closed while it was being opened"
                )
            live = opening.result()
            # A close that came meanwhile has closed it through the task.
            if not self._closed:
                self._live = live


class QuerySession(AgentSession):
    """A session of one query, whose options were checked by the function that makes it."""

    def answer(self, prompt: Prompt, options: Mapping[str, Any]) -> QueryStream[Any]:
        """Send the prompt and watch the answer come."""
        return self._stream(prompt, options)


async def _give_up(opening: "asyncio.Task[LiveSession]") -> "LiveSession | None":
    """Cancel an opening; close and return the session if it was open already."""
    if opening.cancel():
        await asyncio.wait({opening})
    if opening.cancelled() or opening.exception() is not None:
        return None
    await (live := opening.result()).close(force=True)
    return live


def _not_open(*, closed: bool) -> AgentError:
    message = "the session is closed" if closed else "the session is not open yet; enter it first"
    return SessionError(ErrorCode.CLOSED, message)
