"""Stopping what has not begun: nothing is built or sent, and the caller still hears of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import haptera
import haptera.sync
from haptera import AbortController, AbortSignal, AgentResult, ErrorCode, Event
from haptera.agent.query_stream import QueryStream
from haptera.testing import says
from tests.scripted_agents import failure_of, make_agent, playing, tasks_left


def _aborted() -> AbortSignal:
    controller = AbortController()
    controller.abort("too late")
    return controller.signal


async def test_a_stream_that_is_aborted_before_its_use_never_begins() -> None:
    async with playing([]) as (session, provider):
        stream = session.stream("go")
        stream.abort("changed my mind")
        error = await failure_of(stream.result())
        assert (error.code, "changed my mind" in error.message) == (ErrorCode.ABORTED, True)
        assert await failure_of(stream.result()) is error
        assert (provider.requests, session.messages) == ([], ())


@pytest.mark.parametrize("own", [True, False], ids=["stream.abort", "signal"])
async def test_an_abort_before_the_beginning_comes_back_as_a_result_if_that_is_wanted(
    own: bool,
) -> None:
    def stopped() -> QueryStream[Any]:
        signal = None if own else _aborted()
        stream = session.stream("go", signal=signal, on_abort="return")
        if own:
            stream.abort()
        return stream

    async with playing([]) as (session, _):
        result: AgentResult[Any] = await stopped()
        assert (result.stop_reason, result.text) == ("aborted", "")
        events: list[Event] = [event async for event in stopped()]
        assert events == []


@pytest.mark.parametrize("own", [True, False], ids=["stream.abort", "signal"])
async def test_an_abort_ends_the_wait_for_a_session_that_another_agent_holds(
    own: bool, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'chats.db'}"
    holder, _ = make_agent([], store=store)
    other, provider = make_agent([says("mine")], store=store)
    controller = AbortController()
    async with other:
        async with holder, holder.session("ana"):
            waiting = other.session("ana", busy="wait")
            stream = waiting.stream("go", signal=controller.signal)
            task = asyncio.ensure_future(stream.result())
            for _ in range(50):
                await asyncio.sleep(0)  # noqa: TID251 - let it come to the lease
            assert not task.done()
            await asyncio.to_thread(stream.abort if own else controller.abort, "enough")
            error = await failure_of(task)
            assert (error.code, "enough" in error.message) == (ErrorCode.ABORTED, True)
            assert provider.requests == []
        assert (await waiting.chat("go")).text == "mine"
    assert controller.signal.listener_count == 0
    assert tasks_left() == []


@pytest.mark.parametrize("called", ["run_agent", "run_agent_stream", "sync"])
async def test_a_signal_that_is_aborted_already_wins_over_a_broken_configuration(
    called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "config.toml"
    broken.write_text("model = [")
    monkeypatch.setenv("HAPTERA_MAX_TURNS", "many")
    options: dict[str, Any] = {
        "signal": _aborted(),
        "config_path": broken,
        "model": "unknown/model",
    }
    if called == "run_agent":
        error = await failure_of(haptera.run_agent("go", **options))
    elif called == "run_agent_stream":
        error = await failure_of(haptera.run_agent_stream("go", **options).result())
    else:
        error = await failure_of(asyncio.to_thread(lambda: haptera.sync.run_agent("go", **options)))
    assert (error.code, "too late" in error.message) == (ErrorCode.ABORTED, True)


async def test_a_signal_that_is_aborted_already_lets_no_unknown_option_pass() -> None:
    unknown: dict[str, Any] = {"tempature": 1.0}
    with pytest.raises(TypeError, match="did you mean 'temperature'"):
        await haptera.run_agent("go", signal=_aborted(), **unknown)
