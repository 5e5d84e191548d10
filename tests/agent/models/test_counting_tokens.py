"""Tokens are counted by the provider where it counts, and estimated where it does not."""

import json

import pytest

from haptera import Agent, AgentError, ErrorCode, SessionError
from haptera.sync import Agent as BlockingAgent
from haptera.testing import ScriptedProvider, says
from tests.providers.faulty_server import Connection, faulty_server, refuses


async def counts(connection: Connection) -> None:
    await connection.head(headers={"content-type": "application/json"})
    await connection.piece(b'{"input_tokens": 42}')
    await connection.end()


def at(url: str) -> Agent:
    return Agent("anthropic/claude-sonnet-5", base_url=url, api_key="x", environment={})


async def test_a_provider_that_counts_is_asked_and_nothing_is_recorded() -> None:
    async with (
        faulty_server(counts) as server,
        at(server.url) as agent,
        agent.session() as session,
    ):
        count = await session.count_tokens("How long is this?")
        assert session.messages == ()
    assert (count.tokens, count.exact) == (42, True)
    (request,) = server.requests
    assert request.path == "/v1/messages/count_tokens"
    assert json.loads(request.body)["messages"][0]["content"][0]["text"] == "How long is this?"


async def test_a_server_that_does_not_count_gives_an_estimate() -> None:
    missing = refuses(404, b'{"error": {"message": "no such path"}}')
    async with (
        faulty_server(missing) as server,
        at(server.url) as agent,
        agent.session() as session,
    ):
        count = await session.count_tokens("word " * 100)
    assert not count.exact
    assert 80 < count.tokens < 200


async def test_a_wrong_key_is_told_while_counting() -> None:
    refused = refuses(401, b'{"type":"error","error":{"type":"authentication_error","message":""}}')
    async with (
        faulty_server(refused) as server,
        at(server.url) as agent,
        agent.session() as session,
    ):
        with pytest.raises(AgentError) as caught:
            await session.count_tokens("Hi")
    assert caught.value.code is ErrorCode.AUTH


async def test_the_conversation_so_far_is_counted_without_a_prompt() -> None:
    provider = ScriptedProvider([says("hello")])
    async with Agent("scripted/one", providers=[provider]) as agent, agent.session() as session:
        with pytest.raises(SessionError) as nothing:
            await session.count_tokens()
        assert nothing.value.code is ErrorCode.NOTHING_TO_SEND
        await session.chat("Hi")
        before = await session.count_tokens()
        after = await session.count_tokens("and much more " * 50)
        assert after.tokens > before.tokens > 0


def test_blocking_code_counts_as_well() -> None:
    provider = ScriptedProvider([])
    with BlockingAgent("scripted/one", providers=[provider]) as agent, agent.session() as session:
        assert session.count_tokens("Hi").tokens > 0
