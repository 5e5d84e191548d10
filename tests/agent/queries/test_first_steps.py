"""What a new user meets: keys here and there, and a clear message for each thing that is wrong."""

import socket
from pathlib import Path

import pytest

from haptera import Agent, AgentError, ErrorCode, run_agent
from haptera.sync import Agent as BlockingAgent
from haptera.testing.clocks import AutoClock
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
    assert error.message == "invalid x-api-key; check the key that was passed as api_key="
    assert "sk-wrong" not in error.message
    assert len(server.requests) == 1


async def test_a_wrong_key_in_a_variable_names_the_variable(tmp_path: Path) -> None:
    async with faulty_server(refuses(401, WRONG_KEY)) as server:
        key = {"HOME": str(tmp_path), "ANTHROPIC_API_KEY": "sk-wrong-0123456789"}
        error = await fails(Agent(MODEL, base_url=server.url, environment=key, config_dir=tmp_path))
    assert "check the key in the variable ANTHROPIC_API_KEY" in error.message
    assert "sk-wrong" not in error.message


async def test_a_wrong_key_of_the_file_names_its_table(tmp_path: Path) -> None:
    async with faulty_server(refuses(401, WRONG_KEY)) as server:
        told = f'[providers.anthropic]\nbase_url = "{server.url}"\n'
        folder = write_config(tmp_path, f'{told}key = {{ command = ["echo", "sk-wrong"] }}\n')
        agent = Agent(MODEL, environment={"HOME": str(tmp_path)}, config_dir=folder)
        error = await fails(agent)
    place = f"[providers.anthropic] of {tmp_path / 'config.toml'} refers to"
    assert error.message == f"invalid x-api-key; check the key that {place}"


async def test_a_server_that_wants_a_key_and_got_none_says_where_to_put_one() -> None:
    async with faulty_server(refuses(401, b"no token, no answer")) as server:
        error = await fails(Agent("compatible/x", base_url=server.url, environment={}))
    assert error.code is ErrorCode.AUTH
    assert error.message.startswith("no token, no answer; ")
    assert "pass a key as api_key=" in error.message


async def test_what_is_not_there_is_named_with_the_url_and_the_model() -> None:
    async with faulty_server(refuses(404, b"404: Not Found")) as server:
        error = await fails(Agent("compatible/qwen", base_url=server.url, environment={}))
        versioned = f"{server.url}/v1"
        other = await fails(Agent("compatible/qwen", base_url=versioned, environment={}))
    assert error.code is ErrorCode.MODEL_NOT_FOUND
    assert error.message == (
        f"404: Not Found (at {server.url}/chat/completions, for the model 'qwen'); check the base "
        "URL, which often ends with /v1, and the name of the model"
    )
    assert "check the base URL and the name" in other.message


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "localhost:8899",
            "must begin with http:// or https:// and a host; did you mean 'http://l",
        ),
        ("127.0.0.1:8899/v1", "did you mean 'http://127.0.0.1:8899/v1'?"),
        ("llm.example.org/v1", "did you mean 'https://llm.example.org/v1'?"),
        ("ftp://example.org", "'ftp://example.org' must begin with http:// or https:// and a host"),
        ("http://", "must begin with http:// or https:// and a host"),
    ],
)
def test_a_base_url_without_its_scheme_is_told_what_may_be_meant(url: str, told: str) -> None:
    with pytest.raises(AgentError, match="option 'base_url'") as caught:
        Agent("compatible/qwen", base_url=url, environment={})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert told in caught.value.message


async def test_a_host_alone_is_fine_for_ollama() -> None:
    async with faulty_server(refuses(404, NO_MODEL)) as server:
        host = server.url.removeprefix("http://")
        async with Agent("ollama/llama3", base_url=host, environment={}) as agent:
            with pytest.raises(AgentError) as caught:
                await agent.run("Hi")
    assert caught.value.code is ErrorCode.MODEL_NOT_FOUND


async def test_a_model_that_does_not_exist_is_named() -> None:
    async with faulty_server(refuses(404, NO_MODEL)) as server:
        agent = Agent(
            "anthropic/claude-sonnet-55", api_key="x", base_url=server.url, environment={}
        )
        error = await fails(agent)
    assert (error.code, error.status) == (ErrorCode.MODEL_NOT_FOUND, 404)
    assert "claude-sonnet-55" in error.message
    assert len(server.requests) == 1


async def test_an_address_where_no_server_listens_is_named_at_once() -> None:
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
