"""Providers under names of the user's own: they are reported, priced and told apart by them."""

import json
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.log.turns import TurnStarted
from haptera.model.parts import ProviderPart, ReasoningPart
from tests.agent.queries.test_first_steps import write_config
from tests.providers.exchanges import case
from tests.providers.faulty_server import Connection, FaultyServer, faulty_server, refuses, replies

CHAT = (
    b'data: {"choices":[{"delta":{"content":"Yes"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1000000,"completion_tokens":0}}\n\ndata: [DONE]\n\n'
)
GEMINI = (
    b'data: {"candidates":[{"content":{"parts":[{"text":"Yes"}]},"finishReason":"STOP"}]}\r\n\r\n'
)
OLLAMA = b'{"model":"m","message":{"role":"assistant","content":"Yes"},"done":true}\n'
ITEMS: list[JsonObject] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes", "annotations": []}],
    },
]
EVENTS: list[JsonObject] = [
    {"type": "response.created", "response": {"id": "resp_1", "model": "m", "store": False}},
    *(
        {"type": f"response.output_item.{step}", "output_index": place, "item": item}
        for place, item in enumerate(ITEMS)
        for step in ("added", "done")
    ),
    {
        "type": "response.completed",
        "response": {
            "id": "resp_1",
            "status": "completed",
            "output": ITEMS,
            "usage": {"input_tokens": 1_000_000, "output_tokens": 0},
        },
    },
]
RESPONSES = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in EVENTS)

KINDS = {
    "anthropic": (case("text"), "/v1/messages"),
    "openai": (RESPONSES, "/v1/responses"),
    "openai-chat": (CHAT, "/v1/chat/completions"),
    "azure": (CHAT, "/v1/openai/v1/chat/completions"),
    "azure-responses": (RESPONSES, "/v1/openai/v1/responses"),
    "xai-responses": (RESPONSES, "/v1/responses"),
    "deepseek-responses": (RESPONSES, "/v1/responses"),
    "openrouter-responses": (RESPONSES, "/v1/responses"),
    "perplexity": (RESPONSES, "/v1/responses"),
    "compatible-responses": (RESPONSES, "/v1/responses"),
    "compatible": (CHAT, "/v1/chat/completions"),
    "groq": (CHAT, "/v1/chat/completions"),
    "vllm": (CHAT, "/v1/chat/completions"),
    "gemini": (GEMINI, "/v1/v1beta/models/m:streamGenerateContent?alt=sse"),
    "vertex": (
        GEMINI,
        "/v1/v1/projects/p/locations/global/publishers/google/models/m"
        ":streamGenerateContent?alt=sse",
    ),
    "ollama": (OLLAMA, "/v1/api/chat"),
}


def agent_of(folder: Path, tables: str, model: str = "work/m", **options: Any) -> Agent:
    """Make an agent whose configuration file holds `tables`."""
    return Agent(
        model,
        config_dir=write_config(folder, tables),
        environment={"HOME": str(folder), "WORK_KEY": "sk-work"},
        **options,
    )


