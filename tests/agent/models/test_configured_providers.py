"""Providers and models as the user's file describes them, seen in the requests that they get."""

import json
from pathlib import Path

import pytest

from haptera import Agent, AgentError, ErrorCode
from haptera.model.json_types import JsonObject
from tests.providers.exchanges import case
from tests.providers.faulty_server import Request, faulty_server, replies

CHAT = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def agent_of(folder: Path, text: str, model: str, **variables: str) -> Agent:
    (folder / "config.toml").write_text(text, encoding="utf-8")
    (folder / "config.toml").chmod(0o600)
    return Agent(model, config_dir=folder, environment=variables)


async def sent(
    folder: Path, text: str, model: str, *, body: bytes = CHAT, **variables: str
) -> Request:
    """Return the request that a model gets; URL stands for where it listens."""
    async with faulty_server(replies(body)) as server:
        told = text.replace("URL", server.url)
        async with agent_of(folder, told, model, **variables) as agent:
            await agent.run("Hi")
    return server.requests[0]


def body_of(request: Request) -> JsonObject:
    body: JsonObject = json.loads(request.body)
    return body


async def fault_of(
    folder: Path,
    text: str,
    model: str = "house/x",
    *,
    code: ErrorCode = ErrorCode.CONFIG_INVALID,
    **variables: str,
) -> str:
    async with agent_of(folder, text, model, **variables) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.run("Hi")
    assert caught.value.code is code
    return caught.value.message.removeprefix(str(folder / "config.toml"))


@pytest.mark.parametrize("kind", ["openai-chat", "compatible", "vllm"])
async def test_the_dialect_of_the_file_is_the_one_that_is_spoken(tmp_path: Path, kind: str) -> None:
    text = f"""
        [defaults]
        max_tokens = 5
        [providers.house]
        kind = "{kind}"
        base_url = "URL"
        dialect = "mistral"
        key = {{ env = "KEY" }}
    """
    body = body_of(await sent(tmp_path, text, "house/x", KEY="k"))
    assert body["max_tokens"] == 5
    assert "stream_options" not in body


@pytest.mark.parametrize(
    ("field", "known"), [('kind = "opnai"', "'openai'"), ('dialect = "vlm"', "'vllm'")]
)
async def test_a_kind_or_a_dialect_that_is_none_is_refused(
    tmp_path: Path, field: str, known: str
) -> None:
    text = f'[providers.house]\nbase_url = "http://127.0.0.1:9"\n{field}\n'
    name = field.partition(" ")[0]
    message = await fault_of(tmp_path, text)
    assert message.startswith(f", line 3: providers.house.{name}: unknown; did you mean {known}?")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("openai-chat", "of the kind 'compatible'"),
        ("openai", "of the kind 'compatible-responses'"),
        ("anthropic", "or pass api_key="),
    ],
)
async def test_a_server_of_one_s_own_without_a_key_is_told_the_kind_that_needs_none(
    tmp_path: Path, kind: str, told: str
) -> None:
    text = f'[providers.house]\nkind = "{kind}"\nbase_url = "http://127.0.0.1:9"\n'
    message = await fault_of(tmp_path, text, code=ErrorCode.CONFIG_MISSING)
    assert message.endswith(told)


async def test_a_header_s_variable_is_looked_up_and_has_to_be_set(tmp_path: Path) -> None:
    text = '[providers.house]\nbase_url = "URL"\nheaders = { X-Gate = { env = "GATE" } }\n'
    request = await sent(tmp_path, text, "house/x", GATE="open\n")
    assert request.headers["x-gate"] == "open"
    message = await fault_of(tmp_path, text.replace("URL", "http://127.0.0.1:9"))
    assert message == ", line 3: providers.house.headers.X-Gate: the variable GATE is not set"


@pytest.mark.parametrize(("more", "asked"), [("", 1234), ("max_tokens = 5", 5)])
async def test_the_longest_answer_of_an_unknown_model_is_asked_for_where_a_number_is_demanded(
    tmp_path: Path, more: str, asked: int
) -> None:
    text = f"""
        [models.big]
        model = "house/unknown"
        max_output = 1234
        {more}
        [providers.house]
        kind = "anthropic"
        base_url = "URL"
        key = {{ env = "KEY" }}
    """
    request = await sent(tmp_path, text, "big", body=case("text"), KEY="k")
    assert body_of(request)["max_tokens"] == asked


async def test_what_stands_beside_a_short_name_holds_when_a_session_chooses_it(
    tmp_path: Path,
) -> None:
    text = """
        [models.quick]
        model = "house/small"
        temperature = 0.5
        [providers.house]
        base_url = "URL"
    """
    async with faulty_server(replies(CHAT)) as server:
        agent = agent_of(tmp_path, text.replace("URL", server.url), "house/large")
        async with agent, agent.session() as session:
            await session.chat("Hi")
            await session.configure(model="quick")
            await session.chat("Hi")
            await session.configure(model="quick", temperature=0.1)
            await session.chat("Hi")
    bodies = [body_of(request) for request in server.requests]
    assert [body["model"] for body in bodies] == ["large", "small", "small"]
    assert [body.get("temperature") for body in bodies] == [None, 0.5, 0.1]


async def test_a_model_that_is_none_is_refused_where_it_was_said(tmp_path: Path) -> None:
    text = '[models.quick]\nmodel = "p/m"\n[defaults]\nmodel = "quik"\n'
    words = "the model 'quik' is neither"
    message = await fault_of_defaults(tmp_path, text)
    assert message.startswith(f", line 4: defaults.model: {words}")
    message = await fault_of_defaults(tmp_path, text, HAPTERA_MODEL="quik")
    assert message.startswith(f"HAPTERA_MODEL: {words}")


@pytest.mark.parametrize(
    ("plan", "place"),
    [('quik = ["p/m"]', "fallbacks.quik"), ('default = ["p/m", "quik"]', "fallbacks.default[1]")],
)
async def test_a_plan_for_no_model_or_with_none_is_refused(
    tmp_path: Path, plan: str, place: str
) -> None:
    text = f'[models.quick]\nmodel = "p/m"\n[fallbacks]\n{plan}\n'
    message = await fault_of_defaults(tmp_path, text, HAPTERA_MODEL="p/other")
    assert message.startswith(f", line 4: {place}: the model 'quik' is neither")
    assert message.endswith("did you mean 'quick'?")


async def fault_of_defaults(folder: Path, text: str, **variables: str) -> str:
    (folder / "config.toml").write_text(text, encoding="utf-8")
    (folder / "config.toml").chmod(0o600)
    with pytest.raises(AgentError) as caught:
        async with Agent(config_dir=folder, environment=variables) as agent:
            await agent.run("Hi")
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    return caught.value.message.removeprefix(str(folder / "config.toml"))
