"""A port of this machine that refuses: the first attempt fails at once, a later one is repeated."""

import socket
from typing import Any

import pytest

from haptera import Agent, ErrorCode, RequestError, RetryScheduled, RetrySettings, tool
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.clocks import AutoClock
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import events_of, failure_of, playing

ABSENT = RequestError(ErrorCode.NETWORK, "refused", basis="type", refused_locally=True)
AWAY = RequestError(ErrorCode.NETWORK, "refused", basis="type")
STEADY = RetrySettings(max_retries=2, jitter=0.0)


def free_port(family: socket.AddressFamily, host: str) -> int:
    with socket.socket(family) as free:
        free.bind((host, 0))
        port: int = free.getsockname()[1]
    return port


def agent_at(url: str, **options: Any) -> Agent:
    return Agent("compatible/m", base_url=url, environment={}, clock=AutoClock(), **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.9.10", "[::1]"])
async def test_a_port_of_this_machine_that_refuses_is_not_waited_for(host: str) -> None:
    is_six = host.startswith("[")
    port = free_port(*((socket.AF_INET6, "::1") if is_six else (socket.AF_INET, "127.0.0.1")))
    clock = AutoClock()
    agent = Agent("compatible/m", base_url=f"http://{host}:{port}/v1", environment={}, clock=clock)
    async with agent, agent.session() as session:
        error = await failure_of(session.chat("go"))
        assert (error.code, error.refused_locally) == (ErrorCode.NETWORK, True)
        assert f"{host}:{port} could not be reached" in error.message
        assert not [item for item in await events_of(session) if isinstance(item, RetryScheduled)]
    assert clock.sleeps == []


async def test_a_server_elsewhere_is_waited_for() -> None:
    async with playing([AWAY, says("hello")], clock=AutoClock(), retry=STEADY) as (session, _):
        assert (await session.chat("go")).text == "hello"


async def test_the_next_model_of_a_plan_is_asked_at_once() -> None:
    other = ScriptedProvider([says("from afar")], provider="other")
    url = f"http://127.0.0.1:{free_port(socket.AF_INET, '127.0.0.1')}/v1"
    async with agent_at(url, providers=[other], fallbacks=["other/m"]) as agent:
        assert (await agent.run("go")).text == "from afar"


@tool
async def look() -> str:
    """Look around."""
    return "nothing"


async def test_a_server_that_has_answered_in_this_query_is_waited_for() -> None:
    script: list[Step] = [calls(("look", {})), ABSENT, ABSENT, says("back again")]
    options = {"clock": AutoClock(), "retry": STEADY, "tools": [look]}
    async with playing(script, **options) as (session, _):
        assert (await session.chat("go")).text == "back again"


async def test_a_server_that_goes_away_between_two_attempts_is_waited_for() -> None:
    script: list[Step] = [AWAY, ABSENT, says("there")]
    async with playing(script, clock=AutoClock(), retry=STEADY) as (session, _):
        assert (await session.chat("go")).text == "there"