def table(kind: str, url: str, name: str = "work", more: str = "") -> str:
    project = 'project = "p"\n' if kind == "vertex" else ""
    return (
        f'[providers.{name}]\nkind = "{kind}"\nbase_url = "{url}/v1"\n'
        f'key = {{ env = "WORK_KEY" }}\n{project}{more}\n'
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_provider_table_reports_itself_by_its_own_name(kind: str, tmp_path: Path) -> None:
    body, path = KINDS[kind]
    headers = {"content-type": "application/x-ndjson"} if kind == "ollama" else None
    async with faulty_server(replies(body, headers=headers)) as server:
        agent = agent_of(tmp_path, table(kind, server.url))
        async with agent, agent.session() as session:
            events = [event async for event in session.stream("Hi")]
            result = await session.chat("And?")
    assert (result.provider, result.model) == ("work", "m")
    assert [event.provider for event in events if isinstance(event, TurnStarted)] == ["work"]
    assert server.requests[0].path == path


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_name_the_table(kind: str, tmp_path: Path) -> None:
    async with faulty_server(refuses(401, b'{"error":{"message":"no"}}')) as server:
        agent = agent_of(tmp_path, table(kind, server.url))
        with pytest.raises(AgentError) as caught:
            await agent.run("Hi")
        await agent.close()
    assert (caught.value.code, caught.value.provider) == (ErrorCode.AUTH, "work")


async def test_two_tables_of_one_kind_never_get_what_the_other_sealed(tmp_path: Path) -> None:
    async with (
        faulty_server(replies(RESPONSES)) as here,
        faulty_server(replies(RESPONSES)) as there,
    ):
        tables = table("openai", here.url) + table("openai", there.url, "other")
        agent = agent_of(tmp_path, tables, "work/gpt-5")
        async with agent, agent.session() as session:
            await session.chat("Hi")
            await session.configure(model="other/gpt-5")
            await session.chat("And you?")
            await session.configure(model="work/gpt-5")
            await session.chat("And again?")
            kept = [part for message in session.messages for part in message.parts]
    owners = [part.provider for part in kept if isinstance(part, ProviderPart)]
    assert owners == ["work", "other", "work"]
    assert sum(isinstance(part, ReasoningPart) for part in kept) == 3
    assert opaque_in(there, 0) == []
    # What the first one sealed goes back to it, and nothing of the second's.
    assert opaque_in(here, 1) == ["reasoning", "web_search_call"]


def opaque_in(server: FaultyServer, place: int) -> list[str]:
    items = json.loads(server.requests[place].body)["input"]
    return [item["type"] for item in items if item.get("type", "message") != "message"]


async def test_a_price_is_found_under_the_tables_name(tmp_path: Path) -> None:
    async with faulty_server(replies(CHAT)) as server:
        priced = '[prices."work/m"]\ninput = 0.25\noutput = 1\n'
        async with agent_of(tmp_path, table("openai-chat", server.url) + priced) as agent:
            assert (await agent.run("Hi")).cost == pytest.approx(0.25)
        # Another operator's server may take any price for a model of that name.
        async with agent_of(tmp_path, table("openai-chat", server.url), "work/gpt-5") as agent:
            assert (await agent.run("Hi")).cost is None


async def test_a_second_name_of_an_account_takes_its_key_and_address(tmp_path: Path) -> None:
    async with faulty_server(_as_asked) as server:
        tables = table("xai", server.url, "xai")
        for model in ("xai/grok-4", "xai-responses/grok-4"):
            async with agent_of(tmp_path, tables, model) as agent:
                result = await agent.run("Hi")
                assert f"{result.provider}/{result.model}" == model
                assert result.cost is not None
    assert [request.path for request in server.requests] == [
        "/v1/chat/completions",
        "/v1/responses",
    ]
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer sk-work"}


async def _as_asked(connection: Connection) -> None:
    is_chat = connection.request.path.endswith("/chat/completions")
    await replies(CHAT if is_chat else RESPONSES)(connection)


@pytest.mark.parametrize(
    ("dialect", "field"),
    [('"mistral"', "random_seed"), ('{ seed_field = "random_seed" }', "random_seed")],
)
async def test_a_table_says_how_its_chat_completions_differ(
    dialect: str, field: str, tmp_path: Path
) -> None:
    async with faulty_server(replies(CHAT)) as server:
        tables = table("openai-chat", server.url, more=f"dialect = {dialect}")
        async with agent_of(tmp_path, tables, seed=7) as agent:
            await agent.run("Hi")
    assert json.loads(server.requests[0].body)[field] == 7


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("antropic", "", "kind: unknown; did you mean 'anthropic'?"),
        ("vllm", 'dialect = "vlm"', "dialect: unknown; did you mean 'vllm'?"),
        ("vllm", "dialect = { sed_field = 'x' }", "'sed_field' is unknown; did you mean 'seed_"),
        ("vllm", "dialect = { seed_field = 'x' }", "dialect: Invalid enum value 'x'"),
        ("anthropic", 'dialect = "vllm"', "only Chat Completions has dialects"),
    ],
)
async def test_a_table_that_cannot_be_meant_is_refused(
    kind: str, more: str, words: str, tmp_path: Path
) -> None:
    tables = table(kind, "http://127.0.0.1:1", more=more)
    async with agent_of(tmp_path, tables) as agent:
        with pytest.raises(AgentError) as caught:
            await agent.run("Hi")
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert "providers.work" in caught.value.message
    assert words in caught.value.message
