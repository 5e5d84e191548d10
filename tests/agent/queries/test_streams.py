"""Streams: lazy, one consumer, and closed at once when they are left, however that happens."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable

import pytest

from haptera import (
    AbortController,
    AbortSignal,
    Agent,
    ErrorCode,
    RetrySettings,
    SessionError,
    TextDelta,
)
from haptera.model.log.turns import TurnStarted
from haptera.model.settings import RuntimeSettings
from haptera.testing import EventRecorder, Gate, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, make_agent, playing, tasks_left


def endless(gate: Gate | None = None) -> list[Step]:
    """Script an answer that begins and then is silent."""
    return [[*says("so far")[:3], gate or Gate()]]


async def turn_the_loop(times: int = 30) -> None:
    """Let every task that is ready run, a few times over."""
    for _ in range(times):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop


async def by_break(agent: Agent) -> None:
    async for event in agent.stream("go"):
        if isinstance(event, TextDelta):
            break


async def by_exception(agent: Agent) -> None:
    with pytest.raises(ZeroDivisionError):
        async for event in agent.stream("go"):
            if isinstance(event, TextDelta):
                raise ZeroDivisionError


async def by_leaving_the_block(agent: Agent) -> None:
    async with agent.stream("go") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break


async def by_dropping_it(agent: Agent) -> None:
    events = aiter(agent.stream("go"))
    while not isinstance(await anext(events), TextDelta):
        pass
    del events


async def by_taking_three(agent: Agent) -> None:
    assert len([event async for event in agent.stream("go").take(3)]) == 3


async def by_reading_a_text(agent: Agent) -> None:
    async for _ in agent.stream("go").text():
        break


async def by_closing(agent: Agent) -> None:
    stream = agent.stream("go")
    await anext(aiter(stream))
    await stream.aclose()


LEAVING = [
    by_break,
    by_exception,
    by_leaving_the_block,
    by_dropping_it,
    by_taking_three,
    by_reading_a_text,
    by_closing,
]


@pytest.mark.slow
@pytest.mark.parametrize("leave", LEAVING)
async def test_leaving_a_stream_closes_the_provider_s_and_leaves_no_task(
    leave: Callable[[Agent], Awaitable[None]],
) -> None:
    agent, provider = make_agent(endless())
    async with agent:
        await leave(agent)
        gc.collect()
        await turn_the_loop()
        assert provider.open_streams == 0
        assert tasks_left() == []


async def test_leaving_the_block_early_has_stopped_the_query_by_the_next_line() -> None:
    async with playing(endless()) as (session, provider):
        async with session.stream("go") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
        assert provider.open_streams == 0
        assert session.messages[-1].text == "so far"


async def test_nothing_is_sent_before_the_first_use() -> None:
    async with playing([]) as (session, provider):
        stream = session.stream("go")
        assert (stream.phase, provider.requests, session.messages) == ("idle", [], ())


async def test_a_stream_that_was_left_before_it_was_used_never_starts() -> None:
    async with playing([]) as (session, provider):
        stream = session.stream("go")
        await stream.aclose()
        error = await failure_of(stream.result())
        assert (error.code, provider.requests) == (ErrorCode.CLOSED, [])


async def test_the_phase_of_a_stream_can_be_seen() -> None:
    async with playing([says("fine")]) as (session, _):
        stream = session.stream("go")
        before = stream.phase
        during = {stream.phase async for _ in stream}
        assert (before, during <= {"connecting", "connected", "closed"}) == ("idle", True)
        assert stream.phase == "closed"


async def test_a_second_consumer_is_refused() -> None:
    async with playing([says("fine")]) as (session, _):
        stream = session.stream("go")
        events = aiter(stream)
        for consume in (stream.text, stream.batches, lambda: stream.take(1), stream.__aiter__):
            with pytest.raises(SessionError) as caught:
                consume()
            assert caught.value.code is ErrorCode.STREAM_BUSY
        assert [event async for event in events] != []


async def test_the_result_can_be_asked_for_after_iterating_and_again() -> None:
    async with playing([says("fine")]) as (session, _):
        stream = session.stream("go")
        texts = [text async for text in stream.text()]
        first = await stream.result()
        assert (texts, first.text, await stream.result()) == (["fine"], "fine", first)


async def test_taking_nothing_starts_nothing() -> None:
    async with playing([]) as (session, provider):
        assert [event async for event in session.stream("go").take(0)] == []
        assert provider.requests == []


async def test_taking_more_than_there_is_gives_everything() -> None:
    async with playing([says("fine")]) as (session, _):
        kinds = [event.kind async for event in session.stream("go").take(1000)]
        assert kinds[-1] == "query.ended"


async def test_batches_hold_the_same_events() -> None:
    async with playing([says("a", "b")] * 2) as (session, _):
        one = [event.kind async for event in session.stream("go")]
        many = [event.kind async for batch in session.stream("go").batches() for event in batch]
        assert one == many


async def test_an_error_comes_after_the_last_event_and_once() -> None:
    async with playing([[*says("half")[:3], ConnectionResetError("gone")]]) as (session, _):
        await session.configure(retry=RetrySettings(max_retries=0))
        recorder = EventRecorder()
        with pytest.raises(Exception, match="gone"):
            async for event in session.stream("go"):
                recorder(event)
        assert (len(recorder.ends), recorder.kinds[-1]) == (1, "query.ended")
        assert recorder.ends[0].error is not None


async def test_a_consumer_that_does_not_pull_holds_the_provider_back() -> None:
    steps: list[Step] = [[[part] for part in says(*"abcdefghij")]]
    async with playing(steps, runtime=RuntimeSettings(buffer_size=2)) as (session, provider):
        events = aiter(session.stream("go"))
        while not isinstance(await anext(events), TurnStarted):
            pass
        await turn_the_loop()
        assert provider.open_streams == 1
        text = "".join([e.text async for e in events if isinstance(e, TextDelta)])
        assert text == "abcdefghij"


async def test_a_handler_hears_what_a_stream_shows() -> None:
    async with playing([says("a", "b"), says("c")]) as (session, _):
        heard: list[str] = []
        leave = session.on(TextDelta, lambda event: heard.append(event.text))
        await session.chat("go")
        leave()
        await session.chat("again")
        assert heard == ["a", "b"]


async def test_an_async_handler_that_falls_behind_holds_the_provider_back_and_misses_nothing() -> (
    None
):
    steps: list[Step] = [[[part] for part in says(*"abcdefghij")]]
    async with playing(steps, runtime=RuntimeSettings(buffer_size=2)) as (session, provider):
        heard: list[str] = []
        go_on = asyncio.Event()

        async def slow(event: TextDelta) -> None:
            await go_on.wait()
            heard.append(event.text)

        session.on(TextDelta, slow)
        answer = asyncio.ensure_future(session.chat("go"))
        await turn_the_loop(200)
        assert (answer.done(), provider.open_streams) == (False, 1)
        go_on.set()
        assert (await answer).text == "abcdefghij"
        await turn_the_loop()
        assert "".join(heard) == "abcdefghij"


async def test_an_async_handler_may_wait_for_the_answer_to_a_prompt_of_its_own() -> None:
    steps: list[Step] = [[[part] for part in says(*"abcdefghij")], says("more")]
    async with playing(steps, runtime=RuntimeSettings(buffer_size=1)) as (session, _):
        answers: asyncio.Queue[str] = asyncio.Queue()

        async def ask(event: TextDelta) -> None:
            if event.text == "a":
                answers.put_nowait((await session.chat("and?")).text)

        session.on(TextDelta, ask)
        assert (await session.chat("go")).text == "abcdefghij"
        assert await answers.get() == "more"


async def test_a_handler_may_close_the_session() -> None:
    agent, _ = make_agent([says("a")], runtime=RuntimeSettings(close_drain_seconds=0.01))
    async with agent:
        session = agent.session()
        await session.open()
        closing = asyncio.Event()

        async def close(_event: TextDelta) -> None:
            closing.set()
            await session.close()

        session.on(TextDelta, close)
        await session.chat("go")
        await closing.wait()
        await session.close()
        assert session.closed
        assert (await failure_of(session.chat("more"))).code is ErrorCode.CLOSED


# Signals.


async def test_a_signal_that_expires_aborts() -> None:
    async with playing(endless()) as (session, _):
        error = await failure_of(session.chat("go", signal=AbortSignal.timeout(0.5)))
        assert (error.code, "timed out" in error.message) == (ErrorCode.ABORTED, True)
        assert error.result is not None
        assert error.result.text == "so far"


async def test_the_first_of_several_signals_aborts_and_says_why() -> None:
    controller = AbortController()
    gate = Gate()
    async with playing(endless(gate)) as (session, _):
        signal = AbortSignal.any(AbortSignal.timeout(3600), controller.signal)
        asking = asyncio.ensure_future(session.chat("go", signal=signal))
        await gate.reached.wait()
        controller.abort("the user left")
        assert "the user left" in (await failure_of(asking)).message


async def test_a_merged_signal_keeps_its_sources_alive() -> None:
    merged = AbortSignal.any(AbortSignal.timeout(0.001))
    gc.collect()
    aborted = asyncio.Event()
    merged.add_listener(aborted.set)
    await aborted.wait()
    assert merged.aborted
    assert merged.reason == "timed out after 0.001 s"


async def test_a_merged_signal_leaves_nothing_on_its_sources() -> None:
    controller = AbortController()
    merged = AbortSignal.any(controller.signal)
    assert controller.signal.listener_count == 1
    del merged
    gc.collect()
    assert controller.signal.listener_count == 0


async def test_a_merged_signal_of_an_aborted_one_is_aborted() -> None:
    controller = AbortController()
    controller.abort("before")
    merged = AbortSignal.any(AbortController().signal, controller.signal)
    assert (merged.aborted, merged.reason) == (True, "before")


async def test_a_listener_is_called_once_and_not_after_it_left() -> None:
    controller, heard = AbortController(), list[str]()
    controller.signal.add_listener(lambda: heard.append("stays"))
    leave = controller.signal.add_listener(lambda: heard.append("left"))
    leave()
    leave()
    controller.abort("first")
    controller.abort("second")
    controller.signal.add_listener(lambda: heard.append("late"))
    assert (heard, controller.signal.reason) == (["stays", "late"], "first")


def test_a_signal_can_be_aborted_from_any_thread_and_without_a_loop() -> None:
    controller, heard = AbortController(), list[int]()
    for _ in range(20):
        controller.signal.add_listener(lambda: heard.append(1))
    threads = [threading.Thread(target=controller.abort) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 20
    expired = threading.Event()
    signal = AbortSignal.timeout(0.001)
    signal.add_listener(expired.set)
    assert expired.wait(10)


async def test_the_signal_of_many_queries_holds_nothing_of_them() -> None:
    controller = AbortController()
    async with playing([says("a")] * 5) as (session, _):
        for _ in range(5):
            await session.chat("go", signal=controller.signal)
            assert controller.signal.listener_count == 0


async def test_a_task_that_is_cancelled_twice_leaves_no_listener() -> None:
    controller = AbortController()
    gate = Gate()
    async with playing(endless(gate)) as (session, _):
        asking = asyncio.ensure_future(session.chat("go", signal=controller.signal))
        await gate.reached.wait()
        asking.cancel()
        await asyncio.wait([asking], timeout=0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert controller.signal.listener_count == 0
