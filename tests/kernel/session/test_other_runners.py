"""A session knows its runner by the port: another one answers, is stopped and fails like ours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from haptera import AgentError, ErrorCode, ProviderError, QueryEnded, RequestError, Settings
from haptera.kernel.blocks.tool_registry.registry import ToolRegistry
from haptera.kernel.query.query import ModelPlan, Query
from haptera.kernel.session.live_session import LiveSession, SessionResources
from haptera.kernel.session.opening import open_session
from haptera.kernel.session.session import QueryHandle, SessionHost
from haptera.kernel.session.session_descriptions import SessionRequest
from haptera.kernel.turns.provider_attempts import ProviderAttempts
from haptera.model.ids import new_message_id, new_part_id, new_query_id, new_turn_id
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryStarted
from haptera.model.log.turns import (
    PartEnded,
    PartStarted,
    RetryScheduled,
    TurnEnded,
    TurnStarted,
)
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart
from haptera.model.settings import ModelStep, RuntimeSettings
from haptera.ports.runner import QueryInput, QueryOutcome
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, ScriptedProvider

Work = Callable[[Query], Awaitable[str]]


class Native:
    """A runner that asks no model of ours: `work` says the answer."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def start(self, query: Query) -> None:
        await query.recorder.record([QueryStarted(**query.stamp(), message=query.input.message)])

    async def run(self, query: Query) -> QueryOutcome:
        stamp = query.stamp.of_turn(new_turn_id())
        message_id, part_id = new_message_id(), new_part_id()
        text = await self._work(query)
        part = TextPart(id=part_id, text=text)
        await query.recorder.record(
            [
                TurnStarted(**stamp(), message_id=message_id, provider="native", model="own"),
                PartStarted(**stamp(), part_id=part_id, part_kind="text"),
                PartEnded(**stamp(), part_id=part_id, part=part),
                TurnEnded(**stamp(), message_id=message_id, finish="stop"),
            ]
        )
        return QueryOutcome(stop_reason="complete")


@asynccontextmanager
async def session_of(
    work: Work, *, clock: FakeClock, settings: Settings
) -> AsyncIterator[LiveSession]:
    runner = Native(work)
    resources = SessionResources(
        host=SessionHost(
            registry=ToolRegistry(),
            clock=clock,
            runtime=RuntimeSettings(),
            drive=lambda session, handle: Query(session, handle).drive(runner),
        ),
        store=MemoryStore(),
    )
    live = await open_session(resources, SessionRequest(owner="ana", settings=settings))
    try:
        yield live
    finally:
        await live.close(force=True)


async def ask(live: LiveSession, text: str = "go") -> QueryHandle:
    query_id = new_query_id()
    message = UserMessage(id=new_message_id(), parts=(TextPart(text=text),), query_id=query_id)
    handle = live.new_handle(QueryInput(query_id=query_id, message=message))
    await live.submit(handle, "queue")
    return handle


async def entries_of(live: LiveSession) -> list[Entry]:
    return list(await live.store.log.read(live.session_id))


async def test_the_answer_of_another_runner_is_kept_and_shown_like_any_other() -> None:
    async def work(query: Query) -> str:
        return "from elsewhere"

    async with session_of(work, clock=FakeClock(), settings=Settings(model="native/own")) as live:
        handle = await ask(live)
        shown: list[str] = []
        while batch := await handle.stream.next_batch():
            shown += [event.kind for event in batch]
        assert handle.result is not None
        assert (handle.result.text, handle.result.stop_reason) == ("from elsewhere", "complete")
        assert [message.text for message in live.fold.messages()] == ["go", "from elsewhere"]
    assert shown[-1] == "query.ended"


async def test_another_runner_is_stopped_by_an_abort_and_its_end_is_recorded_by_the_driver() -> (
    None
):
    reached = asyncio.Event()

    async def work(query: Query) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    async with session_of(work, clock=FakeClock(), settings=Settings(model="native/own")) as live:
        handle = await ask(live)
        await reached.wait()
        handle.abort("enough")
        await handle.wait()
        ended = (await entries_of(live))[-1]
    assert handle.error is not None
    assert handle.error.code is ErrorCode.ABORTED
    assert isinstance(ended, QueryEnded)
    assert ended.stop_reason == "aborted"


