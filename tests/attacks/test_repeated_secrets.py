"""A credential that a peer, a tool, a hook or a client repeats is in nothing that leaves."""

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from haptera import Agent, AgentError, RetrySettings, Timeouts, TurnEnded, tool
from haptera.hooks import Hooks
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import StreamPart
from haptera.testing import calls, says
from haptera.testing.scripted_provider import Step
from tests.providers.faulty_server import Answer, Connection, faulty_server, refuses
from tests.scripted_agents import failure_of, make_agent
from tests.stores.store_factories import DURABLE, store_string

KEY = "canary-of-the-key-4711-and-more"
GATE = "canary of the gate 4711"
TOKEN = "canary.of.a.token.4711"
STRANGER = "sk-ant-api03-canary4711-canary4711"
"""A key that the program never named: only its shape tells."""

CONFIG = """
[providers.house]
base_url = "URL"
kind = "openai-chat"
key = { env = "KEY" }
headers = { X-Gate = { env = "GATE" } }
"""
QUICK = Timeouts(connect=5.0, first_byte=0.2, between_bytes=0.2, content=0.2)


def echo(connection: Connection) -> str:
    """Return what a careless gateway repeats of a request, with a key of its own beside it."""
    return f"{connection.request.headers} Authorization: Bearer {TOKEN} and {STRANGER}"


async def echoes_in_the_body(connection: Connection) -> None:
    await refuses(400, f'{{"error": {{"message": "{echo(connection)}"}}}}'.encode())(connection)


async def echoes_at_the_cut(connection: Connection) -> None:
    message = "x" * 490 + connection.request.headers["x-gate"]
    await refuses(400, f'{{"error": {{"message": "{message}"}}}}'.encode())(connection)


async def echoes_in_the_request_id(connection: Connection) -> None:
    sent = connection.request.headers
    told = f"{sent['x-gate']} {sent['authorization']} {STRANGER}"
    await refuses(400, b'{"error": {"message": "no"}}', x_request_id=told)(connection)


async def echoes_inside_a_stream(connection: Connection) -> None:
    await connection.head(headers={"x-request-id": connection.request.headers["x-gate"]})
    await connection.piece(f'data: {{"error": {{"message": "{echo(connection)}"}}}}\n\n'.encode())
    await connection.end()


async def is_no_http(connection: Connection) -> None:
    await connection.write(echo(connection).encode() + b"\r\n\r\n")


async def is_silent(_connection: Connection) -> None:
    await asyncio.Event().wait()


async def stops_in_the_body(connection: Connection) -> None:
    await connection.head()
    await connection.piece(b": " + echo(connection).encode() + b"\n\n")
    await asyncio.Event().wait()


async def breaks_off(connection: Connection) -> None:
    await connection.head()
    await connection.write(b"zzz\r\n" + echo(connection).encode())


PEERS: list[Answer] = [
    echoes_in_the_body,
    echoes_at_the_cut,
    echoes_in_the_request_id,
    echoes_inside_a_stream,
    is_no_http,
    is_silent,
    stops_in_the_body,
    breaks_off,
]


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and everything that it leads to."""
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        found = left.pop()
        if found is not None and found not in seen:
            seen.append(found)
            left += [found.__cause__, found.__context__]
    yield from seen


def shown_by(error: AgentError) -> str:
    """Return everything that an error shows: facts, text, chain, tracebacks with their locals."""
    texts = [str(error.to_dict())]
    for each in chain_of(error):
        told = traceback.TracebackException.from_exception(each, capture_locals=True)
        own = [frame for frame in told.stack if "/tests/" not in frame.filename]
        texts += [repr(each), str(each), *(f"{frame.name} {frame.locals}" for frame in own)]
    return "\n".join(texts)


def assert_clean(text: str, *secrets: str) -> None:
    for secret in secrets:
        assert secret not in text
        assert secret[:12] not in text, "half of it is too much, too"


def stored_in(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "config.toml"]
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DURABLE)
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
async def test_what_a_peer_repeats_is_in_no_error_log_or_recording(
    tmp_path: Path, peer: Answer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with faulty_server(peer) as server:
        config = tmp_path / "config.toml"
        config.write_text(CONFIG.replace("URL", server.url), encoding="utf-8")
        config.chmod(0o600)
        agent = Agent(
            "house/x",
            config_dir=tmp_path,
            environment={"KEY": KEY, "GATE": GATE},
            store=store_string(kind, tmp_path),
            record_to=tmp_path / "recording",
            timeouts=QUICK,
            retry=RetrySettings(max_retries=0, interruption_retries=0),
        )
        async with agent, agent.session("ana") as session:
            with caplog.at_level(logging.DEBUG, logger="haptera"):
                error = await failure_of(session.chat("Hi"))
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert_clean(shown_by(error), KEY, GATE, TOKEN, STRANGER)
    assert_clean(stored_in(tmp_path), KEY, GATE, TOKEN, STRANGER)
    assert_clean(caplog.text, KEY, GATE, TOKEN, STRANGER)


class OwnClient:
    """A client of the user's that fails with a request in its exception."""

    provider = "own"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[list[StreamPart], None]:
        raise RuntimeError(f"401 for {request.model}: Bearer {STRANGER}")
        yield []

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        raise NotImplementedError

    async def close(self) -> None:
        pass


