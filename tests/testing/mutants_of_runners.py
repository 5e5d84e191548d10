"""Turn and query runners with one mistake each."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec

from haptera.kernel.blocks.request_builder import RequestExtras, build_request
from haptera.kernel.blocks.stream_processor.processor import StreamProcessor
from haptera.kernel.engine.agent_blocks import BlockInputs, join_blocks
from haptera.kernel.engine.query_scope import ModelPlan, QueryScope
from haptera.kernel.engine.turn_runner import TurnOutcome, TurnRunner
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings
from haptera.model.stream_parts import (
    StreamFinished,
)
from haptera.ports.runner import QueryOutcome, Runner
from haptera.testing import AutoClock, FakeClock
from haptera.testing.contracts import (
    query_runner_contract,
    turn_runner_contract,
)
from haptera.testing.contracts.samples import UnknownModels
from tests.testing.mutants_of_answers import forgets_reminders


def _turns(kind: type[TurnRunner] = TurnRunner, **changed: Any) -> Callable[[], TurnRunner]:
    parts: dict[str, Any] = {
        "request_builder": build_request,
        "stream_processor": StreamProcessor(clock=FakeClock()),
        "catalogue": UnknownModels(),
        "clock": AutoClock(),
        "runtime": RuntimeSettings(),
    }
    return lambda: kind(**parts | changed)


class AsksTwice(TurnRunner):
    """Makes each request twice."""

    async def run(self, scope: QueryScope, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        await super().run(scope, plan, extras)
        return await super().run(scope, plan, extras)


class FreeOfCharge(TurnRunner):
    """Loses the usage."""

    def _end(self, scope: QueryScope, turn: Any, finished: StreamFinished) -> Any:
        return super()._end(
            scope, turn, msgspec.structs.replace(finished, usage=type(finished.usage)())
        )


class SmoothsErrors(TurnRunner):
    """Takes an answer that breaks off for a complete one."""

    async def run(self, scope: QueryScope, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        client = plan.client

        class Smooth:
            provider = client.provider

            async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
                try:
                    async for batch in client.stream(request):
                        yield batch
                except Exception as error:  # noqa: BLE001 - the mistake of this mutant
                    del error
                yield [StreamFinished(kind="stop")]

        smooth: Any = Smooth()
        return await super().run(scope, msgspec.structs.replace(plan, client=smooth), extras)


class LeavesStreamsOpen(TurnRunner):
    """Does not close a stream that it leaves."""

    async def run(self, scope: QueryScope, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        client, left = plan.client, self.__dict__.setdefault("left", [])

        class Leaky:
            provider = client.provider

            async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
                source = client.stream(request)
                left.append(source)
                while True:
                    try:
                        batch = await asyncio.shield(asyncio.ensure_future(anext(source)))
                    except StopAsyncIteration:
                        return
                    yield batch

        leaky: Any = Leaky()
        return await super().run(scope, msgspec.structs.replace(plan, client=leaky), extras)


class LateStart(TurnRunner):
    """Asks the client before it says so."""

    async def run(self, scope: QueryScope, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        client = plan.client
        view = scope.fold.sent_view()
        request = self._build_request(
            plan.settings, view, msgspec.structs.replace(extras, model=plan.model)
        )
        batches = [batch async for batch in client.stream(request)]

        class Ready:
            provider = client.provider

            async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
                for batch in batches:
                    yield batch

        ready: Any = Ready()
        return await super().run(scope, msgspec.structs.replace(plan, client=ready), extras)


Wrap = Callable[[Runner[QueryScope], QueryScope], Awaitable[QueryOutcome]]


def _queries(
    change: Callable[[BlockInputs], BlockInputs] = lambda inputs: inputs,
    run: Wrap | None = None,
    start: Callable[[Runner[QueryScope], QueryScope], Awaitable[None]] | None = None,
) -> Callable[[BlockInputs], Runner[QueryScope]]:
    def make(inputs: BlockInputs) -> Runner[QueryScope]:
        runner = join_blocks(change(inputs)).query_runner

        class Mutant:
            async def start(self, scope: QueryScope) -> None:
                await (start(runner, scope) if start else runner.start(scope))

            async def run(self, scope: QueryScope) -> QueryOutcome:
                return await (run(runner, scope) if run else runner.run(scope))

        return Mutant()

    return make


async def _one_turn_more(runner: Runner[QueryScope], scope: QueryScope) -> QueryOutcome:
    await runner.run(scope)
    return await runner.run(scope)


async def _always_complete(runner: Runner[QueryScope], scope: QueryScope) -> QueryOutcome:
    await runner.run(scope)
    return QueryOutcome(stop_reason="complete")


async def _no_limit(runner: Runner[QueryScope], scope: QueryScope) -> QueryOutcome:
    scope.fold.settings = msgspec.structs.replace(
        scope.fold.settings, limits=type(scope.fold.settings.limits)()
    )
    return await runner.run(scope)


async def _frozen_settings(runner: Runner[QueryScope], scope: QueryScope) -> QueryOutcome:
    """Read the settings once."""
    kind = type(scope.fold)
    settings = scope.fold.settings

    class Frozen(kind):  # type: ignore[misc, valid-type]
        settings = property(lambda _: settings_at_start, lambda *_: None)

    settings_at_start = settings
    scope.fold.__class__ = Frozen
    try:
        return await runner.run(scope)
    finally:
        scope.fold.__class__ = kind


async def _unrecorded(runner: Runner[QueryScope], scope: QueryScope) -> None:
    """Put the prompt into the conversation without recording it."""
    if scope.input.message is not None:
        scope.fold.conversation.push(scope.input.message)


async def _no_joining(runner: Runner[QueryScope], scope: QueryScope) -> QueryOutcome:
    session = msgspec.structs.replace(scope.session, waiting=dict)
    scope.session = session
    return await runner.run(scope)


async def _stored_reminders(runner: Runner[QueryScope], scope: QueryScope) -> None:
    message = scope.input.message
    if message is not None and scope.input.reminders:
        parts = (*message.parts, *(TextPart(text=text) for text in scope.input.reminders))
        noted = msgspec.structs.replace(message, parts=parts)
        scope.input = msgspec.structs.replace(scope.input, message=noted)
    await runner.start(scope)


MUTANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "turn runner": (
        turn_runner_contract,
        {
            kind.__name__: _turns(kind)
            for kind in (AsksTwice, FreeOfCharge, SmoothsErrors, LeavesStreamsOpen, LateStart)
        }
        | {"without reminders": _turns(request_builder=forgets_reminders)},
    ),
    "query runner": (
        query_runner_contract,
        {
            "one turn more": _queries(run=_one_turn_more),
            "always complete": _queries(run=_always_complete),
            "no limit": _queries(run=_no_limit),
            "frozen settings": _queries(run=_frozen_settings),
            "unrecorded prompt": _queries(start=_unrecorded),
            "no joining": _queries(run=_no_joining),
            "stored reminders": _queries(start=_stored_reminders),
        },
    ),
}
"""The suite of each block, and its mutants by name."""

BLOCKS: dict[str, Any] = {
    "turn runner": _turns(),
    "query runner": lambda inputs: join_blocks(inputs).query_runner,
}
"""The block of each suite, as it is."""