async def test_what_another_runner_fails_with_is_typed_and_ends_the_query() -> None:
    async def work(query: Query) -> str:
        raise KeyError("a mistake")

    async with session_of(work, clock=FakeClock(), settings=Settings(model="native/own")) as live:
        handle = await ask(live)
        await handle.wait()
        assert handle.error is not None
        assert (handle.error.code, handle.error.retryable) == (ErrorCode.PROTOCOL, False)


class Attempted:
    """Any work with a model, such as a summary: fails as often as it is told, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.clock = FakeClock()
        self.plans: list[tuple[str, str, int]] = []
        self.noted: list[ErrorCode] = []
        self.discarded: list[ErrorCode] = []
        self._failures = list(failures)
        self._client = ScriptedProvider()
        self._attempts = ProviderAttempts(route=self._route, clock=self.clock, random=self)

    def random(self) -> float:
        return 0.5

    async def _route(self, model: str) -> tuple[ScriptedProvider, str]:
        return self._client, model.partition("/")[2]

    async def attempt(self, plan: ModelPlan) -> str:
        self.plans.append((plan.model, plan.settings.model, plan.attempt))
        if self._failures:
            raise self._failures.pop(0)
        return f"a summary by {plan.model}"

    def note_failure(self, failure: AgentError) -> bool:
        self.noted.append(failure.code)
        return False

    async def discard(self, failure: AgentError) -> None:
        self.discarded.append(failure.code)

    async def __call__(self, query: Query) -> str:
        return await self._attempts.run(query, self)

    async def run(self, settings: Settings) -> tuple[QueryHandle, list[Entry]]:
        async with session_of(self, clock=self.clock, settings=settings) as live:
            handle = await ask(live)
            while not handle.ended:
                sleeping = asyncio.ensure_future(self.clock.until_sleeping())
                ended = asyncio.ensure_future(handle.wait())
                await asyncio.wait({sleeping, ended}, return_when=asyncio.FIRST_COMPLETED)
                sleeping.cancel()
                ended.cancel()
                self.clock.advance(60)
            return handle, await entries_of(live)


OVERLOADED = ProviderError(ErrorCode.OVERLOADED, "later", basis="status")
REFUSED = ProviderError(ErrorCode.AUTH, "not with this key", basis="status")


async def test_work_that_is_no_turn_is_repeated_by_the_same_rules() -> None:
    work = Attempted(OVERLOADED, ConnectionResetError("gone"))
    handle, entries = await work.run(Settings(model="scripted/one"))
    assert handle.result is not None
    assert handle.result.text == "a summary by one"
    assert work.plans == [("one", "scripted/one", attempt) for attempt in (1, 2, 3)]
    scheduled = [entry for entry in entries if isinstance(entry, RetryScheduled)]
    assert [entry.attempt for entry in scheduled] == [1, 2]
    assert work.noted == work.discarded == [ErrorCode.OVERLOADED, ErrorCode.NETWORK]


async def test_work_that_is_no_turn_goes_on_to_the_next_model() -> None:
    work = Attempted(REFUSED)
    settings = Settings(model="scripted/one", fallbacks=(ModelStep(model="scripted/two"),))
    handle, _ = await work.run(settings)
    assert handle.result is not None
    assert handle.result.text == "a summary by two"
    assert work.plans == [("one", "scripted/one", 1), ("two", "scripted/two", 1)]
    assert work.noted == work.discarded == [ErrorCode.AUTH]


@pytest.mark.parametrize("failure", [REFUSED, RequestError(ErrorCode.ABORTED, "stop")])
async def test_work_that_cannot_be_repeated_raises_what_it_failed_with(
    failure: AgentError,
) -> None:
    work = Attempted(failure)
    handle, entries = await work.run(Settings(model="scripted/one"))
    assert handle.error is failure
    assert (work.noted, work.discarded) == ([failure.code], [])
    assert not any(isinstance(entry, RetryScheduled) for entry in entries)
