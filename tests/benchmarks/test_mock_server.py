"""The mock provider and the floor understand each other on every API; faults are served."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from benchmarks.floor import FloorError, aiohttp_client, open_floor, stream_client
from benchmarks.mock_server import STATS_PATH, running_server
from benchmarks.script import APIS, Api, Script, parse_model

CLIENTS = {"aiohttp": aiohttp_client, "asyncio": stream_client}


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with running_server() as url:
        yield url


async def ask(
    base_url: str, api: Api, script: Script, *, client: str = "asyncio"
) -> tuple[str, int]:
    texts: list[str] = []
    async with open_floor(api, script, CLIENTS[client](base_url)) as floor:
        calls = await floor.query("What colour is the sea?", texts.append)
        assert await floor.query("And again?", lambda _: None) == calls  # the connection is kept
    assert len(texts) == script.deltas
    return "".join(texts), calls


def test_a_script_survives_its_model_name() -> None:
    script = Script(deltas=3, size=7, tools=1, status=529, retry=0, failing=2, tag=9)
    assert parse_model(script.model) == script


def test_an_unknown_model_name_gets_the_default_answer() -> None:
    assert parse_model("claude-sonnet-5") == Script()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("api", APIS)
async def test_the_floor_decodes_every_delta(base_url: str, api: Api, client: str) -> None:
    text, calls = await ask(base_url, api, Script(deltas=700, size=11), client=client)
    assert (len(text), calls) == (7700, 0)
    assert text.startswith("The quick brown fox")


@pytest.mark.parametrize("api", APIS)
async def test_tool_rounds_come_before_the_text(base_url: str, api: Api) -> None:
    text, calls = await ask(base_url, api, Script(deltas=2, size=5, tools=3))
    assert (text, calls) == ("The quick ", 3)


@pytest.mark.parametrize("api", APIS)
async def test_a_paced_answer_is_the_same_text(base_url: str, api: Api) -> None:
    paced, _ = await ask(base_url, api, Script(deltas=9, delay=200))
    burst, _ = await ask(base_url, api, Script(deltas=9))
    assert paced == burst


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("api", APIS)
async def test_a_status_and_a_cut_reach_the_client(base_url: str, api: Api, client: str) -> None:
    with pytest.raises(FloorError, match="status 529"):
        await ask(base_url, api, Script(status=529, retry=1), client=client)
    with pytest.raises(FloorError, match="cut"):
        await ask(base_url, api, Script(cut=1200), client=client)


async def test_a_fault_ends_after_the_scripted_number_of_requests(base_url: str) -> None:
    script = Script(status=500, failing=1, tag=1)
    with pytest.raises(FloorError, match="status 500"):
        await ask(base_url, "chat", script)
    text, _ = await ask(base_url, "chat", script)
    assert len(text) == script.characters


async def test_an_error_names_the_seconds_to_wait(base_url: str) -> None:
    body = json.dumps({"model": Script(status=429, retry=7).model, "stream": True})
    async with (
        aiohttp.ClientSession(base_url) as session,
        session.post("/v1/messages", data=body) as response,
    ):
        assert (response.status, response.headers["retry-after"]) == (429, "7")
        assert (await response.json())["error"]["type"] == "rate_limit_error"


async def test_a_stalled_answer_ends_when_the_client_leaves(base_url: str) -> None:
    async with aiohttp.ClientSession(base_url) as session:
        body = json.dumps({"model": Script(stall=700).model, "stream": True})
        async with session.post("/v1/messages", data=body) as response:
            assert await response.content.readany()
        async with asyncio.timeout(5):
            while (counters := await stats(session))["open_connections"]:
                pass
    assert counters["disconnects"][-1]["mid_reply"] is True


async def test_the_counters_show_requests(base_url: str) -> None:
    await ask(base_url, "responses", Script())
    async with aiohttp.ClientSession(base_url) as session:
        counters = await stats(session)
    assert counters["requests"] >= counters["by_path"]["/v1/responses"] >= 2


async def stats(session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get(STATS_PATH) as response:
        counters: dict[str, Any] = await response.json()
        return counters
