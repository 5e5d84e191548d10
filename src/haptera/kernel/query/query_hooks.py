"""QueryHooks: the hooks of one query, each point told once, whatever ends the query."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from haptera.kernel.session.recorder import Recorder
from haptera.kernel.session.session_hooks import HookCaller, SessionHooks, messages_of
from haptera.model.errors import ErrorReport
from haptera.model.events import Event
from haptera.model.ids import CallId, MessageId
from haptera.model.log.entry import Entry
from haptera.model.log.history import heal_history
from haptera.model.log.queries import QueryEnded
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.tools import ToolEnded
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import ProviderPart, ToolCallPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import changed_settings
from haptera.ports.hooks import (
    AfterQuery,
    AfterTool,
    AfterTurn,
    BeforeQuery,
    BeforeTool,
    BeforeTurn,
    HookInput,
    HookPoint,
    Proceed,
    TransformMessages,
    TransformRequest,
    Verdict,
)
from haptera.ports.runner import QueryInput, QueryOutcome
from haptera.system.abort import AbortSignal, query_stopped
from haptera.system.clock import Stamp
from haptera.system.owned_tasks import OwnedTasks

_STOPPED_SECONDS = 2.0
"""How long each observer of a query that was stopped is waited for."""

ValueT = TypeVar("ValueT")


class HookedQuery(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What hooks need of the query that they belong to."""

    input: QueryInput
    fold: SessionFold
    recorder: Recorder
    signal: AbortSignal
    stamp: Callable[[], Stamp]
    """Returns the stamp of what belongs to the turn that runs, or ran last."""
    tasks: OwnedTasks
    deps: object

    @property
    def model(self) -> str:
        """The model that is asked next."""
        return changed_settings(self.fold.settings, self.input.settings).model


