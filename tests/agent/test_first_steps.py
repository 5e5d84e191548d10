"""What a new user meets: keys here and there, and a clear message for each thing that is wrong."""

import socket
from pathlib import Path

import pytest

from holdfast import Agent, AgentError, ErrorCode, run_agent
from holdfast.sync import Agent as BlockingAgent
from holdfast.testing.clocks import AutoClock
from tests.providers.exchanges import case
from tests.providers.faulty_server import faulty_server, refuses, replies

MODEL = "anthropic/claude-sonnet-5"
TEXT = case("text")
WRONG_KEY = (
    b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},'
    b'"request_id":"req_1"}'
)
NO_MODEL = (
    b'{"type":"error","error":{"type":"not_found_error","message":"model: claude-sonnet-55"}}'
)


def write_config(folder: Path, text: str) -> Path:
    (folder / "config.toml").write_text(text, encoding="utf-8")
    (folder / "config.toml").chmod(0o600)
    return folder


async def fails(agent: Agent, prompt: str = "Hi") -> AgentError:
    async with agent:
        with pytest.raises(AgentError) as caught:
            await agent.run(prompt)
    return caught.value


async def test_one_key_in_the_environment_is_enough(tmp_path: Path) -> None:
    async with faulty_server(replies(TEXT)) as server:
        environment = {
            "HOME": str(tmp_path),
            "ANTHROPIC_API_KEY": "sk-mine",
            "ANTHROPIC_BASE_URL": server.url,
        }
        async with Agent(environment=environment) as agent:
            result = await agent.run("Hi")
    assert result.text
    assert result.provider == "anthropic"
    assert server.requests[0].headers["x-api-key"] == "sk-mine"


async def test_a_key_that_the_file_refers_to_is_found(tmp_path: Path) -> None:
    async with faulty_server(replies(TEXT)) as server:
        folder = write_config(
            tmp_path,
            f"""
[providers.anthropic]
base_url = "{server.url}"
key = {{ env = "KEY_OF_THE_HOUSE" }}
""",
        )
        environment = {"HOME": str(tmp_path), "KEY_OF_THE_HOUSE": "sk-house"}
        async with Agent(MODEL, environment=environment, config_dir=folder) as agent:
            assert (await agent.run("Hi")).text
    assert server.requests[0].headers["x-api-key"] == "sk-house"


async def test_without_a_key_the_message_says_what_to_set(tmp_path: Path) -> None:
    error = await fails(Agent(MODEL, environment={"HOME": str(tmp_path)}, config_dir=tmp_path))
    assert error.code is ErrorCode.CONFIG_MISSING
    for words in ("no key for 'anthropic'", "ANTHROPIC_API_KEY", "[providers.anthropic]"):
        assert words in error.message


def test_blocking_code_gets_the_same_message(tmp_path: Path) -> None:
    options = {"HOME": str(tmp_path)}
    with (
        BlockingAgent(MODEL, environment=options, config_dir=tmp_path) as agent,
        pytest.raises(AgentError, match="ANTHROPIC_API_KEY") as caught,
    ):
        agent.run("Hi")
    assert caught.value.code is ErrorCode.CONFIG_MISSING


async def test_a_wrong_key_fails_at_once_and_is_not_repeated_in_the_message() -> None:
    async with faulty_server(refuses(401, WRONG_KEY)) as server:
        clock = AutoClock()
        agent = Agent(MODEL, api_key="sk-wrong", base_url=server.url, environment={}, clock=clock)
        error = await fails(agent)
    assert (error.code, error.status, error.provider) == (ErrorCode.AUTH, 401, "anthropic")
    assert "invalid x-api-key" in error.message
    assert "sk-wrong" not in error.message
    assert len(server.requests) == 1


async def test_a_model_that_does_not_exist_is_named() -> None:
    async with faulty_server(refuses(404, NO_MODEL)) as server:
        agent = Agent(
            "anthropic/claude-sonnet-55", api_key="x", base_url=server.url, environment={}
        )
        error = await fails(agent)
    assert (error.code, error.status) == (ErrorCode.MODEL_NOT_FOUND, 404)
    assert "claude-sonnet-55" in error.message
    assert len(server.requests) == 1


async def test_an_address_where_nobody_listens_is_named_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    clock = AutoClock()
    url = f"http://127.0.0.1:{port}"
    error = await fails(Agent(MODEL, api_key="x", base_url=url, environment={}, clock=clock))
    assert error.code is ErrorCode.NETWORK
    for words in (f"127.0.0.1:{port}", "could not be reached", "base URL"):
        assert words in error.message
    assert clock.sleeps == []


async def test_a_provider_that_there_is_not_says_how_to_add_one(tmp_path: Path) -> None:
    agent = Agent("anthropc/claude", environment={"HOME": str(tmp_path)}, config_dir=tmp_path)
    error = await fails(agent)
    assert error.code is ErrorCode.CONFIG_INVALID
    for words in ("no provider 'anthropc'", "base_url"):
        assert words in error.message


async def test_a_model_without_its_provider_shows_how_it_is_written() -> None:
    with pytest.raises(AgentError, match="'provider/model'") as caught:
        Agent("claude-sonnet-5", environment={})
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize("blank", ["", " \n"])
async def test_a_key_that_is_nothing_is_none(blank: str) -> None:
    with pytest.raises(AgentError) as caught:
        await run_agent("Hi", model="openai/gpt-5", api_key=blank, environment={})
    assert caught.value.code is ErrorCode.CONFIG_MISSING
    assert "OPENAI_API_KEY" in caught.value.message
