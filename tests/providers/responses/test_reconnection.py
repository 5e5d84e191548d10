"""A response that runs in the background is read on when its connection breaks."""

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from haptera import Agent, TurnDiscarded, tool
from haptera.model.errors import ErrorCode
from haptera.model.json_types import JsonObject
from haptera.providers.client import WireModelClient
from haptera.providers.transport.http import AiohttpTransport
from haptera.providers.vendor_clients import VendorAccess, make_client
from haptera.providers.vendors import VENDORS
from haptera.system.token_sources import StaticTokenSource
from haptera.testing import FakeClock
from haptera.testing.clocks import AutoClock
from tests.providers.exchanges import QUICK, REQUEST, ask, text_of
from tests.providers.faulty_server import Connection, FaultyServer, faulty_server, refuses

WORDS = ("One ", "two ", "three ", "four")


class Cut(msgspec.Struct, frozen=True):
    """How a connection ends early: after how many events, and how."""

    events: int
    way: str = "end"
    """`end`, `reset`, `stall`, `mid-frame`, or the status of a refusal."""


class Keeper:
    """A provider that keeps its response, and breaks one connection after the other."""

    def __init__(self, events: list[JsonObject], *cuts: Cut) -> None:
        numbered = [each | {"sequence_number": place} for place, each in enumerate(events)]
        self.frames = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in numbered]
        self.cuts = list(cuts)

    async def __call__(self, connection: Connection) -> None:
        cut = self.cuts.pop(0) if self.cuts else None
        if cut is not None and cut.way.isdigit():
            return await refuses(int(cut.way), b'{"error":{"message":"no"}}')(connection)
        query = parse_qs(urlsplit(connection.request.path).query)
        start = int(query["starting_after"][0]) + 1 if "starting_after" in query else 0
        await connection.head()
        if cut is None:
            await connection.piece(b"".join(self.frames[start:]))
            return await connection.end()
        end = start + cut.events
        await connection.piece(b"".join(self.frames[start:end]))
        await self._break(connection, cut.way, self.frames[end])
        return None

    async def _break(self, connection: Connection, way: str, following: bytes) -> None:
        match way:
            case "end":
                await connection.end()
            case "reset":
                connection.reset()
            case "stall":
                await asyncio.Event().wait()
            case _:
                await connection.piece(following[: len(following) // 2])
                connection.reset()


def response(*, is_background: bool = True, **more: object) -> JsonObject:
    return {"id": "resp_7", "model": "gpt-5", "background": is_background, "store": True} | more


def answer(*, is_background: bool = True) -> list[JsonObject]:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    return [
        {"type": "response.created", "response": response(is_background=is_background)},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({"type": "response.output_text.delta", "output_index": 0, "delta": w} for w in WORDS),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response(status="completed")},
    ]


def client_for(server: FaultyServer, clock: FakeClock | None) -> WireModelClient:
    access = VendorAccess(
        tokens=StaticTokenSource("sk-made-up"),
        transport=AiohttpTransport(),
        base_url=f"{server.url}/v1",
        clock=clock,
    )
    return make_client(VENDORS["openai"], access)


@pytest.mark.parametrize("way", ["end", "reset", "mid-frame", "stall"])
@pytest.mark.parametrize("place", range(1, len(answer())))
async def test_an_answer_cut_at_any_event_comes_whole(place: int, way: str) -> None:
    clock = AutoClock()
    async with faulty_server(Keeper(answer(), Cut(place, way))) as server:
        client = client_for(server, clock)
        parts, error = await ask(client, msgspec.structs.replace(REQUEST, timeouts=QUICK))
        await client.close()
    async with faulty_server(Keeper(answer())) as server:
        client = client_for(server, clock)
        expected, _ = await ask(client)
        await client.close()
    assert error is None
    assert parts == expected
    assert text_of(parts) == "One two three four"
    assert clock.sleeps == [1.0]


async def test_the_rest_is_asked_for_with_the_key_and_where_it_broke_off() -> None:
    async with faulty_server(Keeper(answer(), Cut(4))) as server:
        client = client_for(server, AutoClock())
        await ask(client)
        await client.close()
    first, second = server.requests
    assert (first.path, bool(first.body)) == ("/v1/responses", True)
    assert second.path == "/v1/responses/resp_7?stream=true&starting_after=3"
    assert second.body == b""
    assert "content-type" not in second.headers
    assert second.headers["authorization"] == "Bearer sk-made-up"


async def test_azure_keeps_what_runs_in_the_background_too() -> None:
    async with faulty_server(Keeper(answer(), Cut(4))) as server:
        access = VendorAccess(
            tokens=StaticTokenSource("sk-made-up"),
            transport=AiohttpTransport(),
            base_url=server.url,
            clock=AutoClock(),
        )
        client = make_client(VENDORS["azure-responses"], access)
        parts, error = await ask(client)
        await client.close()
    assert (text_of(parts), error) == ("One two three four", None)
    assert server.requests[1].path == "/openai/v1/responses/resp_7?stream=true&starting_after=3"
    assert server.requests[1].headers["api-key"] == "sk-made-up"


async def test_a_client_that_gets_something_new_each_time_connects_again_without_limit() -> None:
    clock = AutoClock()
    async with faulty_server(Keeper(answer(), *[Cut(1)] * 7)) as server:
        client = client_for(server, clock)
        parts, error = await ask(client)
        await client.close()
    assert error is None
    assert text_of(parts) == "One two three four"
    # The created event, shown before, and the item's end give nothing new to show.
    assert max(clock.sleeps) <= 2.0


@pytest.mark.parametrize(
    ("cuts", "waits"),
    [
        ((Cut(4), Cut(0, "503"), Cut(0, "500"), Cut(0, "429")), [1.0, 2.0, 4.0]),
        ((Cut(4), Cut(0), Cut(0, "reset"), Cut(0)), [1.0, 2.0, 4.0]),
        ((Cut(4), Cut(0, "404")), [1.0]),
    ],
)
async def test_a_client_that_gets_nothing_new_ends_as_interrupted(
    cuts: tuple[Cut, ...], waits: list[float]
) -> None:
    clock = AutoClock()
    async with faulty_server(Keeper(answer(), *cuts)) as server:
        client = client_for(server, clock)
        parts, error = await ask(client)
        await client.close()
    assert error is not None
    assert error.code is ErrorCode.STREAM_INTERRUPTED
    assert text_of(parts) == "One two "
    assert clock.sleeps == waits


async def test_a_response_that_is_not_kept_is_not_asked_for() -> None:
    async with faulty_server(Keeper(answer(is_background=False), Cut(4))) as server:
        client = client_for(server, AutoClock())
        _, error = await ask(client)
        await client.close()
    assert error is not None
    assert error.code is ErrorCode.STREAM_INTERRUPTED
    assert len(server.requests) == 1


async def test_a_wait_for_the_rest_can_be_given_up() -> None:
    clock = FakeClock()
    async with faulty_server(Keeper(answer(), Cut(4))) as server:
        client = client_for(server, clock)
        asking = asyncio.ensure_future(ask(client))
        await clock.until_sleeping()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await client.close()
    assert len(server.requests) == 1


def call(arguments: str) -> JsonObject:
    named = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "pay"}
    return named | {"arguments": arguments}