class QueryHooks(HookCaller):
    """The hooks of one query.

    Owns what of the query was begun and not told to have ended: each turn and each tool call that
    hooks were asked about gets exactly one `after_*`, whether it ends by itself or with the query.
    """

    def __init__(self, session: SessionHooks, query: HookedQuery) -> None:
        super().__init__(
            session.dispatch.as_it_is(),
            session_id=session.session_id,
            tasks=query.tasks,
            deps=query.deps,
        )
        self._session = session
        self._query = query
        self._query_id = query.input.query_id
        self._has_begun = False
        self._is_over = False
        self._turn: BeforeTurn | None = None
        self._turns = 0
        self._calls: dict[CallId, ToolCallPart] = {}
        """The calls whose end is to be told."""
        self._cut_off: list[ToolEnded] = []
        """The ends of those calls that ran when the query was stopped."""

    @property
    def _stamp_now(self) -> Stamp:
        return self._query.stamp()

    async def run(self, answer: Callable[[], Coroutine[Any, Any, QueryOutcome]]) -> QueryOutcome:
        """Ask before the query, then let it be answered.

        Raises:
            AgentError: when the query cannot go on.

        """
        query = self._query
        await query.recorder.record(())  # what a hook is asked about is in the log
        self._has_begun = True
        if self._has("before_query"):
            given = self._given(
                BeforeQuery,
                query_id=self._query_id,
                prompt=_prompt_of(query),
                model=query.model,
                resumes=query.input.resumes,
            )
            reason = await self._reason("before_query", given)
            if reason is not None:
                return QueryOutcome(stop_reason="refusal", stop_detail=reason)
        return await answer()

    async def before_turn(self) -> QueryOutcome | None:
        """Ask before a turn; returns how the query ends if it may not be made."""
        self._turns += 1
        given = self._given(
            BeforeTurn,
            query_id=self._query_id,
            model=self._query.model,
            number=self._turns,
        )
        reason = await self._reason("before_turn", given)
        if reason is not None:
            return QueryOutcome(stop_reason="refusal", stop_detail=reason)
        # Only now: a turn that was blocked has no end.
        self._turn = given
        return None

    async def after_turn(
        self, message_id: MessageId | None, error: ErrorReport | None = None
    ) -> None:
        """Tell that the turn has ended, with the message of this id, if it was kept."""
        # Taken out before the wait: `end` tells what is still here, and each turn is told once.
        begun, self._turn = self._turn, None
        if begun is None or not self._has("after_turn"):
            return
        tip = self._query.fold.conversation.tip
        given = self._given(
            AfterTurn,
            query_id=self._query_id,
            model=begun.model,
            number=begun.number,
            message=_own(tip) if tip is not None and tip.id == message_id else None,
            error=error,
        )
        await self._observe("after_turn", given)

    async def transform_messages(
        self, messages: tuple[Message, ...], *, provider: str, model: str
    ) -> tuple[Message, ...]:
        """Return the messages that a request is made of instead."""
        if not self._has("transform_messages"):
            return messages
        given = self._given(
            TransformMessages,
            query_id=self._query_id,
            provider=provider,
            model=model,
            messages=tuple(map(_own, messages)),
        )
        asking = self._dispatch.transform_messages(given, self._tasks)
        changed = await self._ask("transform_messages", given, asking)
        return _transformed(messages, changed)

    async def transform_request(self, request: ModelRequest, *, provider: str) -> ModelRequest:
        """Return the request that is sent instead."""
        if not self._has("transform_request"):
            return request
        given = self._given(
            TransformRequest,
            query_id=self._query_id,
            provider=provider,
            request=_own_request(request),
        )
        asking = self._dispatch.transform_request(given, self._tasks)
        changed = await self._ask("transform_request", given, asking)
        messages = _transformed(request.messages, changed.messages)
        return msgspec.structs.replace(changed, messages=messages)

    def expect(self, call: ToolCallPart) -> None:
        """Note that the end of a call is to be told."""
        self._calls[call.call_id] = call

    async def before_tool(self, call: ToolCallPart) -> Verdict:
        """Ask about a tool call.

        Raises:
            HookError: HOOK_FAILED when a hook fails.

        """
        self.expect(call)
        if not self._has("before_tool"):
            return Proceed()
        given = self._given(
            BeforeTool,
            query_id=self._query_id,
            call=_own_call(call),
        )
        asking = self._dispatch.gate("before_tool", given, self._tasks)
        return await self._ask("before_tool", given, asking)

    async def after_tool(self, ended: ToolEnded) -> None:
        """Tell the end of a call, if hooks were asked about it and it was not told yet."""
        call = self._calls.pop(ended.call_id, None)
        if call is not None and self._has("after_tool"):
            given = self._given(
                AfterTool,
                query_id=self._query_id,
                call=_own_call(call),
                ended=ended,
            )
            await self._observe("after_tool", given)

    async def saw(self, events: Sequence[Event]) -> None:
        """Tell the ends of calls among events that were recorded."""
        for event in events:
            if isinstance(event, ToolEnded):
                await self.after_tool(event)

    def cut_off(self, events: Sequence[Event]) -> None:
        """Note which calls end because the query does."""
        self._cut_off += [event for event in events if isinstance(event, ToolEnded)]

    async def end(self, ended: QueryEnded) -> None:
        """Tell that the query has ended, after what ended with it; the end is in the log."""
        # A query that failed before `run` was not announced to any hook.
        if not self._has_begun:
            return
        # From here on the recorder of the query may refuse: `_observe` uses the log of the session.
        self._is_over = True
        await self.saw(self._cut_off)
        await self.after_turn(ended.message_id, ended.error)
        if self._has("after_query"):
            given = self._given(
                AfterQuery,
                query_id=self._query_id,
                ended=ended,
            )
            await self._observe("after_query", given)

    async def _ask(self, point: HookPoint, given: HookInput, asking: Awaitable[ValueT]) -> ValueT:
        answer = await super()._ask(point, given, asking)
        if self._query.signal.aborted:
            raise query_stopped()  # it may have ignored its cancellation
        return answer

    async def _observe(self, point: HookPoint, given: HookInput) -> None:
        await self._session.observe_for(
            point,
            given,
            query_id=self._query_id,
            seconds=_STOPPED_SECONDS if self._query.signal.aborted else None,
            dispatch=self._dispatch,
        )
        if self._is_over:
            await self._session.record_last(point, given)
        else:
            await self._record(messages_of(point, given, self._stamp_now))

    async def _record(self, said: Sequence[Entry]) -> None:
        if said:
            await self._query.recorder.record(said)


def _prompt_of(query: HookedQuery) -> UserMessage | None:
    """Return the prompt of a query, also where it was taken from the queue."""
    tip = query.fold.conversation.tip
    if query.input.message is None and query.input.resumes is None:
        return tip if isinstance(tip, UserMessage) else None
    return query.input.message


def _own_call(call: ToolCallPart) -> ToolCallPart:
    """Return a call whose arguments a hook may change without changing those of the session."""
    return msgspec.structs.replace(call, arguments=msgspec.to_builtins(call.arguments))


def _own(message: Message) -> Message:
    """Return a message of which nothing that could be changed belongs to the session."""
    # Only these hold dictionaries and lists, which a hook could change.
    if not any(isinstance(part, ToolCallPart | ProviderPart) for part in message.parts):
        return message
    return msgspec.convert(msgspec.to_builtins(message), type(message))


def _transformed(
    messages: tuple[Message, ...], changed: tuple[Message, ...]
) -> tuple[Message, ...]:
    """Return what is sent: the session's own messages if transforms have changed none."""
    # Compared with those of the session, not with the copies that hooks were given: a hook may have
    # changed these in place, and what it took out must not be sent.
    return messages if changed == messages else tuple(heal_history(changed))


def _own_request(request: ModelRequest) -> ModelRequest:
    """Return a request of which nothing that could be changed belongs to the agent."""
    bare = msgspec.structs.replace(request, messages=())
    copied = msgspec.convert(msgspec.to_builtins(bare), ModelRequest)
    return msgspec.structs.replace(copied, messages=tuple(map(_own, request.messages)))
