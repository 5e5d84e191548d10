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
from haptera.kernel.query.progress import NO_SPAN, TurnMeasurement
from haptera.kernel.query.query import ModelPlan, Query, Turn
from haptera.model.errors import ErrorCode, RequestError, StoreError
from haptera.model.events import Event, Heartbeat
from haptera.model.ids import new_message_id, new_turn_id
from haptera.model.log.turns import TurnEnded, TurnStarted
from haptera.model.parts import TextPart, ToolCallPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings
from haptera.model.stream_parts import StreamFinished
from haptera.ports.model_client import ModelCatalogue
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

    async def run(self, query: Query, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
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

    async def run(self, query: Query, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        """Ask once.

        Raises:
            AgentError: what the provider, the transport or the store said.
            TimeoutError: when the model took longer than the query gives it.

        """
        request = await self._request_for(query, plan, extras)
        turn = await self._begin(query, plan, request)
        answer, measurement, stopped = turn.answer, turn.measurement, query.abort.signal
        async with (
            _Timers(query, turn, clock=self._clock, runtime=self._runtime) as timers,
            aclosing(plan.client.stream(request)) as stream,
        ):
            with measurement.span or NO_SPAN:
                async for batch in stream:
                    if answer.finished is not None:
                        # Nothing counts after the end of an answer, but only a stream that was
                        # read to its end lets the connection be used again.
                        continue
                    if stopped.aborted:
                        raise query_stopped()  # its answer was closed by then
                    # What follows may wait for the log or a consumer, not for the provider.
                    timers.listening = False
                    if measurement.first_at is None:
                        measurement.see(batch)
                    out: list[Event] = []
                    answer.feed(batch, out)
                    if answer.finished is not None and answer.failure is None:
                        out.append(self._end(query, turn, answer.finished))
                        await self._record_end(query, turn, out, timers=timers)
                        continue
                    if out:
                        await timers.record(out)
                        if self._processor.has_handlers:
                            self._processor.show(out)
                    if answer.failure is not None:
                        raise answer.failure
                    if answer.unsaved_bytes and timers.saving is None:
                        timers.saving = query.session.tasks.start(
                            timers.save(), name="haptera-checkpoints"
                        )
                    timers.listening = timers.heard = True
        outcome = _outcome(turn)
        # Staged, because the end of the turn may be: it must not be shown before that.
        query.recorder.stage(measurement.end())
        return outcome

    async def _record_end(
        self, query: Query, turn: Turn, out: list[Event], *, timers: "_Timers"
    ) -> None:
        """Record the end of an answer; one append holds it and the query's, if that must follow."""
        # Handlers and hooks are only told what is in the log.
        is_heard = self._processor.has_handlers or query.hooks is not None
        turn.is_end_staged = not is_heard and _ends_query(query, turn.answer)
        if turn.is_end_staged:
            query.recorder.stage(out)
            return
        await timers.record(out)
        if self._processor.has_handlers:
            self._processor.show(out)

    async def _request_for(
        self, query: Query, plan: ModelPlan, extras: RequestExtras
    ) -> ModelRequest:
        """Make a request, as hooks want it; the log keeps what was said."""
        context = () if query.fold.context is None else query.fold.context.sections()
        extras = msgspec.structs.replace(extras, model=plan.model, context=context)
        hooks, provider = query.hooks, plan.client.provider
        messages = query.fold.sent_view(query.staged_prompt)
        if hooks is not None:
            messages = await hooks.transform_messages(messages, provider=provider, model=plan.model)
        request = self._build_request(plan.settings, messages, extras)
        _logger.debug(
            "request to %s/%s: %d messages, %d tools, attempt %d",
            *(provider, plan.model, len(request.messages), len(request.tools), plan.attempt),
        )
        if hooks is not None:
            return await hooks.transform_request(request, provider=provider)
        return request

    async def _begin(self, query: Query, plan: ModelPlan, request: ModelRequest) -> Turn:
        turn_id = new_turn_id()
        stamp = query.stamp.of_turn(turn_id)
        begun = TurnBegun(
            session_id=query.session.session_id,
            query_id=query.query_id,
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
        query.turn = turn = Turn(
            provider=plan.client.provider,
            model=plan.model,
            stamp=stamp,
            message_id=new_message_id(),
            answer=answer,
            measurement=TurnMeasurement(query.measurement, begun, answer),
        )
        started = TurnStarted(
            **stamp(),
            message_id=turn.message_id,
            provider=plan.client.provider,
            model=plan.model,
            attempt=plan.attempt,
        )
        await query.recorder.record([started])
        return turn

    def _end(self, query: Query, turn: Turn, finished: StreamFinished) -> TurnEnded:
        provider, model = turn.provider, turn.model
        cost = cost_of_call(finished, self._catalogue, provider=provider, model=model)
        query.progress.turns += 1
        query.progress.finish_reason = finished.reason
        query.progress.add_usage(finished.usage, cost)
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


def _ends_query(query: Query, answer: AnswerInterface) -> bool:
    """Whether nothing but the end of the query can follow an answer: words, and nothing asked."""
    finished = answer.finished
    # An answer that must fit a type may have to be given again.
    if finished is None or finished.kind != "stop" or query.input.output is not None:
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


class _Timers:
    """What goes on beside one answer by time: the model's limit, checkpoints and heartbeats.

    - The time that a query gives a model stands still while something is recorded: waiting for the
      log or for a slow consumer is not the model's doing. Without a limit it never ends.
    - What streamed so far is saved at regular times, also while the provider is silent. A store
      that fails interrupts the turn: the provider may say nothing more for long.
    - It is shown at regular times that the turn still waits for a provider that says nothing. By a
      timer of the event loop: nothing is called per read, and no task is needed per turn.
    """

    def __init__(self, query: Query, turn: Turn, *, clock: Clock, runtime: RuntimeSettings) -> None:
        seconds = query.input.timeout or None
        self._query = query
        self._turn = turn
        self._clock = clock
        self._runtime = runtime
        self._timeout = asyncio.timeout(seconds)
        self._silent = 0.0
        self._timer: asyncio.TimerHandle | None = None
        # Without a limit there is no call in between for each delta.
        self.record = query.recorder.record if seconds is None else self._record
        """Records events, in time of their own."""
        self.saving: asyncio.Task[None] | None = None
        """What saves at regular times, once there is something to save."""
        self.listening = True
        """Whether the provider is waited for."""
        self.heard = False
        """Whether it said something since the last heartbeat."""

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._next_beat()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.saving is not None:
            self.saving.cancel()
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            # Raises what the store said, if that is the reason.
            await self._query.recorder.record(())
            raise

    async def _record(self, events: Sequence[Event]) -> None:
        clock = asyncio.get_running_loop().time
        left = (self._timeout.when() or 0.0) - clock()
        self._timeout.reschedule(None)
        try:
            await self._query.recorder.record(events)
        finally:
            if self._timeout.when() is None:  # otherwise it was ended meanwhile
                self._timeout.reschedule(clock() + left)

    async def save(self) -> None:
        """Save at regular times from now on."""
        try:
            while True:
                await self._clock.sleep(self._runtime.checkpoint_seconds)
                if self._query.abort.signal.aborted:
                    return
                out: list[Event] = []
                self._turn.answer.checkpoint(out)
                if out:
                    await self._query.recorder.record(out)
        except StoreError:
            # A time in the past: the timeout expires at the next step of the loop.
            self._timeout.reschedule(0)

    def _next_beat(self) -> None:
        if self._runtime.heartbeat_seconds:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._runtime.heartbeat_seconds, self._beat)

    def _beat(self) -> None:
        silent = self.listening and not self.heard
        self._silent = self._silent + self._runtime.heartbeat_seconds if silent else 0.0
        self.heard = False
        if self._silent:
            beat = Heartbeat(
                turn_id=self._turn.measurement.turn_id,
                provider=self._turn.provider,
                model=self._turn.model,
                silent_seconds=self._silent,
            )
            self._query.recorder.show([beat])
        self._next_beat()
