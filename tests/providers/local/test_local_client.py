"""A real SmolLM2 at the client: streams, aborts, schemas, a full context, and what is refused."""

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.requests import OutputSchema
from haptera.model.stream_parts import PartDelta, StreamFinished, StreamOpened
from haptera.providers.local.client import LocalModelClient
from haptera.providers.local.model_process import ModelProcessPool
from tests.providers.local.asking import LONG, answer, ask, get, is_generating, text_of

pytestmark = pytest.mark.timeout(120)


async def test_an_answer_streams_from_opened_to_finished(local_client: LocalModelClient) -> None:
    parts = await answer(local_client, ask("Say hello."))
    assert isinstance(parts[0], StreamOpened)
    assert parts[0].model == "smollm2"
    finished = [part for part in parts if isinstance(part, StreamFinished)]
    assert finished == [parts[-1]]
    assert finished[0].usage.input > 5
    assert finished[0].usage.output > 1
    assert len([part for part in parts if isinstance(part, PartDelta)]) > 1
    assert text_of(parts).strip()


async def test_one_request_follows_another_without_a_lost_connection(
    local_client: LocalModelClient,
) -> None:
    for number in range(6):
        parts = await answer(local_client, ask(f"Say {number}.", max_tokens=4))
        assert isinstance(parts[-1], StreamFinished)


async def test_closing_a_stream_stops_the_generation(local_client: LocalModelClient) -> None:
    async with aclosing(local_client.stream(ask(LONG, max_tokens=400))) as stream:
        async for parts in stream:
            if any(isinstance(part, PartDelta) for part in parts):
                break
        assert await is_generating(local_client)
    async with asyncio.timeout(5):
        while await is_generating(local_client):
            pass


async def test_cancelling_the_task_stops_the_generation(local_client: LocalModelClient) -> None:
    begun = asyncio.Event()

    async def listen() -> None:
        async for parts in local_client.stream(ask(LONG, max_tokens=400)):
            if any(isinstance(part, PartDelta) for part in parts):
                begun.set()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listen())
        await begun.wait()
        task.cancel()
    async with asyncio.timeout(5):
        while await is_generating(local_client):
            pass


async def test_an_abort_is_noticed_while_a_prompt_is_read(local_client: LocalModelClient) -> None:
    await local_client.start("smollm2")

    async def listen() -> None:
        prompt = f"{os.urandom(8).hex()} tower" + " tower" * 430
        await answer(local_client, ask(prompt, max_tokens=1))

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listen())
        while not await is_generating(local_client):
            pass
        task.cancel()
    async with asyncio.timeout(3):
        while await is_generating(local_client):
            pass


class City(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    population: int


async def test_an_answer_meets_the_schema_it_was_asked_for(local_client: LocalModelClient) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "population": {"type": "integer", "minimum": 0, "maximum": 99_999_999},
        },
        "required": ["name", "population"],
        "additionalProperties": False,
    }
    request = ask(
        "Describe Paris as JSON.",
        output_schema=OutputSchema(name="city", schema=schema),
        max_tokens=120,
    )
    parts = await answer(local_client, request)
    assert isinstance(msgspec.json.decode(text_of(parts), type=City), City)


async def test_a_prompt_that_is_too_long_is_a_context_length_error(
    local_client: LocalModelClient,
) -> None:
    with pytest.raises(AgentError) as caught:
        await answer(local_client, ask("lighthouse " * 1000))
    assert caught.value.code == ErrorCode.CONTEXT_LENGTH
    assert caught.value.provider == "local"


async def test_an_answer_that_fills_the_context_ends_by_length(
    local_client: LocalModelClient,
) -> None:
    parts = await answer(local_client, ask("tower " * 420, max_tokens=None, temperature=1.0))
    assert isinstance(parts[-1], StreamFinished)
    assert parts[-1].kind in {"length", "stop"}
    assert parts[-1].usage.total <= 512


async def test_tokens_are_counted_by_the_model_itself(local_client: LocalModelClient) -> None:
    request = ask("Say hello.", max_tokens=1)
    counted = await local_client.count_tokens(request)
    finished = (await answer(local_client, request))[-1]
    assert isinstance(finished, StreamFinished)
    assert (counted.tokens, counted.exact) == (finished.usage.input, True)


async def test_a_file_of_the_users_own_is_served(
    smollm2: Path, tmp_path: Path, warm_pool: ModelProcessPool
) -> None:
    path = tmp_path / "my model.gguf"
    path.symlink_to(smollm2)
    client = LocalModelClient(folder=tmp_path / "unused", pool=warm_pool, context=256)
    try:
        parts = await answer(client, ask("Say hello.", model=str(path), max_tokens=3))
    finally:
        await client.close()
    assert isinstance(parts[-1], StreamFinished)


async def test_missing_weights_are_an_error_with_size_place_and_command(tmp_path: Path) -> None:
    client = LocalModelClient(folder=tmp_path / "models")
    with pytest.raises(AgentError) as caught:
        await answer(client, ask("hi"))
    assert caught.value.code == ErrorCode.CONFIG_MISSING
    for said in ("93 MB", "Apache-2.0", str(tmp_path / "models"), "pull_model('smollm2')"):
        assert said in caught.value.message
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing was fetched


async def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    client = LocalModelClient(folder=tmp_path)
    with pytest.raises(AgentError, match="there is no file") as caught:
        await answer(client, ask("hi", model=str(tmp_path / "no.gguf")))
    assert caught.value.code == ErrorCode.CONFIG_MISSING


async def test_a_closed_client_refuses_requests(local_client: LocalModelClient) -> None:
    await local_client.close()
    with pytest.raises(AgentError) as caught:
        await answer(local_client, ask("hi"))
    assert caught.value.code == ErrorCode.CLOSED


async def test_the_process_refuses_requests_without_its_key(local_client: LocalModelClient) -> None:
    await local_client.start("smollm2")
    assert (await get(local_client, "/slots"))[0] == 200
    for path in ("/slots", "/props", "/v1/models/load"):
        status, _ = await get(local_client, path, key="guess")
        assert status in {401, 404}
