"""An agent that speaks Anthropic Messages with a real server: llama.cpp and a small model."""

import pytest

from haptera import Agent, AgentError, ErrorCode, TextDelta

pytestmark = pytest.mark.timeout(120)


def agent_at(url: str) -> Agent:
    return Agent(
        "anthropic/smollm2",
        base_url=url,
        api_key="x",
        temperature=0.0,
        max_tokens=12,
        environment={},
    )


async def test_a_real_server_streams_its_answer_to_an_agent(llama: str) -> None:
    async with agent_at(llama) as agent, agent.session() as session:
        pieces = [text async for text in session.stream("Say hello to Ana.").text()]
        assert len(pieces) > 1
        assert session.messages[-1].text == "".join(pieces)
        count = await session.count_tokens("And to Ben.")
        assert count.exact
        result = await session.chat("And to Ben.")
        assert result.stop_reason in {"complete", "max_tokens"}
        assert result.usage.input == count.tokens


async def test_a_real_answer_that_is_aborted_is_kept_and_frees_the_server(llama: str) -> None:
    async with agent_at(llama) as agent, agent.session() as session:
        await session.configure(max_tokens=1900)
        with pytest.raises(AgentError) as stopped:
            async for event in session.stream("Count from 1 to 1000, one number per line."):
                if isinstance(event, TextDelta):
                    session.abort()
        assert stopped.value.code is ErrorCode.ABORTED
        assert stopped.value.result is not None
        assert session.messages[-1].text == stopped.value.result.text != ""
        await session.configure(max_tokens=4)
        # The server has one slot: it would be minutes before it answered, were it still counting.
        assert (await session.chat("Thank you.")).usage.output <= 4