async def test_a_call_cut_in_its_arguments_runs_once_and_no_turn_is_repeated() -> None:
    paid: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    piece: JsonObject = {"type": "response.function_call_arguments.delta", "output_index": 0}
    calling: list[JsonObject] = [
        {"type": "response.created", "response": response()},
        {"type": "response.output_item.added", "output_index": 0, "item": call("")},
        piece | {"delta": '{"amount"'},
        piece | {"delta": ": 12}"},
        {"type": "response.output_item.done", "output_index": 0, "item": call('{"amount": 12}')},
        {"type": "response.completed", "response": response(status="completed")},
    ]
    keepers = [Keeper(calling, Cut(3, "mid-frame")), Keeper(answer(), Cut(4, "reset"))]

    async def serve(connection: Connection) -> None:
        is_new = bool(connection.request.body)
        if is_new and len(asked) > 0:
            keepers.pop(0)
        if is_new:
            asked.append(json.loads(connection.request.body))
        await keepers[0](connection)

    asked: list[JsonObject] = []
    async with faulty_server(serve) as server:
        agent = Agent(
            "openai/gpt-5",
            api_key="sk-made-up",
            base_url=f"{server.url}/v1",
            tools=[pay],
            betas={"background": True},
            clock=AutoClock(),
        )
        async with agent, agent.session() as session, session.stream("Pay 12") as stream:
            events = [event async for event in stream]
            result = await stream.result()
    assert result.text == "One two three four"
    assert paid == [12]
    assert len(asked) == 2
    assert all(body["background"] and body["stream"] for body in asked)
    assert not any(isinstance(event, TurnDiscarded) for event in events)
