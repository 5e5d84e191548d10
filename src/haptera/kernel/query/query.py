"""Query: one prompt while it is answered: what is known of it, and its one end."""

import asyncio
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from haptera.kernel.blocks.error_classification import to_agent_error
from haptera.kernel.blocks.stream_processor.processor import AnswerInterface
from haptera.kernel.blocks.tool_registry.registry import (
    ToolRegistryInterface,
    ToolSet,
    registry_of,
)
from haptera.kernel.query.progress import (
    NO_SPAN,
    NativeShare,
    QueryChecks,
    QueryMeasurement,
    QueryProgress,
    TurnMeasurement,
)
from haptera.kernel.query.query_hooks import HookedQuery, QueryHooks
from haptera.kernel.session.deliveries import cancelled_waits
from haptera.kernel.session.recorder import Recorder, StoreTime
from haptera.kernel.session.session import QueryHandle, Session, duration_ms_of
from haptera.model.errors import AgentError, ErrorCode, StoreError
from haptera.model.events import Busy, Event, Failed, Idle, QuerySuspended
from haptera.model.ids import MessageId, QueryId, new_input_id, new_message_id
from haptera.model.json_types import JsonObject
from haptera.model.log.queries import InputPromoted, InputQueued, QueryEnded
from haptera.model.log.tools import ToolEnded, waiting_calls
from haptera.model.log.turns import TurnEnded
from haptera.model.messages import AssistantMessage, Message, Sender, UserMessage
from haptera.model.parts import ProviderPart, TextPart
from haptera.model.results import RESTING, AgentResult
from haptera.model.settings import Settings, bounded_settings, changed_settings
from haptera.ports.model_client import ModelClient
from haptera.ports.runner import QueryOutcome
from haptera.ports.telemetry import QueryBegun
from haptera.ports.tools import ToolCaller
from haptera.system.abort import AbortController
from haptera.system.clock import Stamp
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)

_LOOKS = 4
"""How often progress is looked for in the time that a query may be without it."""
_CANCEL_SECONDS = 0.5
_STOP_SECONDS = 0.5
"""How long the work of a query that was stopped is waited for."""
_CANCELLED = "This call was cancelled while it ran. It may or may not have taken effect."


class Runner(Protocol):
    """Answers the prompt of a query; a substitute for `QueryRunner` has these methods.

    - `start` is called first, once. When it returns, the prompt is in the log, or staged to be
      recorded with what comes next. An abort does not cut it short: a prompt that was taken in is
      part of the session.
    - `run` returns when the query has come to rest, or raises an `AgentError` when it cannot go on.
      It can be cancelled at any point, and leaves open what it was about: the query records how
      it ended, because an abort can end it anywhere.
    - Everything that it does goes through the recorder of the query. It keeps nothing of any query
      between two of them, and runs any number of queries at the same time.
    """

    async def start(self, query: "Query") -> None:
        """Record the prompt."""
        ...

    def run(self, query: "Query") -> Coroutine[Any, Any, QueryOutcome]:
        """Answer it."""
        ...


class ModelPlan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Which model to ask, with which settings, and for which time."""

    client: ModelClient
    model: str
    """Its name without the provider."""
    settings: Settings
    attempt: int = 1


class Turn(msgspec.Struct, kw_only=True, eq=False):
    """One request to a model, and the answer to it as far as it came."""

    provider: str
    model: str
    """Its name without the provider."""
    stamp: Stamp
    message_id: MessageId
    """The answer's."""
    answer: AnswerInterface
    measurement: TurnMeasurement
    is_end_staged: bool = False
    """Whether its end waits to be recorded with the end of the query."""


_NO_TOOLS = ToolSet()


class ToolOffer(msgspec.Struct, kw_only=True, eq=False):
    """What a query offers to its model."""

    registry: ToolRegistryInterface
    """Where its tools come from."""
    tools: ToolSet = _NO_TOOLS
    """The tools of the turn: its calls run on these, whatever a source offers by then."""


