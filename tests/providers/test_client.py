"""The client: what it adds to a request, what it asks for a token, what it gives back."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from haptera import __version__
from haptera.model.errors import AgentError, ConfigError, ErrorCode
from haptera.model.ids import CallId
from haptera.model.parts import TextPart, ToolCallPart, ToolResultPart
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import PartOpened
from haptera.model.tools import ToolSpec
from haptera.ports.model_client import ModelClient
from haptera.providers.client import ProviderEndpoint, WireModelClient
from haptera.providers.transport.http import AiohttpTransport
from haptera.providers.transport.protocol import HttpRequest
from haptera.providers.vendor_clients import IDENTITY, VendorAccess, make_client
from haptera.providers.vendors import VENDORS
from haptera.providers.wire.anthropic_messages import PROTOCOL
from haptera.system.token_sources import CallableTokenSource, StaticTokenSource
from tests.providers.exchanges import KEY, REQUEST, ask, case, client_for, text_of
from tests.providers.faulty_server import Connection, faulty_server, refuses, replies, stalls_after
from tests.providers.golden_requests import assistant, user

TEXT = case("text")


async def test_a_request_carries_key_version_and_name() -> None:
    async with faulty_server(replies(TEXT)) as server:
        client: ModelClient = client_for(f"{server.url}/v1/")
        async for _ in client.stream(REQUEST):
            pass
        await client.close()
        (request,) = server.requests
        assert request.path == "/v1/messages"
        assert request.headers["x-api-key"] == KEY
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert request.headers["user-agent"] == f"haptera/{__version__}"
        assert "authorization" not in request.headers
        assert "anthropic-beta" not in request.headers


async def test_feature_headers_come_from_the_request_and_the_users_headers_win() -> None:
    async with faulty_server(replies(TEXT)) as server:
        access = VendorAccess(
            tokens=StaticTokenSource(KEY),
            transport=AiohttpTransport(),
            base_url=server.url,
            headers={"User-Agent": "mine", "X-Team": "tern"},
        )
        client = make_client(VENDORS["anthropic"], access)
        await ask(client, replace(REQUEST, betas={"a-2025": True}))
        await client.close()
        headers = server.requests[0].headers
        assert (headers["user-agent"], headers["x-team"]) == ("mine", "tern")
        assert headers["anthropic-beta"] == "a-2025"


async def test_a_login_is_sent_as_bearer_with_the_identity_first() -> None:
    async with faulty_server(replies(TEXT)) as server:
        client = client_for(server.url, StaticTokenSource("token-of-a-login", kind="oauth"))
        await ask(
            client, replace(REQUEST, system=("Be brief.",), betas={"oauth-2025-04-20": False})
        )
        await client.close()
        (request,) = server.requests
        assert request.headers["authorization"] == "Bearer token-of-a-login"
        assert "x-api-key" not in request.headers
        assert request.headers["anthropic-beta"] == "oauth-2025-04-20"
        texts = [block["text"] for block in json.loads(request.body)["system"]]
        assert texts == [IDENTITY, "Be brief."]


async def test_a_key_does_without_the_identity() -> None:
    async with faulty_server(replies(TEXT)) as server:
        client = client_for(server.url)
        await ask(client)
        await client.close()
        assert "system" not in json.loads(server.requests[0].body)


async def test_the_token_is_asked_for_once_per_request() -> None:
    asked = []

    async def token() -> str:
        asked.append(1)
        return f"key-{len(asked)}"

    async with faulty_server(replies(TEXT)) as server:
        client = client_for(server.url, CallableTokenSource(token))
        for _ in range(3):
            await ask(client)
        await client.close()
        sent = [request.headers["x-api-key"] for request in server.requests]
        assert sent == ["key-1", "key-2", "key-3"]


def test_a_path_cannot_leave_the_origin_however_it_is_written() -> None:
    endpoint = ProviderEndpoint(base_url="http://127.0.0.1:1/x")
    assert endpoint.url("../../@127.0.0.1:2/").startswith("http://127.0.0.1:1/")


@pytest.mark.parametrize("url", ["", "api.example.org", "ftp://example.org", "http://"])
def test_a_base_url_that_is_none_is_refused_when_the_client_is_made(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WireModelClient(
            provider="x",
            protocol=PROTOCOL,
            endpoint=ProviderEndpoint(base_url=url),
            tokens=StaticTokenSource(KEY),
            transport=AiohttpTransport(),
        )
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert "base_url" in caught.value.message


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://a.example", "https://a.example/v1/messages"),
        ("https://a.example/", "https://a.example/v1/messages"),
        ("https://a.example/v1", "https://a.example/v1/messages"),
        ("https://a.example/proxy/v1/", "https://a.example/proxy/v1/messages"),
    ],
)
def test_a_base_url_may_have_the_version_or_not(base: str, url: str) -> None:
    assert ProviderEndpoint(base_url=base).url("/v1/messages") == url


def test_an_endpoint_may_ask_for_a_query() -> None:
    endpoint = ProviderEndpoint(base_url="https://a.example/x", query={"api-version": "2026-01-01"})
    asked = "https://a.example/x/messages?region=eu&api-version=2026-01-01"
    assert endpoint.url("/messages?region=eu") == asked
    assert endpoint.url("/other") == "https://a.example/x/other?api-version=2026-01-01"


async def test_tokens_are_counted_by_the_provider() -> None:
    async with faulty_server(refuses(200, b'{"input_tokens": 14}')) as server:
        client = client_for(server.url)
        assert await client.count_tokens(REQUEST) == TokenCount(tokens=14, exact=True)
        await client.close()
        (request,) = server.requests
        assert request.path == "/v1/messages/count_tokens"
        assert set(json.loads(request.body)) == {"model", "messages"}


async def test_tokens_are_estimated_where_a_protocol_cannot_count() -> None:
    client = WireModelClient(
        provider="x",
        protocol=replace(PROTOCOL, encode_count=None),
        endpoint=ProviderEndpoint(base_url="http://127.0.0.1:1"),
        tokens=None,
        transport=AiohttpTransport(),
    )
    count = await client.count_tokens(REQUEST)
    assert not count.exact
    assert 0 < count.tokens < 60
    await client.close()


async def test_tools_get_their_own_names_back() -> None:
    dotted = ToolSpec(name="sea.weather")
    calls = case("thinking_and_tools").replace(b'"weather"', b'"sea_weather"')
    request = ModelRequest(
        model="claude-sonnet-5",
        messages=(
            user(TextPart(text="Hi")),
            assistant(ToolCallPart(call_id=CallId("call:1"), name="sea.weather")),
            user(ToolResultPart(call_id=CallId("call:1"), name="sea.weather")),
        ),
        tools=(dotted,),
    )
    async with faulty_server(replies(calls)) as server:
        client = client_for(server.url)
        parts, error = await ask(client, request)
        await client.close()
        assert error is None
        names = [part.name for part in parts if isinstance(part, PartOpened) and part.name]
        assert names == ["sea.weather", "sea.weather", "now"]
        body = json.loads(server.requests[0].body)
        assert body["tools"][0]["name"] == "sea_weather"
        call, result = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
        assert call["name"] == "sea_weather"
        assert call["id"] == result["tool_use_id"] != "call:1"


async def test_cancelling_the_task_closes_the_connection() -> None:
    seen = asyncio.Event()

    async def read(client: WireModelClient) -> None:
        async for _ in client.stream(REQUEST):
            seen.set()

    async with faulty_server(
        stalls_after(TEXT[: TEXT.index(b"event: content_block_stop")])
    ) as server:
        client = client_for(server.url)
        task = asyncio.ensure_future(read(client))
        await seen.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await server.until_no_connection_is_left()
        await client.close()


async def test_one_read_is_one_list() -> None:
    async with faulty_server(replies(TEXT)) as server:
        client = client_for(server.url)
        batches = [len(batch) async for batch in client.stream(REQUEST)]
        await client.close()
        assert batches == [6]


async def test_two_streams_at_once_do_not_mix() -> None:
    async def answer(connection: Connection) -> None:
        text = json.loads(connection.request.body)["messages"][0]["content"][0]["text"]
        await replies(TEXT.replace(b"world", text.encode()), size=5)(connection)

    async with faulty_server(answer) as server:
        client = client_for(server.url)
        asked = ["ana", "bo", "cy"]
        requests = [replace(REQUEST, messages=(user(TextPart(text=text)),)) for text in asked]
        answers = await asyncio.gather(*(ask(client, request) for request in requests))
        await client.close()
        assert [text_of(parts) for parts, _ in answers] == [f"Grüße, {text} 🌍" for text in asked]


def test_a_transport_serves_one_loop_after_another() -> None:
    transport = AiohttpTransport()

    async def once() -> str:
        async with faulty_server(replies(TEXT, size=400)) as server:
            access = VendorAccess(
                tokens=StaticTokenSource(KEY), transport=transport, base_url=server.url
            )
            client = make_client(VENDORS["anthropic"], access)
            stream = client.stream(REQUEST)
            parts = [part async for batch in stream for part in batch]
            # The server waits for its connections to end; a pool keeps them.
            server.connections = 0
            server._none_left.set()
            return text_of(parts)

    assert asyncio.run(once()) == asyncio.run(once()) == "Grüße, world 🌍"
    asyncio.run(transport.close())


class WatchedLoop(asyncio.SelectorEventLoop):
    """Does something in another thread the next time that it is asked whether it is closed."""

    meanwhile: Callable[[], object] | None = None

    def is_closed(self) -> bool:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            in_another_thread(act)
        return super().is_closed()


def in_another_thread(act: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(act).result()


async def send_in_vain(transport: AiohttpTransport) -> ErrorCode:
    """Use the pool of this loop, for a request that reaches no server."""
    request = HttpRequest(url="http://127.0.0.1:9", headers={})
    with pytest.raises(AgentError) as caught:
        await transport.send(request)
    return caught.value.code


def transport_with_a_loop_that_ended() -> tuple[AiohttpTransport, WatchedLoop]:
    transport, loop = AiohttpTransport(), WatchedLoop()
    loop.run_until_complete(send_in_vain(transport))
    loop.close()
    return transport, loop


def test_a_transport_serves_the_loops_of_several_threads_at_the_same_time() -> None:
    transport, ended = transport_with_a_loop_that_ended()
    ended.meanwhile = lambda: asyncio.run(send_in_vain(transport))
    assert asyncio.run(send_in_vain(transport)) is ErrorCode.NETWORK
    asyncio.run(transport.close())


def test_a_transport_that_another_thread_closes_meanwhile_makes_no_new_pool() -> None:
    transport, ended = transport_with_a_loop_that_ended()
    ended.meanwhile = lambda: asyncio.run(transport.close())
    assert asyncio.run(send_in_vain(transport)) is ErrorCode.CLOSED


def test_closing_a_transport_does_not_wait_for_a_loop_that_stops_meanwhile() -> None:
    transport, other = AiohttpTransport(), asyncio.new_event_loop()
    stopping, may_stop = threading.Event(), threading.Event()

    def stop() -> None:
        # What is handed to the loop from now on waits for its next turn, which does not come.
        other.stop()
        stopping.set()
        may_stop.wait()

    def run() -> None:
        other.run_until_complete(send_in_vain(transport))
        other.call_soon(stop)
        other.run_forever()

    async def close() -> None:
        closing = asyncio.ensure_future(transport.close())
        await asyncio.sleep(0)  # noqa: TID251 - it begins
        await asyncio.sleep(0)  # noqa: TID251 - and hands the pool to the other loop
        may_stop.set()
        await closing

    with ThreadPoolExecutor(1) as thread:
        ran = thread.submit(run)
        stopping.wait()
        asyncio.run(close())
        ran.result()
    other.close()


OPEN_A_SESSION = """
import asyncio, sys
from haptera import Agent