async def test_what_a_client_of_the_user_s_raises_is_scrubbed(tmp_path: Path) -> None:
    agent, _ = make_agent([], providers=[OwnClient()], store=f"jsonl:{tmp_path}", model="own/x")
    async with agent, agent.session("ana") as session:
        error = await failure_of(session.chat("Hi"))
    assert "401 for x: Bearer ****" in error.message
    assert_clean(shown_by(error) + stored_in(tmp_path), STRANGER)
    assert "OwnClient" in "".join(traceback.format_exception(error)) or error.__cause__ is not None


@tool
def fails() -> str:
    """Fail."""
    raise ValueError(f"refused: {STRANGER}")


@tool
def tells() -> str:
    """Tell."""
    return f"the key is {STRANGER}"


@pytest.mark.parametrize("kind", DURABLE)
async def test_what_a_tool_raises_is_scrubbed_and_what_it_returns_is_not(
    tmp_path: Path, kind: str
) -> None:
    script: list[Step] = [
        calls(("fails", {})),
        says("done"),
        calls(("tells", {})),
        says(f"It is {STRANGER}"),
    ]
    agent, provider = make_agent(script, tools=[fails, tells], store=store_string(kind, tmp_path))
    async with agent, agent.session("ana") as session:
        await session.chat("Hi")
        assert "refused: ****" in str(provider.requests[1].messages[-1])
        assert_clean(stored_in(tmp_path), STRANGER)
        result = await session.chat("Tell me")
        assert result.text == f"It is {STRANGER}"
        assert STRANGER in str(provider.requests[3].messages[-1])


def _raise(*_arguments: object) -> Any:
    raise RuntimeError(f"Authorization: Bearer {STRANGER}")


async def test_what_a_hook_raises_is_scrubbed(tmp_path: Path) -> None:
    async def before(_call: object) -> Any:
        _raise()

    options: dict[str, Any] = {"tools": [tells], "hooks": Hooks(before_tool=before)}
    agent, _ = make_agent([calls(("tells", {}))], store=f"jsonl:{tmp_path}", **options)
    async with agent, agent.session("ana") as session:
        error = await failure_of(session.chat("Hi"))
    assert_clean(repr(error.__cause__) + "".join(traceback.format_exception(error)), STRANGER)
    assert_clean(stored_in(tmp_path), STRANGER)


async def test_what_a_handler_or_approver_raises_is_scrubbed_in_the_program_s_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = tool(approval="ask")(tells.function)
    script: list[Step] = [calls(("tells", {})), says("well")]
    agent, _ = make_agent(script, tools=[asked], approver=_raise)
    async with agent, agent.session() as session:
        session.on(TurnEnded, _raise)
        await session.chat("Hi")
    assert "a handler failed" in caplog.text
    assert "an approver failed" in caplog.text
    assert "RuntimeError: Authorization: Bearer ****" in caplog.text
    assert_clean(caplog.text, STRANGER)
    assert_clean("".join(str(vars(record)) for record in caplog.records), STRANGER)


@pytest.mark.parametrize("key", [KEY, lambda: KEY], ids=["given", "of a function"])
async def test_a_key_is_in_no_frame_of_ours(key: str | Callable[[], str]) -> None:
    async with faulty_server(is_silent) as server:
        agent = Agent(
            "anthropic/x",
            api_key=key,
            base_url=server.url,
            environment={},
            timeouts=QUICK,
            retry=RetrySettings(max_retries=0),
        )
        async with agent:
            error = await failure_of(agent.run("Hi"))
            late = await failure_of(agent.run("Hi", timeout=0.05))
    assert_clean(shown_by(error), KEY)
    assert_clean(shown_by(late), KEY)


async def test_a_key_that_is_no_text_is_in_no_error_and_hides_none() -> None:
    """A variable that is not valid UTF-8 has halves of characters, which nothing can encode."""
    key = "canary-\udcff-of-the-key-4711"

    async def echoes(connection: Connection) -> None:
        told = f"100% busy: {connection.request.headers['x-api-key']}"
        await refuses(500, f'{{"error": {{"message": "{told}"}}}}'.encode())(connection)

    async with faulty_server(echoes) as server:
        agent = Agent(
            "anthropic/x",
            base_url=server.url,
            environment={"ANTHROPIC_API_KEY": key},
            retry=RetrySettings(max_retries=0),
        )
        async with agent:
            error = await failure_of(agent.run("Hi"))
    assert error.message == "100% busy: ****"
    assert_clean(shown_by(error), key, "of-the-key-4711")
