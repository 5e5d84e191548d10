"""TurnRunner: one request to a model and its answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec

from holdfast.blocks.request_builder import RequestExtras, build_request
from holdfast.blocks.stream_processor.assembly import Assembly
from holdfast.blocks.stream_processor.processor import StreamProcessor, too_much
from holdfast.engine.scopes import QueryScope, refuse_stopped
from holdfast.ports.clock import Clock
from holdfast.ports.model_catalogue import ModelCatalogue
from holdfast.ports.model_client import ModelClient
from holdfast.ports.recorder import Recorder
from holdfast.vocabulary.entries import TurnEnded, TurnStarted
from holdfast.vocabulary.errors import AgentError, ErrorCode, RequestError, StoreError
from holdfast.vocabulary.events import Event
from holdfast.vocabulary.ids import new_message_id, new_turn_id
from holdfast.vocabulary.settings import RuntimeSettings, Settings
from holdfast.vocabulary.stream_parts import FinishKind, StreamFinished, StreamPart


class TurnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to ask, and with what."""

    client: ModelClient
    extras: RequestExtras
    settings: Settings
    attempt: int = 1


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a model finished."""

    finish: FinishKind
    finish_reason: str


class TurnRunner:
    """Runs one request and its answer.

    Owns the order: build, record the start, stream, record what comes. Does not repeat a request
    (ProviderAttempts does), run tools or decide whether to go on (QueryRunner does). A turn that
    fails is left open; whoever catches the error discards or ends it. The time that a query gives
    a model stands still while the log or a slow consumer is waited for.
    """

    def __init__(
        self,
        *,
        processor: StreamProcessor,
        catalogue: ModelCatalogue,
        clock: Clock,
        runtime: RuntimeSettings,
    ) -> None:
        self._processor = processor
        self._catalogue = catalogue
        self._clock = clock
        self._runtime = runtime

    async def run(self, scope: QueryScope, plan: TurnPlan) -> TurnOutcome:
        """Ask once.

        Raises:
            AgentError: what the provider, the transport or the store said.
            TimeoutError: when the model took longer than the query gives it.

        """
        request = build_request(plan.settings, scope.fold.sent_view(), plan.extras)
        assembly = await self._begin(scope, plan)
        ticker: asyncio.Task[None] | None = None
        patience = asyncio.timeout(scope.input.timeout or None)
        record = _recording_in_own_time(scope.recorder, patience)
        try:
            async with patience, aclosing(plan.client.stream(request)) as stream:
                async for batch in stream:
                    if assembly.finished is not None:
                        continue  # nothing counts after the end of an answer
                    refuse_stopped(scope.abort.signal)  # its answer is closed by then
                    out = await self._take(assembly, batch, record)
                    if assembly.finished is not None and assembly.excess is None:
                        out.append(self._end(scope, plan, assembly.finished))
                    if out:
                        await record(out)
                    if assembly.excess is not None:
                        raise too_much(assembly.excess, scope.provider)
                    if ticker is None and assembly.unsaved_bytes:
                        ticker = scope.session.tasks.start(
                            self._save_regularly(scope, assembly, patience),
                            name="holdfast-checkpoints",
                        )
        except TimeoutError:
            if patience.expired():
                await scope.recorder.record(())  # raises what the store said, if it did
            raise
        finally:
            if ticker is not None:
                ticker.cancel()
        return _outcome(assembly.finished, plan.client.provider)

    async def _begin(self, scope: QueryScope, plan: TurnPlan) -> Assembly:
        turn_id = new_turn_id()
        scope.turn_stamp = stamp = scope.stamp.of_turn(turn_id)
        scope.message_id = new_message_id()
        scope.provider, scope.model = plan.client.provider, plan.extras.model
        scope.assembly = None
        started = TurnStarted(
            **stamp(),
            message_id=scope.message_id,
            provider=scope.provider,
            model=scope.model,
            attempt=plan.attempt,
        )
        await scope.recorder.record([started])
        scope.assembly = self._processor.begin(
            stamp=stamp,
            provider=scope.provider,
            model=scope.model,
            limits=plan.settings.limits,
        )
        return scope.assembly

    def _end(self, scope: QueryScope, plan: TurnPlan, finished: StreamFinished) -> TurnEnded:
        cost = finished.cost
        if cost is None:
            cost = self._catalogue.cost(scope.provider, scope.model, finished.usage)
        scope.turns += 1
        scope.finish_reason = finished.reason
        scope.add_usage(finished.usage, cost)
        scope.assembly = None
        stamp = scope.turn_stamp or scope.stamp
        return TurnEnded(
            **stamp(),
            message_id=scope.message_id or new_message_id(),
            finish=finished.kind,
            finish_reason=finished.reason,
            usage=finished.usage,
            cost=cost,
            context_window=self._catalogue.context_window(plan.client.provider, scope.model),
        )

    async def _take(
        self,
        assembly: Assembly,
        batch: Sequence[StreamPart],
        record: Callable[[Sequence[Event]], Awaitable[None]],
    ) -> list[Event]:
        """Return the events of one read; those before a part that cannot be kept are recorded."""
        out: list[Event] = []
        try:
            assembly.feed(batch, out)
        except AgentError:
            await record(out)
            raise
        if assembly.unsaved_bytes >= self._runtime.checkpoint_bytes:
            assembly.checkpoint(out)
        return out

    async def _save_regularly(
        self, scope: QueryScope, assembly: Assembly, patience: asyncio.Timeout
    ) -> None:
        """Save what streamed so far once a second, also while the provider is silent.

        A store that fails interrupts the turn: nobody knows when the provider will say more.
        """
        try:
            while True:
                await self._clock.sleep(self._runtime.checkpoint_seconds)
                if scope.abort.signal.aborted:
                    return
                out: list[Event] = []
                assembly.checkpoint(out)
                if out:
                    await scope.recorder.record(out)
        except StoreError:
            patience.reschedule(0)


def _outcome(finished: StreamFinished | None, provider: str) -> TurnOutcome:
    if finished is None:
        raise RequestError(
            ErrorCode.STREAM_INTERRUPTED, "the answer ended without saying so", provider=provider
        )
    return TurnOutcome(finish=finished.kind, finish_reason=finished.reason)


def _recording_in_own_time(
    recorder: Recorder, patience: asyncio.Timeout
) -> Callable[[Sequence[Event]], Awaitable[None]]:
    """Return what records events while the model's time, if it is limited, stands still."""
    if patience.when() is None:
        return recorder.record
    clock = asyncio.get_running_loop().time

    async def record(events: Sequence[Event]) -> None:
        left = (patience.when() or 0.0) - clock()
        patience.reschedule(None)
        try:
            await recorder.record(events)
        finally:
            if patience.when() is None:  # nobody else has ended the model's time meanwhile
                patience.reschedule(clock() + left)

    return record