async def main() -> None:
    async with Agent("anthropic/claude-sonnet-5", api_key="sk-x", store="memory") as agent:
        async with agent.session("one"):
            sys.exit("aiohttp" in sys.modules)

asyncio.run(main())
"""


def test_the_http_client_is_not_loaded_before_a_request_is_made() -> None:
    code = [sys.executable, "-c", OPEN_A_SESSION]
    assert subprocess.run(code, check=False).returncode == 0


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY} ", f"{KEY}\r\n"])
async def test_a_key_out_of_a_file_leaves_its_line_end_behind(key: str) -> None:
    async with faulty_server(replies(TEXT)) as server:
        client = client_for(server.url, CallableTokenSource(lambda: key))
        await ask(client)
        await client.close()
    assert server.requests[0].headers["x-api-key"] == KEY


@pytest.mark.parametrize("broken", ["in\nside", "in\rside", "in\x00side"])
async def test_what_no_header_can_hold_is_refused_at_once_and_not_repeated(broken: str) -> None:
    async with faulty_server(replies(TEXT)) as server:
        client = client_for(server.url, StaticTokenSource(broken))
        _, error = await ask(client)
        await client.close()
    assert error is not None
    assert (error.code, error.retryable) == (ErrorCode.CONFIG_INVALID, False)
    assert "side" not in f"{error}{error.__cause__}"


async def test_a_server_without_tls_is_told_from_one_that_is_down() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        client = client_for(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        _, error = await ask(client)
        await client.close()
    assert error is not None
    assert (error.code, "TLS" in error.message) == (ErrorCode.NETWORK, True)


async def test_a_page_is_one_however_its_type_is_spelt() -> None:
    page = replies(b"<title>Sign in</title>", headers={"content-type": "Text/HTML"})
    async with faulty_server(page) as server:
        client = client_for(server.url)
        _, error = await ask(client)
        await client.close()
    assert error is not None
    assert (error.code, error.message) == (ErrorCode.PROTOCOL, "Sign in")
