"""QueryDriver: runs one query to its end, whatever ends it, and records that end."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from haptera.kernel.blocks.control_channel.channel import ControlChannel
from haptera.kernel.blocks.repetitions import LoopDetector, RepeatedErrors
from haptera.kernel.blocks.tool_registry.registry import registry_of
from haptera.kernel.engine.measurements import QueryMeasurement
from haptera.kernel.engine.query_end import closing_events, query_ended, query_outcome, until_over
from haptera.kernel.engine.query_scope import QueryScope, SessionScope
from haptera.kernel.session.left_children import LeftChildren, children_at_rest
from haptera.kernel.session.query_handle import QueryHandle, duration_ms_of
from haptera.kernel.session.recorder import QueryRecorder, SessionRecorder
from haptera.model.errors import AgentError, ErrorCode, StoreError
from haptera.model.events import Busy, Event, Failed, Idle, QuerySuspended
from haptera.model.json_types import JsonObject
from haptera.model.log.carried_state import state_to_store
from haptera.model.log.queries import QueryEnded
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FOLDED, SessionChanged
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import ProviderPart
from haptera.model.results import AgentResult
from haptera.model.settings import changed_settings
from haptera.ports.runner import QueryOutcome, Runner
from haptera.ports.telemetry import QueryBegun
from haptera.system.abort import AbortController
from haptera.system.clock import Stamp
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)


class QueryDriver:
    """Stands beside a running query and outlives its end.

    The work runs in a task of its own, so that stopping it cannot also stop the recording of what
    was kept. Work that does not let itself be cancelled is left behind, cut off from the recorder.
    Exactly one terminal event comes out, whichever of result, error, abort, timeout and
    close was first.
    """

    def __init__(
        self,
        *,
        runner: Runner[QueryScope],
        session: SessionScope,
        recorder: SessionRecorder,
        channel: ControlChannel,
        children: LeftChildren,
        whole_fold: Callable[[], Awaitable[SessionFold]],
    ) -> None:
        self._runner = runner
        self._children = children
        self._session = session
        self._recorder = recorder
        self._channel = channel
        self._clock = children.clock
        self._whole_fold = whole_fold
        self._before_opening: tuple[Message, ...] | None = None
        """The messages that a session opened from a compaction on does not hold, once read."""

    async def drive(self, handle: QueryHandle) -> None:
        """Run the query and finish its handle."""
        # Before any task is started: tasks copy the context, by which their query is known.
        handle.work_for_it()
        scope = self._scope_of(handle)
        self._session.set_status(Busy())
        _logger.info("query %s started in session %s", scope.query_id, self._session.session_id)
        handle.phase = "connecting"
        with scope.measurement.span:
            try:
                await self._recorder.resynchronise()
                # A new prompt makes void what sub-agents of an earlier query wait for.
                # Found before `start`, which settles the calls that they belong to.
                left = children_at_rest(scope.fold) if scope.input.resumes is None else ()
                await self._runner.start(scope)
                await self._children.end(left)
            except AgentError as error:
                outcome = QueryOutcome(stop_reason="error", error=error)
            else:
                outcome = await self._work(handle, scope)
            if handle.suspends and outcome.error is handle.stop_error:
                await self._suspend(handle, scope, outcome)
            else:
                await self._close(handle, scope, outcome)

    async def _work(self, handle: QueryHandle, scope: QueryScope) -> QueryOutcome:
        """Let the query run in a task that can be stopped without stopping this one."""
        if scope.hooks is None:
            work = self._runner.run(scope)
        else:
            work = scope.hooks.run(lambda: self._runner.run(scope))
        worker = self._session.tasks.start(work, name="haptera-query")
        handle.begin(worker, scope.abort, lambda: scope.trouble)
        try:
            await until_over(worker, handle.stopped, query_id=scope.query_id)
        finally:
            # No call acts on an answer any more. The questions stay in the fold, where they can be
            # answered.
            self._session.approvals.forget()
        return query_outcome(worker, handle.stop_error)

    def _scope_of(self, handle: QueryHandle) -> QueryScope:
        settings = changed_settings(self._recorder.fold.settings, handle.query.settings)
        abort = AbortController()
        begun = QueryBegun(
            session_id=self._session.session_id,
            query_id=handle.query.query_id,
            model=settings.model,
            prompt=handle.query.message,
        )
        scope = QueryScope(
            session=self._session,
            fold=self._session.fold,
            recorder=QueryRecorder(
                self._recorder, self._channel, signal=abort.signal, stopped=handle.stopped
            ),
            abort=abort,
            input=handle.query,
            stamp=Stamp(self._clock, query_id=handle.query.query_id),
            started_at=self._clock.now(),
            measurement=QueryMeasurement(
                begun, clock=self._clock, telemetry=self._session.telemetry
            ),
            registry=registry_of(handle.query.tools, self._session.registry),
            loop=LoopDetector.of(settings),
            errors=RepeatedErrors.of(settings),
        )
        scope.begin_hooks()
        return scope

    async def _suspend(self, handle: QueryHandle, scope: QueryScope, outcome: QueryOutcome) -> None:
        """Leave the query as a process leaves it that stops: what came is stored, and no end."""
        saved: list[Event] = []
        if scope.turn is not None and scope.fold.open_turn is not None:
            scope.turn.answer.checkpoint(saved)
        try:
            await self._recorder.commit(())  # what the worker had staged comes first
            await self._recorder.commit(saved)
        except AgentError as error:
            _logger.warning(
                "query %s was suspended, and its last words are lost: %s", scope.query_id, error
            )
        ended = query_ended(scope, outcome, duration_ms=duration_ms_of(handle))
        suspended = QuerySuspended(query_id=scope.query_id, reason=str(outcome.error))
        self._recorder.show([*scope.measurement.end(ended), suspended])
        scope.measurement.finish()
        earlier = await self._earlier_messages()
        result: Any = replace(_result_of(scope, ended, earlier=earlier), suspended=True)
        if outcome.error is not None:
            outcome.error.result = result
        handle.finish(result, outcome.error)
        _logger.info("query %s was suspended", scope.query_id)
        self._session.set_status(Idle())

    async def _close(self, handle: QueryHandle, scope: QueryScope, outcome: QueryOutcome) -> None:
        duration_ms = duration_ms_of(handle)
        rests = outcome.stop_reason == "approval" and not handle.gives_way
        left = () if rests else children_at_rest(scope.fold)
        ended, outcome = await self._record_end(scope, outcome, duration_ms, rests=rests)
        await self._store_state()
        await self._children.end(left)
        # Only now: an end that the store did not take was replaced by another.
        scope.measurement.finish()
        if scope.hooks is not None:
            # Before the caller gets the result, so that it finds done what `after_query` does.
            await scope.hooks.end(ended)
        error = outcome.error
        earlier = await self._earlier_messages()
        result: Any = _result_of(scope, ended, earlier=earlier)
        if error is not None and error.result is None:
            error.result = result
        handle.finish(result, error)
        _logger.info(
            "query %s ended: %s, %d turns, %d tokens, %d ms",
            *(scope.query_id, ended.stop_reason, ended.turns, ended.usage.total, duration_ms),
        )
        failed = error is not None and error.code is not ErrorCode.ABORTED
        self._session.set_status(Failed(error=error.report) if error and failed else Idle())

    async def _store_state(self) -> None:
        """Now and then, record what the session is, for those who look at it without opening it."""
        state = state_to_store(self._recorder.fold)
        if state is not None:
            with suppress(AgentError):  # the end is recorded; this can be made anew
                stamp = Stamp(self._clock)()
                await self._recorder.commit([SessionChanged(**stamp, changes={FOLDED: state})])

    async def _earlier_messages(self) -> tuple[Message, ...]:
        """Return the beginning of the conversation, where the session was opened without it."""
        fold = self._recorder.fold
        if not fold.compacted.is_partial:
            return ()
        if self._before_opening is None:
            held = fold.messages()
            try:
                whole = (await self._whole_fold()).messages()
            except StoreError:
                return ()  # the end of the query is told also when the store has gone
            first = held[0].id if held else None
            ends = next((at for at, each in enumerate(whole) if each.id == first), len(whole))
            self._before_opening = whole[:ends]
        return self._before_opening

    async def _record_end(
        self, scope: QueryScope, outcome: QueryOutcome, duration_ms: int, *, rests: bool
    ) -> tuple[QueryEnded, QueryOutcome]:
        """Record the end; a store that cannot take it makes the end an error, still shown once."""
        try:
            closing: list[Event] = []
            # An answer whose end is staged leaves nothing open; one append holds that end and
            # `query.ended`.
            if outcome.error is not None or not scope.is_end_staged:
                await self._recorder.commit(())  # what a cancelled worker had staged comes first
                # Made only now: what was staged may have settled calls and approvals.
                closing = closing_events(scope, outcome, rests=rests)
            ended = query_ended(scope, outcome, duration_ms=duration_ms)
            await self._recorder.commit([*closing, *scope.measurement.end(ended), ended])
        except StoreError as error:
            # A query that failed because of the store keeps the error that stopped it.
            if outcome.error is None or not isinstance(outcome.error, StoreError):
                outcome = QueryOutcome(stop_reason="error", error=error)
            ended = query_ended(scope, outcome, duration_ms=duration_ms)
            self._recorder.show_unstored_end(scope.measurement.end(ended), ended)
        return ended, outcome


def _result_of(
    scope: QueryScope, ended: QueryEnded, *, earlier: tuple[Message, ...]
) -> AgentResult[object]:
    """Return what the caller gets; `earlier` is what the fold does not hold."""
    fold, turn = scope.fold, scope.turn
    messages = fold.messages()
    new_messages = _added_by(scope, messages)
    answers = [item for item in new_messages if isinstance(item, AssistantMessage)]
    text = _text_of(answers[-1]) if answers else ""
    return AgentResult(
        text=text,
        output=text if answers and scope.input.wants_text else scope.output,
        messages=earlier + messages,
        new_messages=new_messages,
        tool_calls=tuple(call for answer in answers for call in answer.tool_calls),
        usage=ended.usage,
        cost=ended.cost,
        children_usage=scope.children.usage,
        children_cost=scope.children.cost,
        provider=turn.provider if turn else "",
        model=turn.model if turn else "",
        session_id=scope.session.session_id,
        message_id=answers[-1].id if answers else None,
        stop_reason=ended.stop_reason,
        stop_detail=ended.stop_detail,
        finish_reason=ended.finish_reason,
        turns=ended.turns,
        duration_ms=ended.duration_ms,
        pending=fold.pending_approvals(),
        resumed=scope.input.resumes is not None or scope.resumed,
        native_session_id=ended.native_session_id,
        resume=ended.resume,
    )


def _text_of(answer: AssistantMessage) -> str:
    """Return what the model said; where it only refused, the words it refused with."""
    return answer.text or "".join(
        _refusal_in(part.payload) for part in answer.parts if isinstance(part, ProviderPart)
    )


def _refusal_in(payload: JsonObject) -> str:
    """Find a refusal in an opaque part: providers put it on the part, or into its content."""
    objects = [payload, *(item for item in payload.get("content") or () if isinstance(item, dict))]
    return "".join(str(each.get("refusal") or "") for each in objects)


def _added_by(scope: QueryScope, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the tail of the conversation that this query, or the one it resumes, added."""
    own = {scope.query_id, scope.input.resumes, *scope.joined}
    first = len(messages)
    # From the end, so that a long conversation is not looked through after every query.
    while first and messages[first - 1].query_id in own:
        first -= 1
    return messages[first:]
