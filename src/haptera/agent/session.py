"""AgentSession: a conversation that holds, as users see it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from msgspec.structs import replace

from haptera.agent.keywords import QueryKeywords, ResumeKeywords
from haptera.agent.option_checks import check_options, named_settings
from haptera.agent.prompts import make_prompt, make_query, with_attachments, with_options
from haptera.agent.query_options import QUERY, RESUME, Prompt, QueryOptions, SendOptions
from haptera.agent.query_stream import QueryStream
from haptera.agent.verbs import OrderT, SessionVerbs, ValueT
from haptera.kernel.session.session_descriptions import (
    Fork,
    NamedSettings,
    SessionRequest,
    SessionView,
    Unfinished,
    find_unfinished,
    resume_input,
    view_of,
)
from haptera.model.budgets import Budgets
from haptera.model.context_files import ContextFile, Skill
from haptera.model.errors import AgentError, ErrorCode, SessionError
from haptera.model.events import Event, Idle, SessionStatus, check_handler
from haptera.model.file_snapshots import FileDiff
from haptera.model.ids import MessageId, SessionId, new_query_id
from haptera.model.late_names import on_first_use
from haptera.model.log.compactions import Compaction
from haptera.model.messages import Message, UserMessage
from haptera.model.operations.held import (
    AddMessage,
    CompareFiles,
    DrainQueue,
    ExpandCompaction,
    ExportState,
    IncludeSession,
    KeepNote,
    RemoveMessage,
    RemovePart,
    ReplaceMessage,
    ReplacePart,
)
from haptera.model.operations.session import CompactSession
from haptera.model.operations.sessions import DeleteSession
from haptera.model.parts import Part
from haptera.model.requests import TokenCount
from haptera.model.results import AgentResult, OutputT, ResumeKind
from haptera.model.session_state import SessionState
from haptera.model.settings import Delivery, Settings, changed_settings
from haptera.model.tools import ToolSpec
from haptera.options.checks import filled
from haptera.options.operations import check_order
from haptera.options.signatures import takes
from haptera.ports.runner import QueryInput
from haptera.system.owned_tasks import LEAVING_SECONDS, to_its_end

if TYPE_CHECKING:
    from haptera.access import catalogue, changing, finding
    from haptera.access.assembly.composition import Composition
    from haptera.access.catalogue import Catalogue
    from haptera.kernel.blocks.control_channel import Subscription
    from haptera.kernel.session import command_effects, conversation_effects
    from haptera.kernel.session.command_effects import HeldSession
    from haptera.kernel.session.live_session import LiveSession
    from haptera.kernel.session.session import QueryHandle
else:
    catalogue = on_first_use("haptera.access.catalogue")
    changing = on_first_use("haptera.access.changing")
    command_effects = on_first_use("haptera.kernel.session.command_effects")
    finding = on_first_use("haptera.access.finding")
    conversation_effects = on_first_use("haptera.kernel.session.conversation_effects")

EventT = TypeVar("EventT", bound=Event)

_SEND, _ANSWER, _NOTHING_NAMED = SendOptions(), QueryOptions[Any](), NamedSettings()
"""What a query is told that is given no options."""


class AgentSession(SessionVerbs["AgentSession"]):
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

    @property
    def taken_over(self) -> bool:
        """Whether another process has taken the session: nothing more can be written here.

        It is known of sessions in a PostgreSQL store, and False until the session is open.
        """
        return self._live is not None and self._live.taken_over

    @property
    def is_native(self) -> bool:
        """Whether its model is run by an agent that keeps a session of its own."""
        return self._composition.clients.is_native(self._opened().fold.settings.model)

    async def resume_kind(self) -> ResumeKind | None:
        """Find out how the next query gets the conversation; None when there is none.

        `native`: its agent has a session of its own that agrees with the log. `replay`: it is
        handed over, as to any model.
        """
        live = self._opened()
        if live.has_native_open:
            return "native"
        return await self._composition.native_sessions.resume_kind(live.fold)

    @property
    def context_files(self) -> tuple[ContextFile, ...]:
        """The instruction files that the model is told, as the last query found them."""
        context = self._opened().fold.context
        return () if context is None else context.files

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills that the model can load, as the last query found them."""
        context = self._opened().fold.context
        return () if context is None else context.skills

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that its queries offer to the model."""
        live = self._opened()
        settings = live.settings
        offered = live.registry.current().view(settings.allowed_tools, settings.denied_tools)
        return tuple(offered.wire_tools)

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
        if options:
            check_options(options, QUERY, function="session.chat()")
        return await self._stream(prompt, options).result()

    @takes(QUERY)
    def stream(
        self, prompt: Prompt, **options: Unpack[QueryKeywords[OutputT]]
    ) -> QueryStream[OutputT]:
        """Send a prompt and watch the answer come; nothing is sent before the first use."""
        if options:
            check_options(options, QUERY, function="session.stream()")
        return self._stream(prompt, options)

    def _stream(self, prompt: Prompt, given: Mapping[str, Any]) -> QueryStream[Any]:
        send, options, named = _SEND, _ANSWER, _NOTHING_NAMED
        # Before the stream is returned: what is wrong with the call is raised by the call.
        # Attachments are read later, when the prompt is sent.
        if given:
            send, options = filled(given, SendOptions), filled(given, QueryOptions)
            named = self._named_by(given)
        query = make_query(prompt, send, given)

        async def start() -> "QueryHandle":
            cwd = self._composition.configuration.cwd
            message = query.message
            if message is not None and send.attachments:
                message = await with_attachments(message, send, cwd=cwd)
            ready = replace(query, message=message, is_only=self._closes_after_query)
            live = await self._live_session()
            return await _submit(live, ready, options, named=named, delivery=send.delivery)

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
            return await _submit(live, ready, told, named=named, delivery=delivery)

        return QueryStream(start, None, told)

    def _named_by(self, options: Mapping[str, Any]) -> NamedSettings:
        """Return the settings of one query, checked; one that is stopped already needs none."""
        signal = options.get("signal")
        if signal is not None and signal.aborted:
            return _NOTHING_NAMED
        return named_settings(options, self._composition.configuration.changed)

    async def remaining_budget(self) -> Budgets:
        """Return the budgets of the agent less what was spent, for what this session starts.

        What an agent of your own does for this session stays within it if it gets these `budgets`.
        """
        session_id = (await self._live_session()).session_id
        return await self._composition.budget.remaining(session_id)

    async def count_tokens(self, prompt: Prompt | None = None) -> TokenCount:
        """Count the tokens that the next request would hold; with a prompt, if it were said now.

        The provider counts where it can; elsewhere it is an estimate, and `exact` is False.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet and there is no prompt.

        """
        message = None if prompt is None else make_prompt(prompt, SendOptions(), new_query_id())
        live = await self._live_session()
        return await self._composition.count_tokens(live.fold, live.registry, message)

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

    # Made by scripts/write_verbs.py.

    async def expand(self, compaction_id: str | None = None) -> tuple[Message, ...]:
        """Return the messages that a compaction left out, by the id of its event.

        Without an id, those of the last compaction. Nothing is changed by it.

        Args:
            compaction_id: The id of the compaction.

        Raises:
            SessionError: NOT_FOUND when there is no such compaction, or it left nothing out.

        """
        order = ExpandCompaction(compaction_id=compaction_id)
        check_order(order, function="session.expand()")
        return await self._carry_out(conversation_effects.expand, order)

    async def diff(self, turn: str | None = None) -> FileDiff:
        """Return what a turn changed in the workspace, what its commands changed included.

        Args:
            turn: The id of a turn, of an answer or of a whole query; without one, the last query
                whose tools could change files.

        Raises:
            SessionError: NOT_FOUND when the session has nothing of that id.
            StoreError: UNAVAILABLE when no snapshot could be taken, or it is kept no longer.
            ConfigError: CONFIG_MISSING when the agent takes no snapshots of files.

        """
        order = CompareFiles(turn=turn)
        check_order(order, function="session.diff()")
        return await self._carry_out(conversation_effects.diff, order)

    async def add_message(
        self,
        content: str | Sequence[Part],
        *,
        role: Literal["user", "assistant"] = "user",
        after: str | None = None,
    ) -> MessageId:
        """Add a message after another, or at the end, and return its id; no model is asked.

        Neighbours of one role become one message, which keeps the id of the first.

        Args:
            content: What it says.
            role: Who says it.
            after: The message that it follows; the last without it.


        """
        order = AddMessage(
            content=content, role=role, after=None if after is None else MessageId(after)
        )
        check_order(order, function="session.add_message()")
        return await self._carry_out(conversation_effects.add_message, order)

    async def replace_message(self, message_id: str, content: str | Sequence[Part]) -> None:
        """Let a message say something else; its id, model and usage stay.

        Args:
            message_id: The id of the message.
            content: What it says from now on.


        """
        order = ReplaceMessage(message_id=MessageId(message_id), content=content)
        check_order(order, function="session.replace_message()")
        await self._carry_out(conversation_effects.replace_message, order)

    async def remove_message(self, message_id: str) -> None:
        """Take a message out of the conversation.

        Args:
            message_id: The id of the message.


        """
        order = RemoveMessage(message_id=MessageId(message_id))
        check_order(order, function="session.remove_message()")
        await self._carry_out(conversation_effects.remove_message, order)

    async def replace_part(self, message_id: str, place: int, part: Part) -> None:
        """Put another part in the place of one; the first part of a message has place 0.

        Args:
            message_id: The id of the message.
            place: The place of the part in the message.
            part: What stands there from now on.


        """
        order = ReplacePart(message_id=MessageId(message_id), place=place, part=part)
        check_order(order, function="session.replace_part()")
        await self._carry_out(conversation_effects.replace_part, order)

    async def remove_part(self, message_id: str, place: int) -> None:
        """Take a part out of a message; a message without parts is taken out as a whole.

        Args:
            message_id: The id of the message.
            place: The place of the part in the message.


        """
        order = RemovePart(message_id=MessageId(message_id), place=place)
        check_order(order, function="session.remove_part()")
        await self._carry_out(conversation_effects.remove_part, order)

    async def note(self, text: str) -> None:
        """Keep a note for every session of this project.

        The model gets it with the next prompt of this session, and with the first one of each
        session that is opened anew. `agent.sessions.notes()` lists notes, and `forget_note()` takes
        one back.

        Args:
            text: The note.

        Raises:
            ConfigError: CONFIG_INVALID when it is blank.

        """
        order = KeepNote(text=text)
        check_order(order, function="session.note()")
        await self._carry_out(conversation_effects.keep_note, order)

    async def export(
        self,
    ) -> SessionState:
        """Return the conversation as a value that a new session can be restored from."""
        order = ExportState()
        check_order(order, function="session.export()")
        return await self._carry_out(conversation_effects.export, order)

    async def drain_queue(
        self,
    ) -> tuple[UserMessage, ...]:
        """Take every prompt that waits out of the queue and return them."""
        order = DrainQueue()
        check_order(order, function="session.drain_queue()")
        return await self._carry_out(conversation_effects.drain_queue, order)

    # End.

    async def include(self, other: str, *, as_: Literal["summary", "full"] = "summary") -> None:
        """Tell this session's model of another session, with its next prompt.

        The summary is the stored one (`agent.sessions.set_summary`), or else this session's model
        is asked for one now. `full` is the whole conversation as text, without reasoning.

        Raises:
            SessionError: NOT_FOUND when there is no such session of this owner and project.
            ConfigError: CONFIG_INVALID when there is nothing in it, or sessions are kept apart.
            AgentError: when the model cannot be asked for a summary.

        """
        order = IncludeSession(other=other, as_=as_)
        finding.check_included(self._composition, order)
        sessions = self._sessions()
        await finding.include(sessions, order, (await self._live_session()).held)

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

    def attach(self, subscription: "Subscription[Event]") -> "Callable[[], None]":
        """Publish every event from now on to a buffer, for a program with many observers.

        The consumer of the `haptera.building_blocks.Subscription` pulls the events, in batches as
        they were published, on the event loop of the session. It ends when the session is closed.
        Returns a function that ends this earlier.

        Raises:
            SessionError: CLOSED when the session is not open.

        """
        return self._opened().channel.attach(subscription)

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
        await changing.delete(self._sessions(), DeleteSession(reference=session_id))

    async def open(self) -> Self:
        """Open the session if it is not open yet, and return it.

        Raises:
            SessionError: BUSY when another process holds it, NOT_FOUND when it must exist and does
                not, CLOSED when it was closed.

        """
        await self._live_session()
        return self

    async def _carry_out(
        self, handler: "Callable[[HeldSession, OrderT], Awaitable[ValueT]]", order: OrderT
    ) -> ValueT:
        return await handler((await self._live_session()).held, order)

    async def _compact(self, order: CompactSession, options: QueryOptions[Any]) -> Compaction:
        return await compact_here(self._live_session, order, options)

    async def _fork_point(self, after: str | None) -> Fork:
        return await (await self._live_session()).held.branches().fork(after)

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

    def _sessions(self) -> "Catalogue":
        return catalogue.Catalogue(
            self._composition, owner=self._request.owner, project=self._request.project
        )

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


async def compact_here(
    opened: "Callable[[], Awaitable[LiveSession]]",
    order: CompactSession,
    options: QueryOptions[Any],
) -> Compaction:
    """Have a session that is held here compacted; an abort ends the wait for it, too."""

    async def start() -> "QueryHandle":
        live = await opened()
        query = command_effects.compaction_query(live.held, order)
        return await _submit(live, query, options, named=_NOTHING_NAMED)

    result = await QueryStream[Any](start, None, options).result()
    return command_effects.compaction_made((await opened()).held, order, result)


async def _submit(
    live: "LiveSession",
    query: QueryInput,
    options: QueryOptions[Any],
    *,
    named: NamedSettings,
    delivery: Delivery = "queue",
) -> "QueryHandle":
    if named is not _NOTHING_NAMED:
        # A table that is named in part is laid over what the query was told before, if it was.
        now = changed_settings(live.fold.settings, query.settings)
        query = replace(query, settings=query.settings | named.over(now))
    handle = live.new_handle(query)
    await live.submit(handle, delivery, total_timeout=options.total_timeout)
    return handle


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
