"""Attachments that the chosen model does not take: refused at no cost, and the session goes on."""

import asyncio
import base64
import json
from typing import Any

import pytest

from haptera import Agent, AgentError, ErrorCode, MediaPart, tool
from haptera.model.json_types import JsonObject
from haptera.testing import ScriptedProvider, calls, says
from tests.providers.conversations import PIXEL
from tests.providers.faulty_server import FaultyServer, faulty_server, replies
from tests.scripted_agents import playing

PICTURE = base64.b64decode(PIXEL)
PART = MediaPart(mime="image/png", data=PIXEL)
STUB = "[image/png: not shown, this model cannot read it]"
BLIND = "groq/llama-3.3-70b-versatile"
SEEING = "groq/meta-llama/llama-4-scout-17b-16e-instruct"
ANSWER = (
    b'data: {"choices":[{"delta":{"content":"Fine."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


def agent_at(server: FaultyServer, model: str = BLIND, **options: Any) -> Agent:
    return Agent(
        model,
        environment={"GROQ_API_KEY": "x", "GROQ_BASE_URL": f"{server.url}/openai/v1"},
        **options,
    )


def said(server: FaultyServer, place: int) -> JsonObject:
    """Return the last message of a request that went out."""
    message: JsonObject = json.loads(server.requests[place].body)["messages"][-1]
    return message


async def test_a_picture_for_a_model_that_reads_text_is_refused_before_anything_is_sent() -> None:
    async with faulty_server(replies(ANSWER)) as server:
        agent = agent_at(server)
        async with agent, agent.session() as session:
            with pytest.raises(AgentError) as caught:
                await session.chat("Look.", attachments=[PICTURE])
    assert (caught.value.code, caught.value.provider) == (ErrorCode.CONFIG_INVALID, "groq")
    assert f"{BLIND} does not take image/png" in caught.value.message
    assert server.requests == []


async def test_after_a_refusal_the_next_prompt_is_answered_and_the_picture_is_a_line_of_text() -> (
    None
):
    async with faulty_server(replies(ANSWER)) as server:
        agent = agent_at(server)
        async with agent, agent.session() as session:
            with pytest.raises(AgentError):
                await session.chat("Look.", attachments=[PICTURE])
            assert (await session.chat("Then without.")).text == "Fine."
            await session.configure(model=SEEING)
            assert (await session.chat("And now?")).text == "Fine."
    assert said(server, 0)["content"] == f"Look.\n\n{STUB}\n\nThen without."
    # The log has kept it: a model that takes pictures is shown it.
    history = json.loads(server.requests[1].body)["messages"]
    assert [piece["type"] for piece in history[0]["content"]] == ["text", "image_url", "text"]


async def test_a_picture_that_an_earlier_model_saw_is_a_line_of_text_for_one_that_cannot() -> None:
    async with faulty_server(replies(ANSWER)) as server:
        agent = agent_at(server, SEEING)
        async with agent, agent.session() as session:
            await session.chat("Look.", attachments=[PICTURE])
            await session.configure(model=BLIND)
            await session.chat("What was it?")
    assert json.loads(server.requests[1].body)["messages"][0]["content"] == f"Look.\n\n{STUB}"


async def test_a_model_of_the_plan_that_takes_the_picture_answers_instead() -> None:
    async with (
        faulty_server(replies(ANSWER)) as server,
        agent_at(server, fallbacks=[SEEING]) as agent,
    ):
        result = await agent.run("Look.", attachments=[PICTURE])
    assert (result.text, f"{result.provider}/{result.model}") == ("Fine.", SEEING)
    assert len(server.requests) == 1


async def test_counting_the_tokens_of_a_prompt_that_would_be_refused_says_so() -> None:
    async with faulty_server(replies(ANSWER)) as server:
        agent = agent_at(server)
        async with agent, agent.session() as session:
            with pytest.raises(AgentError, match="does not take image/png"):
                await session.count_tokens([PART])


def fresh_in(provider: ScriptedProvider) -> list[int]:
    return [len(request.fresh_media) for request in provider.requests]


async def test_media_are_new_until_a_model_has_answered_and_steered_ones_are_new_again() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        started.set()
        await release.wait()
        return "worked"

    script = [calls(("work", {})), calls(("work", {})), says("seen"), says("bye")]
    async with playing(script, tools=[work]) as (session, provider):
        asking = asyncio.ensure_future(session.chat([PART, PART]))
        await started.wait()
        steering = [
            asyncio.ensure_future(session.chat(prompt, delivery="steer"))
            for prompt in ([PART], "and this")
        ]
        while len(session.view().pending) < 2:
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        release.set()
        await asyncio.gather(asking, *steering)
        await session.chat("Thanks.")
    assert fresh_in(provider) == [2, 1, 0, 0]
