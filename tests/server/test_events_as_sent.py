"""Events as clients get them: one encoding, over SSE, JSON-RPC and `stream-json` alike."""

import io
import json
from typing import Any

import jsonschema
import pytest

from haptera.cli.choices import Choices
from haptera.cli.one_shot import StreamJsonPrinter
from haptera.cli.terminal import Output
from haptera.model.entry_bytes import decode_entry
from haptera.model.schemas import stream_json_schema
from haptera.server.app import OPERATIONS
from haptera.server.openapi import document
from haptera.stores.memory import MemoryStore
from haptera.testing import says
from tests.scripted_agents import make_agent
from tests.server.rpc_client import websocket
from tests.server.serving import Sent, serving

LATER = (
    b'{"kind":"future.thing", "id":"evt_2","time":7,"seq":2,\n "deep":{"b":[1,2.50]},"type":"x"}'
)
WIDER = b'{"kind":"turn.started","id":"evt_3","time":8,"seq":3,"turn_id":"t","message_id":"m",'
WIDER += b'"provider":"p","model":"m","later":[1e999]}'
BROKEN = b'{"kind":"a\\nevent: b\\"","id":"evt_4","time":9,"seq":4}'
NATIVE = b'{"kind":"query.ended","id":"evt_5","time":9,"seq":5,"stop_reason":"complete",'
NATIVE += b'"native_session_id":"n1","later":1}'
BEGUN = b'{"kind":"part.checkpoint","id":"evt_6","time":9,"seq":6,"part_id":"p","offset":0,'
BEGUN += b'"text":"Hel"}'
ENDED = b'{"kind":"part.ended","id":"evt_7","time":9,"seq":7,"part_id":"p","offset":3,'
ENDED += b'"part":{"type":"text","text":"lo","later":2},"later":1}'
STORED = (LATER, WIDER, BROKEN, NATIVE, BEGUN, ENDED)


def values(data: bytes) -> Any:
    """Read JSON; a number may be one that only this notation can hold."""
    return json.loads(data, parse_float=str)


AS_SENT = [values(each) for each in STORED]
AS_SENT[3] |= {"cliSessionId": "n1", "sdkSessionId": "n1"}
AS_SENT[5] |= {"part": {"type": "text", "text": "Hello", "later": 2}}
del AS_SENT[5]["offset"]
NAMES = ["future.thing", "turn.started", "unknown", "query.ended", "part.checkpoint", "part.ended"]


async def _store_later_entries(store: MemoryStore, session_id: Any) -> None:
    lease = await store.leases.acquire(session_id, "a later version")
    await store.log.append(lease, [decode_entry(each) for each in STORED])
    await store.leases.release(lease)


async def test_entries_of_a_later_version_are_sent_as_they_are_stored_over_http() -> None:
    store = MemoryStore()
    agent, _ = make_agent([], store=store)
    async with serving(agent) as served:
        session_id = await served.new_session()
        await _store_later_entries(store, session_id)
        path = f"{served.url}/api/v1/sessions/{session_id}/events?after=1&follow=false"
        async with served.client.get(path) as answer:
            frames = (await answer.read()).split(b"\n\n")[1:-2]
    got: list[Sent] = []
    for frame in frames:
        number, kind, data = frame.split(b"\n")
        seq = int(number.removeprefix(b"id: "))
        name = kind.removeprefix(b"event: ").decode()
        got.append(Sent(name, values(data.removeprefix(b"data: ")), seq))
    assert [each.data for each in got] == AS_SENT
    assert [(each.kind, each.seq) for each in got] == list(zip(NAMES, range(2, 8), strict=True))


async def test_entries_of_a_later_version_are_sent_as_they_are_stored_over_json_rpc() -> None:
    store = MemoryStore()
    agent, _ = make_agent([], store=store)
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("session/create"))["id"]
        await _store_later_entries(store, session_id)
        await client.call("session/events", session_id=session_id, after=1, follow=False)
        got = [(await client.others.get())["params"] for _ in STORED]
    assert [each["kind"] for each in got] == NAMES
    told = [json.loads(json.dumps(each["event"])) for each in got]
    assert [each["seq"] for each in told] == [each["seq"] for each in got] == list(range(2, 8))
    assert (told[0]["kind"], told[0]["deep"]) == ("future.thing", {"b": [1, 2.5]})
    assert told[3]["cliSessionId"] == "n1"
    assert not [each for each in told if "raw" in each or "stored_kind" in each]


@pytest.mark.parametrize("place", range(len(STORED)))
def test_entries_of_a_later_version_are_lines_of_stream_json_that_match_the_schema(
    place: int,
) -> None:
    out = io.StringIO()
    entry = decode_entry(STORED[place])
    StreamJsonPrinter(Choices(output_format="stream-json"), Output(out, out)).show(entry)
    (line,) = out.getvalue().splitlines()
    told = values(line.encode())
    assert told.pop("type") == entry.kind
    expected = AS_SENT[place] if entry.kind != "part.ended" else values(STORED[place])
    assert told == {name: each for name, each in expected.items() if name != "type"}
    checker = jsonschema.Draft202012Validator(stream_json_schema())
    if b"1e999" not in STORED[place]:
        checker.validate(json.loads(line))


def test_the_published_schemas_have_the_names_of_native_sessions_and_no_bytes() -> None:
    for shapes in (stream_json_schema()["$defs"], document(OPERATIONS)["components"]["schemas"]):
        assert {"native_session_id", "cliSessionId", "sdkSessionId"} <= set(
            shapes["QueryEnded"]["properties"]
        )
        assert not [name for name, shape in shapes.items() if "raw" in shape.get("properties", ())]


async def test_streams_get_the_batches_of_a_session_and_leave_nothing_behind() -> None:
    agent, _ = make_agent([says("Hel", "lo"), says("again")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        wait = {"prefer": "wait=30"}
        async with (
            served.events("/api/v1/events") as every,
            served.events(f"{path}/events") as one,
            served.events(f"{path}/events") as other,
        ):
            await served.call("POST", f"{path}/messages", {"content": "go"}, headers=wait)
            session = served.app.hub.open_here("local", session_id)
            assert session is not None
            channel: Any = session._opened().channel
            # No handler is called for each event: only the two that wait for answers.
            assert (len(channel), len(channel._handlers())) == (5, 2)
            for stream, is_wrapped in ((every, True), (one, False), (other, False)):
                texts = []
                async for event in stream:
                    data = (
                        event.data["event"] if is_wrapped and "event" in event.data else event.data
                    )
                    texts += [data["text"]] if event.kind == "text.delta" else []
                    if event.kind == "query.ended":
                        break
                assert texts == ["Hel", "lo"]
            (overview,) = served.app.hub._overviews["local"]
            assert len(overview._taps) == 1
            await served.app.hub.owner("local").discard(session_id)
            assert (len(overview._taps), len(channel)) == (0, 0)
            # The stream of all sessions and those of this one go on with the session as it is next.
            await served.call("POST", f"{path}/messages", {"content": "go"}, headers=wait)
            for stream in (every, one, other):
                kinds = []
                async for event in stream:
                    kinds.append(event.kind)
                    if event.kind == "query.ended":
                        break
                assert kinds.count("text.delta") == 1
        while served.app.hub.streams.open:
            await served.call("GET", "/healthz")
        assert [len(each) for each in served.app.hub._overviews.values()] == [0]
