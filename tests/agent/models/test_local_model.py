"""An agent on a real small model on this machine: stream, stop, structure, overflow, crash."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from haptera import Agent, AgentError, ErrorCode, RetrySettings, TextDelta
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.log.compactions import Compaction
from haptera.providers.local.client import LocalModelClient
from haptera.providers.local.model_process import ModelProcessPool
from tests.fixtures_local import CONTEXT
from tests.providers.local.asking import process_of

pytestmark = pytest.mark.timeout(180)

_NO_RETRIES = RetrySettings(max_retries=0, interruption_retries=0)


@pytest.fixture
async def agent(local_client: LocalModelClient) -> AsyncIterator[Agent]:
    """An agent whose model runs already."""
    async with Agent(
        "local/smollm2",
        providers=[local_client],
        temperature=0.0,
        max_tokens=24,
        retry=_NO_RETRIES,
        environment={},
    ) as agent:
        yield agent


async def test_a_real_answer_streams_and_is_kept(agent: Agent) -> None:
    async with agent.session() as session:
        pieces = [text async for text in session.stream("Say hello to Ana.").text()]
        assert len(pieces) > 1
        assert session.messages[-1].text == "".join(pieces)


async def test_a_real_answer_can_be_stopped_and_the_conversation_goes_on(agent: Agent) -> None:
    async with agent.session() as session:
        await session.configure(max_tokens=400)
        with pytest.raises(AgentError) as stopped:
            async for event in session.stream("Tell me a long story about a lighthouse."):
                if isinstance(event, TextDelta):
                    session.abort()
        assert stopped.value.code is ErrorCode.ABORTED
        assert stopped.value.result is not None
        assert session.messages[-1].text == stopped.value.result.text != ""
        await session.configure(max_tokens=8)
        assert (await session.chat("Thank you.")).text


async def test_a_real_model_answers_in_the_type_that_was_asked_for(agent: Agent) -> None:
    class City(msgspec.Struct):
        name: str
        is_capital: bool

    async with agent.session() as session:
        await session.configure(max_tokens=80)
        result = await session.chat("Paris is a city. Describe it as JSON.", output_type=City)
    assert isinstance(result.output, City)


async def test_a_prompt_that_does_not_fit_says_so(agent: Agent) -> None:
    with pytest.raises(AgentError) as refused:
        await agent.run("word " * 2_000)
    assert refused.value.code is ErrorCode.CONTEXT_LENGTH


async def test_two_sessions_share_one_model_process(
    agent: Agent, local_client: LocalModelClient
) -> None:
    async with agent.session() as first, agent.session() as second:
        await first.chat("Say nothing.")
        before = process_of(local_client)
        answers = await asyncio.gather(first.chat("Say one."), second.chat("Say two."))
        assert all(answer.text for answer in answers)
        assert process_of(local_client) == before is not None


async def test_a_model_process_that_dies_in_the_middle_interrupts_and_comes_back(
    model_folder: Path,
) -> None:
    client = LocalModelClient(folder=model_folder, pool=ModelProcessPool(), context=512)
    async with (
        Agent(
            "local/smollm2", providers=[client], max_tokens=300, retry=_NO_RETRIES, environment={}
        ) as agent,
        agent.session() as session,
    ):
        with pytest.raises(AgentError) as broken:
            async for event in session.stream("Tell me a long story."):
                if isinstance(event, TextDelta):
                    os.kill(process_of(client) or 0, signal.SIGKILL)
        assert broken.value.code is ErrorCode.STREAM_INTERRUPTED
        assert session.messages[-1].text != ""
        await session.configure(max_tokens=8)
        assert (await session.chat("Go on.")).text
    await client.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("turns", "window"),
    [
        (8, 256),
        pytest.param(15, CONTEXT, marks=pytest.mark.sweep),
        pytest.param(60, CONTEXT, marks=pytest.mark.soak),
    ],
)
async def test_a_real_conversation_that_would_not_fit_goes_on(
    turns: int, window: int, local_client: LocalModelClient
) -> None:
    """Its summaries are often no good; then the end of the conversation is sent, with a note."""
    async with (
        Agent(
            "local/smollm2",
            providers=[local_client],
            max_tokens=6,
            temperature=0.0,
            environment={},
            compaction=CompactionSettings(context_window=window),
        ) as agent,
        agent.session() as session,
    ):
        done: list[Compaction] = []
        session.on(Compaction, done.append)
        for number in range(turns):
            answer = await session.chat(
                f"The word number {number} is {'very ' * 6}long. Repeat it."
            )
            assert answer.stop_reason in {"complete", "max_tokens"}
        prompts = [item for item in session.messages if "The word number" in item.text]
        assert len(prompts) == turns, "nothing is lost"
    assert done
    assert {item.strategy for item in done} <= {"summarise", "tail", "none"}
    assert all(item.rejected for item in done if item.strategy != "summarise")
