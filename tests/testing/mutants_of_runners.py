"""Turn and query runners with one mistake each."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec

from haptera.kernel.agent_blocks import AgentBlocks
from haptera.kernel.blocks.request_builder import RequestExtras, build_request
from haptera.kernel.blocks.stream_processor.processor import StreamProcessor
from haptera.kernel.query.query import ModelPlan, Query, Runner
from haptera.kernel.turns.turn_runner import TurnOutcome, TurnRunner
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings
from haptera.model.stream_parts import (
    StreamFinished,
)
from haptera.ports.runner import QueryOutcome
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

    async def run(self, query: Query, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        await super().run(query, plan, extras)
        return await super().run(query, plan, extras)


class FreeOfCharge(TurnRunner):
    """Loses the usage."""

    def _end(self, query: Query, turn: Any, finished: StreamFinished) -> Any:
        return super()._end(
            query, turn, msgspec.structs.replace(finished, usage=type(finished.usage)())
        )


class SmoothsErrors(TurnRunner):
    """Takes an answer that breaks off for a complete one."""

    async def run(self, query: Query, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
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
        return await super().run(query, msgspec.structs.replace(plan, client=smooth), extras)


class LeavesStreamsOpen(TurnRunner):
    """Does not close a stream that it leaves."""

    async def run(self, query: Query, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
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
        return await super().run(query, msgspec.structs.replace(plan, client=leaky), extras)


class LateStart(TurnRunner):
    """Asks the client before it says so."""

    async def run(self, query: Query, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        client = plan.client
        view = query.fold.sent_view()
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
        return await super().run(query, msgspec.structs.replace(plan, client=ready), extras)


Wrap = Callable[[Runner, Query], Awaitable[QueryOutcome]]


def _queries(
    run: Wrap | None = None,
    start: Callable[[Runner, Query], Awaitable[None]] | None = None,
) -> Callable[[AgentBlocks], Runner]:
    def make(blocks: AgentBlocks) -> Runner:
        runner = blocks.query_runner

        class Mutant:
            async def start(self, query: Query) -> None:
                await (start(runner, query) if start else runner.start(query))

            async def run(self, query: Query) -> QueryOutcome:
                return await (run(runner, query) if run else runner.run(query))

        return Mutant()

    return make


async def _one_turn_more(runner: Runner, query: Query) -> QueryOutcome:
    await runner.run(query)
    return await runner.run(query)


async def _always_complete(runner: Runner, query: Query) -> QueryOutcome:
    await runner.run(query)
    return QueryOutcome(stop_reason="complete")


async def _no_limit(runner: Runner, query: Query) -> QueryOutcome:
    query.fold.settings = msgspec.structs.replace(
        query.fold.settings, limits=type(query.fold.settings.limits)()
    )
    return await runner.run(query)


async def _frozen_settings(runner: Runner, query: Query) -> QueryOutcome:
    """Read the settings once."""
    kind = type(query.fold)
    settings = query.fold.settings

    class Frozen(kind):  # type: ignore[misc, valid-type]
        settings = property(lambda _: settings_at_start, lambda *_: None)

    settings_at_start = settings
    query.fold.__class__ = Frozen
    try:
        return await runner.run(query)
    finally:
        query.fold.__class__ = kind


async def _unrecorded(runner: Runner, query: Query) -> None:
    """Put the prompt into the conversation without recording it."""
    if query.input.message is not None:
        query.fold.conversation.push(query.input.message)


async def _no_joining(runner: Runner, query: Query) -> QueryOutcome:
    query.session.recorder.waiting = dict  # type: ignore[method-assign]
    return await runner.run(query)


async def _stored_reminders(runner: Runner, query: Query) -> None:
    message = query.input.message
    if message is not None and query.input.reminders:
        parts = (*message.parts, *(TextPart(text=text) for text in query.input.reminders))
        noted = msgspec.structs.replace(message, parts=parts)
        query.input = msgspec.structs.replace(query.input, message=noted)
    await runner.start(query)


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
    "query runner": lambda blocks: blocks.query_runner,
}
"""The block of each suite, as it is."""
