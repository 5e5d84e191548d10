"""Turns of a native session over a scripted child: their order, their times, and being left."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from haptera.kernel.session.native_turns import TurnDriver, TurnTimes
from haptera.model.errors import AgentError, ErrorCode, RequestError, SessionError
from haptera.model.native_messages import NativeMessage, NativeResult
from tests.providers.claude_agent.children import (
    USER,
    Child,
    init,
    one_step,
    open_session,
    result,
    text,
    words,
)


async def run(driver: TurnDriver, prompt: str) -> list[NativeMessage]:
    return [message async for batch in driver.turn(words(prompt)) for message in batch]


def end_of(messages: list[NativeMessage]) -> str:
    end = messages[-1]
    assert isinstance(end, NativeResult)
    return end.text


async def test_turns_run_in_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    steps = [step for n in range(3) for step in (USER, init(), result(f"answer {n}"))]
    driver = TurnDriver(await open_session(Child(tmp_path, steps)))
    turns = await asyncio.gather(*(run(driver, f"prompt {n}") for n in range(3)))
    assert [end_of(each) for each in turns] == ["answer 0", "answer 1", "answer 2"]
    await driver.close(within=0)


async def test_more_turns_than_may_wait_are_refused(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, init(), {"gate": "never"}])
    driver = TurnDriver(await open_session(child), capacity=2)
    running = [asyncio.ensure_future(run(driver, str(n))) for n in range(3)]
    await child.reached("never")
    with pytest.raises(SessionError) as caught:
        driver.turn(words("one too many"))
    assert caught.value.code is ErrorCode.BUSY
    await driver.close(within=0)
    await asyncio.wait(running)
    assert all(isinstance(each.exception(), AgentError) for each in running)


async def test_a_session_is_used_by_turns_or_by_send_and_stream_but_not_by_both(
    tmp_path: Path,
) -> None:
    driver = TurnDriver(await open_session(Child(tmp_path, [USER, init(), result("one")])))
    await run(driver, "prompt")
    for use in (driver.stream, lambda: asyncio.ensure_future(driver.send(words("raw")))):
        with pytest.raises(SessionError) as caught:
            used = use()
            await used  # type: ignore[misc]  # the first one raises before it is awaited
        assert caught.value.code is ErrorCode.STREAM_BUSY
    await driver.close(within=0)


async def test_a_turn_that_was_left_is_interrupted_and_the_next_one_is_clean(
    tmp_path: Path,
) -> None:
    cut = result("cut", subtype="error_during_execution", is_error=True)["emit"]
    steps = [USER, init(), *text("early"), USER, *text("Two", "msg_2"), result("two")]
    child = Child(tmp_path, steps, on_interrupt=[cut])
    driver = TurnDriver(await open_session(child))
    async with aclosing(driver.turn(words("1"))) as turn:
        await anext(turn)
    assert end_of(await run(driver, "2")) == "two"
    assert child.of("control").count("interrupt") == 1
    await driver.close(within=0)


async def test_a_send_that_takes_too_long_fails_only_its_own_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await open_session(Child(tmp_path, [USER, init(), result("two")]))
    driver = TurnDriver(session, times=TurnTimes(send=0.05))
    send = session.connection.send

    async def stuck(_message: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(session.connection, "send", stuck)
    with pytest.raises(RequestError) as caught:
        await run(driver, "1")
    assert caught.value.code is ErrorCode.TIMEOUT
    monkeypatch.setattr(session.connection, "send", send)
    assert end_of(await run(driver, "2")) == "two"
    await driver.close(within=0)


async def test_a_result_that_takes_too_long_ends_the_session_and_the_turns_that_wait(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, [USER, init(), {"gate": "never"}])
    session = await open_session(child)
    driver = TurnDriver(session, times=TurnTimes(result=0.3))
    first, second = (asyncio.ensure_future(run(driver, str(n))) for n in range(2))
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [getattr(each, "code", None) for each in outcomes] == [ErrorCode.TIMEOUT] * 2
    assert not driver.usable
    await driver.close(within=0)
    assert not session.connection.process.running


async def test_what_a_timeout_says_is_known_by_its_code_and_it_happens_once(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, [USER, init(), {"gate": "never"}])
    session = await open_session(child)
    driver = TurnDriver(session, times=TurnTimes(result=0.2))
    turns = [asyncio.ensure_future(run(driver, str(n))) for n in range(4)]
    outcomes = await asyncio.gather(*turns, return_exceptions=True)
    assert len({id(each) for each in outcomes}) == 1  # one failure, shared
    with pytest.raises(RequestError) as caught:
        driver.turn(words("later"))
    assert caught.value is outcomes[0]
    await driver.close(within=0)


@pytest.mark.slow
async def test_a_consumer_that_is_slow_does_not_use_up_the_time_for_the_result(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, [USER, init(), *text("One"), {"gate": "go"}, result("one")])
    driver = TurnDriver(await open_session(child), times=TurnTimes(result=1.0))
    loop = asyncio.get_running_loop()
    async with aclosing(driver.turn(words("1"))) as turn:
        await anext(turn)
        later = loop.time() + 1.1
        pause: asyncio.Future[None] = loop.create_future()
        loop.call_at(later, pause.set_result, None)
        await pause
        child.open_gate("go")
        rest = [message async for batch in turn for message in batch]
    assert end_of(rest) == "one"
    await driver.close(within=0)


async def test_a_turn_that_cannot_be_ended_ends_the_session(tmp_path: Path) -> None:
    child = Child(tmp_path, [USER, init(), *text("early"), {"die": 1}])
    session = await open_session(child)
    driver = TurnDriver(session)
    async with aclosing(driver.turn(words("1"))) as turn:
        await anext(turn)
    with pytest.raises(AgentError):
        await run(driver, "2")
    await one_step()
    await driver.close(within=0)