class Query:
    """One prompt, from when it is taken up to its end. Used once.

    Owns all state of the query, and its end. The work runs in a task of its own, so that stopping
    it cannot also stop the recording of what was kept. Work that does not let itself be cancelled
    is left behind, cut off from the recorder. Exactly one terminal event comes out, whichever of
    result, error, abort, timeout and close was first. Does not own how the prompt is answered
    (`Runner`), or what callers see of it (`QueryHandle`).
    """

    def __init__(self, session: Session, handle: QueryHandle) -> None:
        self.session = session
        self.handle = handle
        self.input = handle.query
        self.fold = session.fold
        """The session as it is now."""
        self.query_id = self.input.query_id
        self._settled: tuple[Settings, Settings] | None = None
        """The settings of the session, and what they come to for this query."""
        settings = self.settings
        self.stamp = Stamp(session.stamp.clock, query_id=self.query_id)
        self.abort = AbortController()
        self.recorder = Recorder(
            session.recorder, session.channel, signal=self.abort.signal, stopped=handle.stopped
        )
        """Where everything that happens goes, for as long as the query is not stopped."""
        begun = QueryBegun(
            session_id=session.session_id,
            query_id=self.query_id,
            model=settings.model,
            prompt=self.input.message,
        )
        self.measurement = QueryMeasurement(
            begun, clock=self.stamp.clock, telemetry=session.host.telemetry
        )
        registry, own = session.registry, self.input.tools
        self.offer = ToolOffer(registry=registry if own is None else registry_of(own, registry))
        self.checks = QueryChecks(settings=settings)
        self.progress = QueryProgress()
        self.native = NativeShare()
        self.turn: Turn | None = None
        """The turn that runs, or ran last; None before the first one."""
        self.hooks = None if session.hooks.dispatch.hooks.is_empty else self._own_hooks()
        """None when no hook is registered: nothing is asked or told then."""

    def _own_hooks(self) -> QueryHooks:
        hooked = HookedQuery(
            input=self.input,
            fold=self.fold,
            recorder=self.recorder,
            signal=self.abort.signal,
            stamp=lambda: self.turn_stamp,
            tasks=self.session.tasks,
            deps=self.caller.deps,
        )
        return QueryHooks(self.session.hooks, hooked)

    @property
    def settings(self) -> Settings:
        """The settings in force: the session's as they are now, under those of this query.

        They are within the ceiling, wherever they came from.
        """
        of_session, changes = self.fold.settings, self.input.settings
        if self._settled is None or self._settled[0] is not of_session:
            changed = changed_settings(of_session, changes) if changes else of_session
            ceiling = self.session.host.ceiling
            bounded = changed if ceiling is None else bounded_settings(changed, ceiling)
            self._settled = of_session, bounded
        return self._settled[1]

    @property
    def caller(self) -> ToolCaller:
        """For whom tools are called."""
        bindings, deps = self.session.bindings, self.input.deps
        return ToolCaller(
            query_id=self.query_id,
            sender=self.input.sender,
            deps=bindings.deps if deps is None else deps,
            session=bindings.face,
            cwd=self.session.host.cwd,
            approver=bindings.approver,
        )

    @property
    def staged_prompt(self) -> UserMessage | None:
        """The prompt while it waits to be recorded with the first turn; the fold lacks it then."""
        started = self.fold.open_query
        is_recorded = started is not None and started.query_id == self.query_id
        return None if is_recorded else self.progress.prompt

    @property
    def turn_stamp(self) -> Stamp:
        """The stamp of what belongs to the turn.

        A query that carries on with the tool calls of an earlier one has no turn of its own yet:
        the turn is that of the answer with the calls.
        """
        if self.turn is not None:
            return self.turn.stamp
        tip = self.fold.conversation.tip
        turn_id = tip.turn_id if isinstance(tip, AssistantMessage) else None
        return self.stamp if turn_id is None else self.stamp.of_turn(turn_id)

    async def promote_steers(self) -> list[InputQueued]:
        """Let everything that was said meanwhile into the conversation, and return it."""
        waiting = self.session.recorder.waiting().values()
        steers = [item for item in waiting if item.delivery == "steer"]
        if steers:
            self.progress.joined.update(item.message.query_id for item in steers)
            await self.recorder.record(
                [InputPromoted(**self.stamp(), input_id=item.input_id) for item in steers]
            )
        return steers

    async def say(self, text: str) -> UserMessage:
        """Put a message of the program's own into the conversation, and return it."""
        input_id = new_input_id()
        message = UserMessage(
            id=new_message_id(),
            parts=(TextPart(text=text),),
            query_id=self.query_id,
            sender=Sender(kind="orchestrator"),
        )
        queued = InputQueued(**self.stamp(), input_id=input_id, message=message, delivery="steer")
        promoted = InputPromoted(**self.stamp(), input_id=input_id)
        # In one append: after a crash no message of the program's own waits in the queue.
        await self.recorder.record([queued, promoted])
        return message

    # From its start to its end.

    async def drive(self, runner: Runner) -> QueryOutcome:
        """Run to the end, and finish the handle."""
        # Before any task is started: tasks copy the context, by which their query is known.
        self.handle.work_for_it()
        session = self.session
        session.set_status(Busy())
        _logger.info("query %s started in session %s", self.query_id, session.session_id)
        self.handle.phase = "connecting"
        with self.measurement.span or NO_SPAN:
            try:
                await session.recorder.resynchronise()
                if session.fold.lacks_texts:
                    async with StoreTime(self.handle.stopped):
                        await session.read_texts()
                # A new prompt makes void what sub-agents of an earlier query wait for.
                # Found before `start`, which settles the calls that they belong to.
                is_new = self.input.resumes is None and bool(self.fold.calls)
                left = session.resting_children() if is_new else ()
                await runner.start(self)
                if left:
                    await session.end_children(left)
            except AgentError as error:
                outcome = QueryOutcome(stop_reason="error", error=error)
            else:
                outcome = await self._work(runner)
            stop = self.handle.stop
            if stop is not None and stop.suspends and outcome.error is stop.error:
                await self._suspend(outcome)
                return outcome
            return await self._close(outcome)

    async def _work(self, runner: Runner) -> QueryOutcome:
        """Let the prompt be answered in a task that can be stopped without stopping this one."""
        hooks, handle = self.hooks, self.handle
        answer = partial(self._answer, runner)
        work = answer() if hooks is None else hooks.run(answer)
        worker = self.session.tasks.start(work, name="haptera-query")
        handle.begin(worker, self.abort, lambda: self.checks.trouble)
        try:
            await _until_over(worker, handle.stopped, query_id=self.query_id)
        finally:
            # No call acts on an answer any more. The questions stay in the fold, where they can be
            # answered.
            self.session.approvals.forget()
        return _outcome_of(worker, handle.stop.error if handle.stop is not None else None)

    def _answer(self, runner: Runner) -> Coroutine[Any, Any, QueryOutcome]:
        # Not a coroutine of its own: each delta would pass through it once more.
        work, seconds = runner.run(self), self.settings.watchdogs.idle_seconds
        return work if seconds is None else self._watched(work, seconds)

    async def _watched(
        self, work: Coroutine[Any, Any, QueryOutcome], seconds: float
    ) -> QueryOutcome:
        """Let it work until nothing is recorded or reported for so long.

        Looked at from time to time: nothing is done per event.
        """
        tasks = self.session.tasks
        worker = tasks.start(work, name="haptera-watched")
        seen, silent = self._mark(), 0
        try:
            while silent < _LOOKS:
                # By the agent's clock and not by a timeout of `asyncio.wait`: tests hold that clock
                # still.
                timer = tasks.start(self.stamp.clock.sleep(seconds / _LOOKS), name="haptera-watch")
                try:
                    await asyncio.wait({worker, timer}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    timer.cancel()
                if worker.done():
                    return worker.result()
                now = self._mark()
                # While a person is asked, the query waits for the person.
                silent = 0 if now != seen or self.fold.approvals else silent + 1
                seen = now
        finally:
            worker.cancel()
        self.abort.abort("it made no progress")  # what ignores its cancellation can do no more
        await asyncio.wait({worker}, timeout=_CANCEL_SECONDS)
        told = f"idle_seconds={seconds:g}: there was no progress"
        return QueryOutcome(stop_reason="limit", stop_detail=told)

    def _mark(self) -> tuple[int, int]:
        """Return what changes with all progress: the log grows, or a tool reports something."""
        return self.fold.head, self.progress.tool_reports

    async def _suspend(self, outcome: QueryOutcome) -> None:
        """Leave the query as a process leaves it that stops: what came is stored, and no end."""
        saved: list[Event] = []
        recorder = self.session.recorder
        if self.turn is not None and self.fold.open_turn is not None:
            self.turn.answer.checkpoint(saved)
        try:
            await recorder.commit(())  # what the worker had staged comes first
            await recorder.commit(saved)
        except AgentError as error:
            _logger.warning(
                "query %s was suspended, and its last words are lost: %s", self.query_id, error
            )
        ended = self._end(outcome, duration_ms=duration_ms_of(self.handle))
        suspended = QuerySuspended(query_id=self.query_id, reason=str(outcome.error))
        recorder.show([*self.measurement.end(ended), suspended])
        self.handle.detach()  # nothing comes after its terminal event
        self.measurement.finish()
        result = replace(await self._result(ended), suspended=True)
        if outcome.error is not None:
            outcome.error.result = result
        self.handle.finish(result, outcome.error)
        _logger.info("query %s was suspended", self.query_id)
        self.session.set_status(Idle())

    async def _close(self, outcome: QueryOutcome) -> QueryOutcome:
        session, duration_ms = self.session, duration_ms_of(self.handle)
        rests = outcome.stop_reason in RESTING and not self.input.gives_way
        left = session.resting_children() if self.fold.calls and not rests else ()
        ended, outcome = await self._record_end(outcome, duration_ms, rests=rests)
        await session.store_state()
        if left:
            await session.end_children(left)
        # Only now: an end that the store did not take was replaced by another.
        if self.measurement.span is not None:
            self.measurement.finish()
        if self.hooks is not None:
            # Before the caller gets the result, so that it finds done what `after_query` does.
            await self.hooks.end(ended)
        error, result = outcome.error, await self._result(ended)
        if error is not None and error.result is None:
            error.result = result
        self.handle.finish(result, error)
        _logger.info(
            "query %s ended: %s, %d turns, %d tokens, %d ms",
            *(self.query_id, ended.stop_reason, ended.turns, ended.usage.total, duration_ms),
        )
        failed = error is not None and error.code is not ErrorCode.ABORTED
        session.set_status(Failed(error=error.report) if error and failed else Idle())
        return outcome

    async def _record_end(
        self, outcome: QueryOutcome, duration_ms: int, *, rests: bool
    ) -> tuple[QueryEnded, QueryOutcome]:
        """Record the end; a store that cannot take it makes the end an error, still shown once."""
        recorder = self.session.recorder
        try:
            closing: list[Event] = []
            # An answer whose end is staged leaves nothing open; one append holds that end and
            # `query.ended`.
            if outcome.error is not None or self.turn is None or not self.turn.is_end_staged:
                await recorder.commit(())  # what a cancelled worker had staged comes first
                # Made only now: what was staged may have settled calls and approvals.
                closing = self._closing(outcome, rests=rests)
            ended = self._end(outcome, duration_ms=duration_ms)
            await recorder.commit([*closing, *self.measurement.end(ended), ended])
        except StoreError as error:
            # A query that failed because of the store keeps the error that stopped it.
            if outcome.error is None or not isinstance(outcome.error, StoreError):
                outcome = QueryOutcome(stop_reason="error", error=error)
            ended = self._end(outcome, duration_ms=duration_ms)
            recorder.show_unstored_end(self.measurement.end(ended), ended)
            self.handle.detach()
        return ended, outcome

    def _closing(self, outcome: QueryOutcome, *, rests: bool) -> list[Event]:
        """Return what is to be recorded before the end, so that the query is at rest.

        What was streamed is kept and marked as interrupted. A tool that was running is recorded as
        cancelled. Approvals that wait are cancelled, unless the query rests because of them. Commit
        it before the next wait: an answer that came in between would settle an approval twice.
        """
        out: list[Event] = []
        fold = self.fold
        if fold.open_turn is not None:
            if self.turn is not None:
                self.turn.answer.close(out)
            message_id = fold.open_turn.started.message_id
            out.append(TurnEnded(**self.turn_stamp(), message_id=message_id, interrupted=True))
        # A call that was started before, of an idempotent tool, may be asked about again.
        asked = fold.approvals.values() if rests else ()
        resting = {item.child.call_id if item.child else item.call_id for item in asked}
        out.extend(
            ToolEnded(
                **self.turn_stamp(),
                call_id=call.part.call_id,
                tool=call.part.name,
                outcome="cancelled",
                content=(TextPart(text=_CANCELLED),),
            )
            for call in fold.calls.values()
            if call.state == "started" and not call.waits and call.part.call_id not in resting
        )
        if not rests:
            reason = f"the query ended: {outcome.stop_reason}"
            out.extend(self.session.approvals.cancellations(reason) if fold.approvals else ())
            out += cancelled_waits(self.session.recorder.waits(), reason, clock=self.stamp.clock)
        if self.hooks is not None:
            self.hooks.cut_off(out)
        return out

    def _end(self, outcome: QueryOutcome, *, duration_ms: int) -> QueryEnded:
        """Return the terminal entry."""
        progress = self.progress
        return QueryEnded(
            **self.stamp(),
            stop_reason=outcome.stop_reason,
            finish_reason=progress.finish_reason,
            usage=progress.usage,
            # Where no model was asked there is no cost, which is not a cost of 0.
            cost=progress.cost if progress.turns or progress.usage.total else None,
            turns=progress.turns,
            duration_ms=duration_ms,
            message_id=self.turn.message_id if self.turn else None,
            error=outcome.error.report if outcome.error else None,
            stop_detail=outcome.stop_detail,
            native_session_id=self.fold.native.session_id if self.session.native.live else None,
            resume=self.native.resume,
        )

    async def _result(self, ended: QueryEnded) -> AgentResult[Any]:
        """Return what the caller gets."""
        messages, turn, progress = self.fold.messages(), self.turn, self.progress
        own = {self.query_id, self.input.resumes, *progress.joined}
        is_partial = self.fold.compacted.is_partial
        earlier = await self.session.earlier_messages() if is_partial else ()
        new_messages = _added_by(own, messages)
        answers = [item for item in new_messages if isinstance(item, AssistantMessage)]
        text = _text_of(answers[-1]) if answers else ""
        return AgentResult(
            text=text,
            output=text if answers and self.input.wants_text else progress.output,
            messages=earlier + messages,
            new_messages=new_messages,
            tool_calls=tuple(call for answer in answers for call in answer.tool_calls),
            usage=ended.usage,
            cost=ended.cost,
            children_usage=progress.children.usage,
            children_cost=progress.children.cost,
            provider=turn.provider if turn else "",
            model=turn.model if turn else "",
            session_id=self.session.session_id,
            message_id=answers[-1].id if answers else None,
            stop_reason=ended.stop_reason,
            stop_detail=ended.stop_detail,
            finish_reason=ended.finish_reason,
            turns=ended.turns,
            duration_ms=ended.duration_ms,
            pending=self.fold.pending_approvals() if self.fold.approvals else (),
            waiting=waiting_calls(self.fold) if self.fold.calls else (),
            resumed=self.input.resumes is not None or self.native.resumed,
            native_session_id=ended.native_session_id,
            resume=ended.resume,
        )


def drive(
    runner: Runner, session: Session, handle: QueryHandle
) -> Coroutine[Any, Any, QueryOutcome]:
    """Run a query of a session to its end."""
    return Query(session, handle).drive(runner)


async def _until_over(
    worker: "asyncio.Task[QueryOutcome]", stopped: "asyncio.Future[None]", *, query_id: QueryId
) -> None:
    """Wait for the work of a query; once it was stopped, no longer than a moment."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timers: list[asyncio.TimerHandle] = []

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    def limit(_: object) -> None:
        timers.append(loop.call_later(_STOP_SECONDS, end))

    # The end of the work wakes the caller, not that it was stopped: what the work closes, such
    # as its connection, is closed before the caller records anything.
    worker.add_done_callback(end)
    stopped.add_done_callback(limit)
    try:
        await over
    finally:
        worker.remove_done_callback(end)
        stopped.remove_done_callback(limit)
        for timer in timers:
            timer.cancel()
    # Python cannot end a task that swallows its cancellation; waiting for it would hang the caller.
    if not worker.done():
        worker.add_done_callback(_forget)
        _logger.warning(
            "query %s was stopped, but a hook or provider that it waits for does not let itself "
            "be cancelled; it is left behind",
            query_id,
        )


def _forget(worker: "asyncio.Task[QueryOutcome]") -> None:
    """Take note of how work that was left behind ended: its query has ended otherwise."""
    # Retrieved, so that asyncio does not log an exception that nothing waited for.
    if not worker.cancelled():
        worker.exception()


def _outcome_of(
    worker: "asyncio.Task[QueryOutcome]", stop_error: AgentError | None
) -> QueryOutcome:
    """Say how a query ended: by its own account, unless it was stopped from outside."""
    # Not done: it ignores its cancellation and was left behind.
    if not worker.done() or worker.cancelled():
        stopped = asyncio.CancelledError("the event loop stopped the query")
        error = stop_error or to_agent_error(stopped)
    elif (failure := worker.exception()) is None:
        return worker.result()
    else:
        error = to_agent_error(_first_of(failure))
        # A stopped query often fails because the recorder refuses; why it was stopped says more.
        if error.code is ErrorCode.ABORTED and stop_error is not None:
            error = stop_error
    aborted = error.code is ErrorCode.ABORTED
    return QueryOutcome(stop_reason="aborted" if aborted else "error", error=error)


def _first_of(failure: BaseException) -> BaseException:
    """Return the first error of a group: calls that run side by side fail as one."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _text_of(answer: AssistantMessage) -> str:
    """Return what the model said; where it only refused, the words it refused with."""
    return answer.text or "".join(
        _refusal_in(part.payload) for part in answer.parts if isinstance(part, ProviderPart)
    )


def _refusal_in(payload: JsonObject) -> str:
    """Find a refusal in an opaque part: providers put it on the part, or into its content."""
    objects = [payload, *(item for item in payload.get("content") or () if isinstance(item, dict))]
    return "".join(str(each.get("refusal") or "") for each in objects)


def _added_by(
    own: Collection[QueryId | None], messages: tuple[Message, ...]
) -> tuple[Message, ...]:
    """Return the tail of a conversation that the queries of these ids added."""
    first = len(messages)
    # From the end, so that a long conversation is not looked through after every query.
    while first and messages[first - 1].query_id in own:
        first -= 1
    return messages[first:]
