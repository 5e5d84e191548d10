"""TurnRunner: one request to a model and its answer."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from decimal import Decimal
from types import TracebackType
from typing import Protocol, Self

import msgspec

from haptera.kernel.blocks.request_builder import RequestBuilder, RequestExtras
from haptera.kernel.blocks.stream_processor.processor import (
    AnswerInterface,
    AnswerSource,
    StreamProcessorInterface,
)
from haptera.kernel.engine.query_scope import ModelPlan, QueryScope, Turn
from haptera.model.errors import ErrorCode, RequestError, StoreError
from haptera.model.events import Event, Heartbeat
from haptera.model.ids import new_message_id, new_turn_id
from haptera.model.log.turns import TurnEnded, TurnStarted
from haptera.model.messages import Message
from haptera.model.parts import TextPart, ToolCallPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings
from haptera.model.stream_parts import StreamFinished
from haptera.ports.model_client import ModelCatalogue
from haptera.ports.runner import Recorder
from haptera.ports.telemetry import TurnBegun
from haptera.system.abort import query_stopped
from haptera.system.clock import Clock
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A turn that was answered, and how the model finished."""

    turn: Turn
    finished: StreamFinished


class TurnRunnerInterface(Protocol):
    """Runs turns; a substitute for `TurnRunner` in a query runner has this method.

    - It makes one request of what the fold would send now, and asks once: it repeats nothing, runs
      no tools and does not decide what comes next.
    - `turn.started` is recorded before the client is asked, each part as it comes, and `turn.ended`
      with its usage and cost once the client has finished. An answer without parts adds no message.
    - An answer that ends without `StreamFinished` is STREAM_INTERRUPTED. What the client raises is
      raised as it is, after what came before it was recorded.
    - The client's stream is closed however the turn ends.
    """

    async def run(self, scope: QueryScope, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        """Ask once."""
        ...


class TurnRunner:
    """Runs one request and its answer.

    Owns the order: build, record the start, stream, record what comes. Does not repeat a request
    (ProviderAttempts does), run tools or decide whether to go on (QueryRunner does). A turn that
    fails is left open: the caller discards or ends it. The time that a query gives a model stands
    still while the log or a slow consumer is waited for.
    """

    def __init__(
        self,
        *,
        request_builder: RequestBuilder,
        stream_processor: StreamProcessorInterface,
        catalogue: ModelCatalogue,
        clock: Clock,
        runtime: RuntimeSettings,
    ) -> None:
        self._build_request = request_builder
        self._processor = stream_processor
        self._catalogue = catalogue
        self._clock = clock
        self._runtime = runtime

    async def run(self, scope: QueryScope, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        """Ask once.

        Raises:
            AgentError: what the provider, the transport or the store said.
            TimeoutError: when the model took longer than the query gives it.

        """
        request = await self._request_for(scope, plan, extras)
        turn = await self._begin(scope, plan, request)
        answer, measurement, stopped = turn.answer, turn.measurement, scope.abort.signal
        async with (
            _ModelTime(scope.recorder, scope.input.timeout or None) as time,
            aclosing(_Checkpoints(scope, answer, time)) as checkpoints,
            aclosing(plan.client.stream(request)) as stream,
        ):
            with measurement.span, _Heartbeats(scope, turn, self._runtime) as heartbeats:
                async for batch in stream:
                    if answer.finished is not None:
                        # Nothing counts after the end of an answer, but only a stream that was
                        # read to its end lets the connection be used again.
                        continue
                    if stopped.aborted:
                        raise query_stopped()  # its answer was closed by then
                    # What follows may wait for the log or a consumer, not for the provider.
                    heartbeats.listening = False
                    if measurement.first_at is None:
                        measurement.see(batch)
                    out: list[Event] = []
                    answer.feed(batch, out)
                    if answer.finished is not None and answer.failure is None:
                        out.append(self._end(scope, turn, answer.finished))
                        await self._record_end(scope, out, answer=answer, time=time)
                        continue
                    if out:
                        await time.record(out)
                        if self._processor.has_handlers:
                            self._processor.show(out)
                    if answer.failure is not None:
                        raise answer.failure
                    if answer.unsaved_bytes and not checkpoints.started:
                        checkpoints.start(self._clock, self._runtime.checkpoint_seconds)
                    heartbeats.listening = heartbeats.heard = True
        outcome = _outcome(turn)
        # Staged, because the end of the turn may be: it must not be shown before that.
        scope.recorder.stage(measurement.end())
        return outcome

    async def _record_end(
        self, scope: QueryScope, out: list[Event], *, answer: AnswerInterface, time: "_ModelTime"
    ) -> None:
        """Record the end of an answer; one append holds it and the query's, if that must follow."""
        # Handlers and hooks are only told what is in the log.
        is_heard = self._processor.has_handlers or scope.hooks is not None
        scope.is_end_staged = not is_heard and _ends_query(scope, answer)
        if scope.is_end_staged:
            scope.recorder.stage(out)
            return
        await time.record(out)
        if self._processor.has_handlers:
            self._processor.show(out)

    async def _request_for(
        self, scope: QueryScope, plan: ModelPlan, extras: RequestExtras
    ) -> ModelRequest:
        """Make a request, as hooks want it; the log keeps what was said."""
        if scope.fold.context is not None:
            extras = msgspec.structs.replace(extras, context=scope.fold.context.sections())
        hooks, provider = scope.hooks, plan.client.provider
        messages = scope.fold.sent_view(scope.staged_prompt)
        if hooks is None:
            return self._request_of(plan, messages, extras)
        messages = await hooks.transform_messages(messages, provider=provider, model=plan.model)
        request = self._request_of(plan, messages, extras)
        return await hooks.transform_request(request, provider=provider)

    def _request_of(
        self, plan: ModelPlan, messages: tuple[Message, ...], extras: RequestExtras
    ) -> ModelRequest:
        extras = msgspec.structs.replace(extras, model=plan.model)
        request = self._build_request(plan.settings, messages, extras)
        _logger.debug(
            "request to %s/%s: %d messages, %d tools, attempt %d",
            *(plan.client.provider, plan.model),
            *(len(request.messages), len(request.tools), plan.attempt),
        )
        return request

    async def _begin(self, scope: QueryScope, plan: ModelPlan, request: ModelRequest) -> Turn:
        scope.is_end_staged = False
        turn_id = new_turn_id()
        stamp = scope.stamp.of_turn(turn_id)
        begun = TurnBegun(
            session_id=scope.session.session_id,
            query_id=scope.query_id,
            turn_id=turn_id,
            provider=plan.client.provider,
            request=request,
            attempt=plan.attempt,
        )
        answer = self._processor.begin(
            AnswerSource(
                stamp=stamp,
                provider=plan.client.provider,
                model=plan.model,
                limits=plan.settings.limits,
                checkpoint_bytes=self._runtime.checkpoint_bytes,
            )
        )
        scope.turn = turn = Turn(
            provider=plan.client.provider,
            model=plan.model,
            stamp=stamp,
            message_id=new_message_id(),
            answer=answer,
            measurement=scope.measurement.begin_turn(begun, answer),
        )
        started = TurnStarted(
            **stamp(),
            message_id=turn.message_id,
            provider=plan.client.provider,
            model=plan.model,
            attempt=plan.attempt,
        )
        await scope.recorder.record([started])
        return turn

    def _end(self, scope: QueryScope, turn: Turn, finished: StreamFinished) -> TurnEnded:
        provider, model = turn.provider, turn.model
        cost = cost_of_call(finished, self._catalogue, provider=provider, model=model)
        scope.turns += 1
        scope.finish_reason = finished.reason
        scope.add_usage(finished.usage, cost)
        ended = TurnEnded(
            **turn.stamp(),
            message_id=turn.message_id,
            finish=finished.kind,
            finish_reason=finished.reason,
            usage=finished.usage,
            cost=cost,
            context_window=self._catalogue.context_window(provider, model),
            context_tokens=finished.context_tokens,
        )
        turn.measurement.ended = ended
        return ended


def cost_of_call(
    finished: StreamFinished, catalogue: ModelCatalogue, *, provider: str, model: str
) -> Decimal | None:
    """Return what a call cost: what the provider says, or else what its price says."""
    if finished.cost is not None:
        return finished.cost
    return catalogue.cost(provider, model, finished.usage)


def _ends_query(scope: QueryScope, answer: AnswerInterface) -> bool:
    """Whether nothing but the end of the query can follow an answer: words, and nothing asked."""
    finished = answer.finished
    # An answer that must fit a type may have to be given again.
    if finished is None or finished.kind != "stop" or scope.input.output is not None:
        return False
    has_words = any(isinstance(part, TextPart) and part.text for part in answer.parts)
    return has_words and not any(isinstance(part, ToolCallPart) for part in answer.parts)


def _outcome(turn: Turn) -> TurnOutcome:
    finished = turn.answer.finished
    if finished is None:
        raise RequestError(
            ErrorCode.STREAM_INTERRUPTED,
            "the answer ended without a finish reason",
            provider=turn.provider,
        )
    return TurnOutcome(turn=turn, finished=finished)


class _ModelTime:
    """The time that a query gives a model for one answer; without a limit it never ends.

    It stands still while something is recorded: waiting for the log or for a slow consumer is not
    the model's doing.
    """

    def __init__(self, recorder: Recorder, seconds: float | None) -> None:
        self._recorder = recorder
        self._timeout = asyncio.timeout(seconds)
        # Without a limit there is no call in between for each delta.
        self.record = recorder.record if seconds is None else self._record
        """Records events, in time of their own."""

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            await self._recorder.record(())  # raises what the store said, if that is the reason
            raise

    def end(self) -> None:
        """Let the time be over now."""
        # A time in the past: the timeout expires at the next step of the loop.
        self._timeout.reschedule(0)

    async def _record(self, events: Sequence[Event]) -> None:
        clock = asyncio.get_running_loop().time
        left = (self._timeout.when() or 0.0) - clock()
        self._timeout.reschedule(None)
        try:
            await self._recorder.record(events)
        finally:
            if self._timeout.when() is None:  # otherwise it was ended meanwhile
                self._timeout.reschedule(clock() + left)


class _Checkpoints:
    """Saves what streamed so far at regular times, also while the provider is silent.

    A store that fails interrupts the turn: the provider may say nothing more for long.
    """

    def __init__(self, scope: QueryScope, answer: AnswerInterface, time: _ModelTime) -> None:
        self._scope = scope
        self._answer = answer
        self._time = time
        self._task: asyncio.Task[None] | None = None
        self.started = False

    def start(self, clock: Clock, seconds: float) -> None:
        """Save every so many seconds from now on."""
        self.started = True
        self._task = self._scope.session.tasks.start(
            self._save(clock, seconds), name="haptera-checkpoints"
        )

    async def aclose(self) -> None:
        """Save no more."""
        if self._task is not None:
            self._task.cancel()

    async def _save(self, clock: Clock, seconds: float) -> None:
        try:
            while True:
                await clock.sleep(seconds)
                if self._scope.abort.signal.aborted:
                    return
                out: list[Event] = []
                self._answer.checkpoint(out)
                if out:
                    await self._scope.recorder.record(out)
        except StoreError:
            self._time.end()


class _Heartbeats:
    """Shows at regular times that a turn still waits for a provider that says nothing.

    By a timer of the event loop: nothing is called per read, and no task is needed per turn. While
    the log or a slow consumer is waited for, nothing is said of the provider.
    """

    def __init__(self, scope: QueryScope, turn: Turn, runtime: RuntimeSettings) -> None:
        self._scope = scope
        self._turn = turn
        self._seconds = runtime.heartbeat_seconds
        self._silent = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.listening = True
        """Whether the provider is waited for."""
        self.heard = False
        """Whether it said something since the last beat."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _start(self) -> None:
        if self._seconds:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._beat)

    def _beat(self) -> None:
        silent = self.listening and not self.heard
        self._silent = self._silent + self._seconds if silent else 0.0
        self.heard = False
        if self._silent:
            beat = Heartbeat(
                turn_id=self._turn.measurement.turn_id,
                provider=self._turn.provider,
                model=self._turn.model,
                silent_seconds=self._silent,
            )
            self._scope.recorder.show([beat])
        self._start()
