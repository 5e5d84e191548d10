"""However a provider fails: one typed error or success, and no connection left behind."""

import msgspec
import pytest
from msgspec.structs import replace

from haptera.model.errors import ErrorCode
from haptera.model.settings import Timeouts
from haptera.model.stream_parts import StreamFinished
from tests.providers.exchanges import QUICK, REQUEST, ask, case, client_for, text_of
from tests.providers.faulty_server import (
    Answer,
    Connection,
    cut_after,
    faulty_server,
    refuses,
    replies,
    stalls_after,
    zipped,
)

TEXT = case("text")
SOME = TEXT[: TEXT.index(b'"world') + 3]
"""The reply cut in the middle of its second delta."""
FRAMES = TEXT[: TEXT.index(b"event: content_block_stop")]
"""The reply cut between two frames."""

RATE = b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"}}'
OVERLOADED = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
BROKEN = b'{"type":"error","error":{"type":"api_error","message":"Internal server error"}}'
NOT_YOU = b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'

IN_THE_FUTURE = {
    "date": "Wed, 21 Oct 2026 07:28:00 GMT",
    "retry_after": "Wed, 21 Oct 2026 07:28:09 GMT",
}
IN_THE_PAST = {
    "date": "Wed, 21 Oct 2026 07:28:00 GMT",
    "retry_after": "Wed, 21 Oct 2026 07:27:00 GMT",
}


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal, and what is to become of it."""

    status: int
    body: bytes
    headers: dict[str, str] = {}
    code: ErrorCode
    retry_after: float | None = None


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(
            status=429,
            body=RATE,
            headers={"retry_after": "7"},
            code=ErrorCode.RATE_LIMITED,
            retry_after=7.0,
        ),
        Refusal(
            status=429,
            body=RATE,
            headers={"retry_after_ms": "3890", "retry_after": "7"},
            code=ErrorCode.RATE_LIMITED,
            retry_after=3.89,
        ),
        Refusal(
            status=429,
            body=RATE,
            headers=IN_THE_FUTURE,
            code=ErrorCode.RATE_LIMITED,
            retry_after=9.0,
        ),
        Refusal(status=429, body=RATE, headers=IN_THE_PAST, code=ErrorCode.RATE_LIMITED),
        Refusal(status=429, body=RATE, headers={"retry_after": "x"}, code=ErrorCode.RATE_LIMITED),
        Refusal(status=529, body=OVERLOADED, code=ErrorCode.OVERLOADED),
        Refusal(status=500, body=BROKEN, code=ErrorCode.SERVER_ERROR),
        Refusal(status=401, body=NOT_YOU, code=ErrorCode.AUTH),
    ],
)
async def test_a_refusal_is_one_typed_error_and_one_request(refusal: Refusal) -> None:
    async with faulty_server(refuses(refusal.status, refusal.body, **refusal.headers)) as server:
        client = client_for(server.url)
        parts, error = await ask(client)
        await client.close()
        assert parts == []
        assert error is not None
        assert (error.code, error.status) == (refusal.code, refusal.status)
        assert error.retry_after == refusal.retry_after
        assert (error.provider, error.request_id) == ("anthropic", "req_of_the_header")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        pytest.param(cut_after(FRAMES, by_reset=True), "STREAM_INTERRUPTED", None, id="reset"),
        pytest.param(cut_after(SOME, by_reset=False), "STREAM_INTERRUPTED", "Grüße, ", id="cut"),
        pytest.param(replies(SOME), "STREAM_INTERRUPTED", "Grüße, ", id="ends mid-frame"),
        pytest.param(replies(FRAMES), "STREAM_INTERRUPTED", "Grüße, world 🌍", id="no end"),
        pytest.param(stalls_after(FRAMES), "TIMEOUT", "Grüße, world 🌍", id="stall"),
        pytest.param(stalls_after(b""), "TIMEOUT", "", id="no reply"),
        pytest.param(
            replies(FRAMES + b"data: {not json}\n\n"), "PROTOCOL", "Grüße, world 🌍", id="no json"
        ),
        pytest.param(
            replies(FRAMES + b"event: error\ndata: " + OVERLOADED + b"\n\n"),
            "OVERLOADED",
            "Grüße, world 🌍",
            id="error after text",
        ),
        pytest.param(replies(b""), "STREAM_INTERRUPTED", "", id="empty"),
        pytest.param(
            replies(BROKEN, headers={"content-type": "application/json"}),
            "SERVER_ERROR",
            "",
            id="an error with status 200",
        ),
        pytest.param(
            replies(b"<html><title>Log in</title></html>", headers={"content-type": "text/html"}),
            "PROTOCOL",
            "",
            id="a page with status 200",
        ),
    ],
)
async def test_a_broken_stream_gives_what_came_and_then_one_typed_error(
    answer: Answer, code: str, text: str | None
) -> None:
    async with faulty_server(answer) as server:
        client = client_for(server.url)
        parts, error = await ask(client, replace(REQUEST, timeouts=QUICK))
        await client.close()
        assert error is not None
        assert error.code == code
        # A reset may overtake what was sent before it.
        assert text is None or text_of(parts) == text
        assert not any(isinstance(part, StreamFinished) for part in parts)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(replies(TEXT), id="whole"),
        pytest.param(replies(TEXT, size=1), id="byte by byte"),
        pytest.param(zipped(TEXT), id="gzip"),
        pytest.param(replies(TEXT.replace(b"\n", b"\r\n"), size=3), id="CRLF"),
        pytest.param(replies(TEXT.rstrip(b"\n")), id="no last blank line"),
        pytest.param(cut_after(TEXT, by_reset=False), id="cut after the end"),
        pytest.param(stalls_after(TEXT), id="open after the end"),
    ],
)
async def test_a_whole_answer_is_read_however_it_arrives(answer: Answer) -> None:
    async with faulty_server(answer) as server:
        client = client_for(server.url)
        parts, error = await ask(client)
        await client.close()
        assert error is None
        assert text_of(parts) == "Grüße, world 🌍"
        assert [part for part in parts if isinstance(part, StreamFinished)] == parts[-1:]


async def test_a_refused_connection_is_a_network_error() -> None:
    async with faulty_server(replies(TEXT)) as server:
        url = server.url
    client = client_for(url)
    parts, error = await ask(client)
    await client.close()
    assert (parts, error and error.code) == ([], ErrorCode.NETWORK)


async def test_a_host_that_does_not_exist_is_a_network_error() -> None:
    client = client_for("http://host.invalid")
    _, error = await ask(client)
    await client.close()
    assert error is not None
    assert error.code is ErrorCode.NETWORK


async def test_a_pause_is_shorter_than_the_wait_for_the_first_byte() -> None:
    timeouts = Timeouts(first_byte=3_600.0, between_bytes=0.2, content=3_600.0)
    async with faulty_server(stalls_after(FRAMES)) as server:
        client = client_for(server.url)
        parts, error = await ask(client, replace(REQUEST, timeouts=timeouts))
        await client.close()
        assert text_of(parts) == "Grüße, world 🌍"
        assert error is not None
        assert error.code is ErrorCode.TIMEOUT


async def test_keep_alives_without_content_time_out() -> None:
    timeouts = Timeouts(first_byte=5.0, between_bytes=5.0, content=0.0)
    answer = stalls_after(b'event: ping\ndata: {"type":"ping"}\n\n')
    async with faulty_server(answer) as server:
        client = client_for(server.url)
        _, error = await ask(client, replace(REQUEST, timeouts=timeouts))
        await client.close()
        assert error is not None
        assert error.code is ErrorCode.TIMEOUT


async def test_leaving_a_stream_early_closes_its_connection() -> None:
    async with faulty_server(stalls_after(FRAMES)) as server:
        client = client_for(server.url)
        stream = client.stream(REQUEST)
        await anext(stream)
        assert server.connections == 1
        await stream.aclose()
        await server.until_no_connection_is_left()
        await client.close()


async def test_a_finished_stream_gives_its_connection_back() -> None:
    async with faulty_server(replies(TEXT)) as server:
        client = client_for(server.url)
        for _ in range(3):
            _, error = await ask(client)
            assert error is None
        assert (len(server.requests), server.connections_ever) == (3, 1)
        await client.close()


async def test_a_kept_connection_that_the_server_closed_is_not_an_error() -> None:
    async def answer(connection: Connection) -> None:
        if server.connections_ever == 1 and len(server.requests) > 1:
            return
        await replies(TEXT)(connection)

    async with faulty_server(answer) as server:
        client = client_for(server.url)
        for _ in range(2):
            parts, error = await ask(client)
            assert error is None
            assert text_of(parts) == "Grüße, world 🌍"
        await client.close()
        assert server.connections_ever == 2


async def test_a_new_connection_that_the_server_closes_is_a_network_error() -> None:
    async def answer(connection: Connection) -> None:
        pass

    async with faulty_server(answer) as server:
        client = client_for(server.url)
        _, error = await ask(client)
        await client.close()
        assert error is not None
        assert error.code is ErrorCode.NETWORK
        assert len(server.requests) == 1


async def test_a_redirect_is_not_followed() -> None:
    async with faulty_server(replies(TEXT)) as other:
        elsewhere = refuses(307, b"", location=f"{other.url}/v1/messages")
        async with faulty_server(elsewhere) as server:
            client = client_for(server.url)
            _, error = await ask(client)
            await client.close()
            assert error is not None
            assert error.code is ErrorCode.CONFIG_INVALID
            assert "base_url" in error.message
        assert other.requests == []


async def test_a_closed_client_sends_nothing() -> None:
    async with faulty_server(replies(TEXT)) as server:
        client = client_for(server.url)
        await client.close()
        _, error = await ask(client)
        assert error is not None
        assert error.code is ErrorCode.CLOSED
        assert server.requests == []


async def test_a_key_in_an_error_is_taken_out() -> None:
    async def echo(connection: Connection) -> None:
        key = connection.request.headers["x-api-key"]
        body = b'{"error":{"type":"api_error","message":"bad key %b"}}' % key.encode()
        await refuses(500, body)(connection)

    async with faulty_server(echo) as server:
        client = client_for(server.url)
        _, error = await ask(client)
        await client.close()
        assert error is not None
        assert error.message == "bad key ****"


async def test_an_answer_that_is_not_http_is_a_protocol_error() -> None:
    async def answer(connection: Connection) -> None:
        await connection.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")

    async with faulty_server(answer) as server:
        client = client_for(server.url)
        _, error = await ask(client)
        await client.close()
        assert error is not None
        assert error.code is ErrorCode.PROTOCOL
