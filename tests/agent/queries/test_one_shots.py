"""Single calls leave nothing behind in memory, unless they rest on an approval."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator, Sequence

import pytest

from haptera import Agent, AgentError, ErrorCode, tool
from haptera.model.ids import SessionId
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamPart
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, says
from tests.scripted_agents import failure_of, make_agent

PROGRAM = """
import asyncio, resource, sys
from haptera import Agent
from haptera.testing import ScriptedProvider, says

class Brief(ScriptedProvider):
    def stream(self, request):
        self.requests.clear()
        self.add(says("ok"))
        return super().stream(request)

def resident():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * resource.getpagesize()

async def main():
    async with Agent("scripted/m", providers=[Brief()], environment={}) as agent:
        for number in range(10):
            await agent.run(f"{number} " + "x" * 1_000_000)
        before = resident()
        for number in range(300):
            await agent.run(f"{number} " + "x" * 1_000_000)
        print((resident() - before) / 1e6)

asyncio.run(main())
"""


@tool(approval="ask")
async def pay() -> str:
    """Pay."""
    return "paid"


async def exists(agent: Agent, session_id: SessionId | None) -> bool:
    try:
        await agent.remote(str(session_id))
    except AgentError as error:
        assert error.code is ErrorCode.NOT_FOUND
        return False
    return True


@pytest.mark.slow
def test_three_hundred_single_calls_of_a_megabyte_stay_within_twenty() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 20


@pytest.mark.parametrize("ends", ["complete", "error", "aborted", "left"])
async def test_the_session_of_a_single_call_is_gone_with_its_result(ends: str) -> None:
    agent, _ = make_agent([says("ok")] if ends != "error" else [])
    async with agent:
        stream = agent.stream("go")
        async with stream:
            if ends == "aborted":
                stream.abort()
            if ends == "left":
                await stream.aclose()
            result, error = None, None
            try:
                result = await stream.result()
            except AgentError as raised:
                error = raised
        session_id = (result or (error and error.result)).session_id  # type: ignore[union-attr]
        assert session_id is not None
        assert not await exists(agent, session_id)


async def test_a_single_call_that_rests_is_kept_until_it_is_answered() -> None:
    agent, _ = make_agent([calls(("pay", {})), says("done")], tools=[pay])
    async with agent:
        result = await agent.run("go")
        assert result.stop_reason == "approval"
        async with agent.session(str(result.session_id), must_exist=True) as session:
            pass
        assert await exists(agent, result.session_id)  # it rests on
        async with agent.session(str(result.session_id), must_exist=True) as session:
            await session.approve(result.pending[0].id)
            assert (await session.resume()).text == "done"
        assert not await exists(agent, result.session_id)


async def test_sessions_that_were_opened_are_kept() -> None:
    agent, _ = make_agent([says("one"), says("two"), says("three")])
    async with agent:
        async with agent.session() as session:
            result = await session.chat("go")
        await agent.run("go")
        assert await exists(agent, result.session_id)


async def test_a_single_call_that_another_session_was_forked_from_is_kept() -> None:
    agent, _ = make_agent([calls(("pay", {})), says("done"), says("on")], tools=[pay])
    async with agent:
        result = await agent.run("go")
        async with agent.session(str(result.session_id)) as session:
            await session.approve(result.pending[0].id)
            await session.resume()
            await (await session.fork(name="branch")).close()
        async with agent.session("branch", must_exist=True) as branch:
            assert (await branch.chat("go on")).text == "on"


async def test_a_store_that_was_handed_in_keeps_single_calls() -> None:
    store = MemoryStore()
    agent, _ = make_agent([says("one")], store=store)
    async with agent:
        result = await agent.run("go")
    assert result.session_id is not None
    assert await store.log.read(result.session_id)


async def test_single_calls_at_the_same_time_take_nothing_from_each_other() -> None:
    class Answering(ScriptedProvider):
        def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
            self.replace_rest([says(request.messages[-1].text)])
            return super().stream(request)

    async with Agent("scripted/m", providers=[Answering()], environment={}) as agent:
        results = await asyncio.gather(*(agent.run(f"go {number}") for number in range(20)))
        assert [result.text for result in results] == [f"go {number}" for number in range(20)]
        assert not any([await exists(agent, result.session_id) for result in results])
        missing = agent.session(str(results[0].session_id), must_exist=True)
        assert (await failure_of(missing.open())).code is ErrorCode.NOT_FOUND
