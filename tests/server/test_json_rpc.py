"""JSON-RPC: the same operations as HTTP, errors, batches, calls at the same time, events."""

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import tool
from haptera.model.ids import new_session_id
from haptera.server import ServerSettings
from haptera.server.app import OPERATIONS
from haptera.server.operations import ServedOperation
from haptera.server.rpc_messages import error_to, read_rpc_message, rpc_error
from haptera.server.rpc_methods import RpcParams
from haptera.testing import calls, says
from haptera.testing.scripted_provider import Gate
from tests.scripted_agents import make_agent
from tests.server.rpc_client import CallError, RpcClient, websocket
from tests.server.serving import Served, serving

BY_RPC = {each.rpc: each for each in OPERATIONS if each.rpc is not None}
SESSION = {"session_id": "S"}


async def post(served: Served, content: Any, **headers: str) -> tuple[int, Any]:
    """Send one message to `POST /rpc`."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {"content-type": "application/json"} | headers
    return await served.call("POST", "/rpc", data=data, headers=headers)


async def result_of(served: Served, method: str, **params: Any) -> Any:
    """Call a method by `POST /rpc` and return its result."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    status, told = await post(served, request)
    assert status == 200
    if "error" in told:
        raise CallError(told["error"])
    return told["result"]


def test_every_operation_has_a_name_of_its_own_and_no_parameter_twice() -> None:
    without = {each.name for each in OPERATIONS if each.rpc is None}
    assert without == {"log_in", "log_out"}
    names = Counter(each.rpc for each in OPERATIONS if each.rpc is not None)
    assert set(names.values()) == {1}
    assert all(re.fullmatch(r"[a-z]+/[a-z_]+", name) for name in names)
    for operation in OPERATIONS:
        assert len(set(RpcParams.of(operation).names)) == len(RpcParams.of(operation).names)


SEQUENCE: list[tuple[str, dict[str, Any]]] = [
    ("server/health", {}),
    ("server/readiness", {}),
    ("server/openapi", {}),
    ("server/info", {}),
    ("server/load", {}),
    ("model/list", {}),
    ("tool/list", {}),
    ("session/create", {"id": "S", "title": "One", "tags": ["b", "a"], "metadata": {"x": 1}}),
    ("session/get", SESSION),
    ("session/update", {**SESSION, "title": "Two", "if_match": 2}),
    ("session/list", {"limit": 5}),
    ("session/count", {"metadata": {"tenant": "x"}, "tags": ["a", "b"]}),
    ("message/send", {**SESSION, "content": "hello", "id": "m1", "wait": 30}),
    ("message/send", {**SESSION, "content": "hello", "id": "m1"}),
    ("message/list", {**SESSION, "limit": 10}),
    ("message/send", {**SESSION, "content": "remove it", "wait": 30}),
    ("approval/list", SESSION),
    ("approval/answer", {**SESSION, "approval_id": "A", "decision": "reject_once"}),
    ("message/send", {**SESSION, "content": "and now?", "wait": 30}),
    ("query/cancel", {**SESSION, "query_id": "qry_gone"}),
    ("call/deliver", {**SESSION, "call": "none", "result": {"sent": True}}),
    ("session/resume", {**SESSION, "carry_on": False}),
    ("session/compact", SESSION),
    ("session/usage", SESSION),
    ("usage/list", {"limit": 3}),
    ("session/export", {**SESSION, "format": "markdown"}),
    ("session/export", SESSION),
    ("session/import", {"content": "EXPORTED", "name": "copy"}),
    ("session/fork", {**SESSION, "name": "branch"}),
    ("session/rewind", {**SESSION, "message_id": "M"}),
    ("share/create", SESSION),
    ("share/list", SESSION),
    ("share/read", {"token": "T"}),
    ("share/page", {"token": "T"}),
    ("share/revoke", {**SESSION, "share_id": "H"}),
    ("session/delete", SESSION),
    ("session/get", SESSION),
]
"""Calls one after another; capital letters stand for ids that are known by then."""


def test_the_sequence_has_every_operation_that_is_no_stream() -> None:
    streams = {"session/events", "events/all"}
    assert {name for name, _ in SEQUENCE} | streams == set(BY_RPC)


def _row(operation: ServedOperation) -> str:
    names = ", ".join(f"`{name}`" for name in RpcParams.of(operation).names)
    return f"| `{operation.rpc}` | {names} | `{operation.method} {operation.path}` |"


def test_the_page_lists_every_method_with_its_parameters() -> None:
    page = (Path(__file__).parents[2] / "docs/rpc.md").read_text()
    table = page.partition("<!-- table: methods -->\n")[2].partition("\n<!--")[0].splitlines()
    head = ["| method | parameters | result as of |", "| --- | --- | --- |"]
    assert table == [*head, *map(_row, sorted(BY_RPC.values(), key=lambda each: str(each.rpc)))]


class Script:
    """Plays the sequence, and fills in ids."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.known: dict[str, str] = {"S": new_session_id()}

    def filled(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return parameters with the ids that are known."""
        return {name: self.known.get(str(value), value) for name, value in params.items()}

    def note(self, name: str, told: Any) -> None:
        """Remember ids for later calls."""
        if name == "approval/list":
            self.known["A"] = told["data"][0]["id"]
        if name == "message/list":
            self.known["M"] = told["data"][-1]["message"]["id"]
        if name == "share/create":
            self.known |= {"T": told["token"], "H": told["id"]}
        if name == "session/export":
            self.known["EXPORTED"] = told["content"]

    async def by_rpc(self, name: str, params: dict[str, Any]) -> Any:
        """Call a method; a failure is its code."""
        try:
            told = await result_of(self.served, name, **self.filled(params))
        except CallError as failure:
            return failure.data["code"]
        self.note(name, told)
        return told

    async def by_http(self, name: str, params: dict[str, Any]) -> Any:
        """Call the route of the same operation; a failure is its code."""
        operation, given = BY_RPC[name], self.filled(params)
        known = RpcParams.of(operation)
        path = operation.path.format(**{key: given[key] for key in known.path})
        query = {key: _query_text(given[key]) for key in known.query if key in given}
        headers, body = {}, {key: given[key] for key in known.body if key in given}
        if "wait" in given:
            headers["prefer"] = f"wait={given['wait']}"
        if "if_match" in given:
            headers["if-match"] = f'"{given["if_match"]}"'
        more: dict[str, Any] = {"json": body} if known.body else {}
        if "content" in known.options:
            headers["content-type"] = "application/octet-stream"
            more = {"data": given["content"].encode()}
        async with self.served.client.request(
            operation.method, self.served.url + path, params=query, headers=headers, **more
        ) as answer:
            content = await answer.read()
            if answer.status >= 400:
                return json.loads(content)["code"]
            told = await self._result(operation, answer.headers, content)
        self.note(name, told)
        return told

    async def _result(self, operation: ServedOperation, headers: Any, content: bytes) -> Any:
        if operation.rpc not in {"session/export", "share/page"}:
            return json.loads(content) if content else None
        told = headers.get("content-disposition", '"session.html"')
        name = told.partition('"')[2].rstrip('"')
        media = headers["content-type"]
        return {"name": name, "media_type": media, "content": content.decode()}


def _remover() -> Any:
    @tool(approval="ask")
    def remove() -> str:
        """Remove it."""
        return "removed"

    return remove


def _alike(told: Any) -> str:
    """Return a result without what differs from run to run."""
    text = json.dumps(told, sort_keys=True)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r'"(streams|requests|longest_ms|[0-9]+)": [0-9.]+', r'"\1": 0', text)
    text = re.sub(r"[0-9A-Za-z_-]{40,}", "TOKEN", text)
    text = re.sub(r"sha256:[0-9a-f]+|[0-9a-f]{64}", "HASH", text)
    return re.sub(r"\b([a-z]{2,4})_[0-9a-zA-Z]{16,}", r"\1_ID", text)


@pytest.mark.slow
async def test_every_operation_answers_the_same_by_its_name_and_by_its_route() -> None:
    script = [says("hi"), calls(("remove", {})), says("kept"), says("Nothing."), says("A summary.")]
    told: dict[str, list[str]] = {}
    for way in ("by_http", "by_rpc"):
        agent, _ = make_agent(script, tools=[_remover()])
        async with serving(agent) as served:
            play = Script(served)
            one = getattr(play, way)
            told[way] = [_alike(await one(name, params)) for name, params in SEQUENCE]
    for (name, _), by_http, by_rpc in zip(SEQUENCE, *told.values(), strict=True):
        assert by_rpc == by_http, name
    assert told["by_rpc"][-1] == '"NOT_FOUND"'
    failed = [
        name for (name, _), each in zip(SEQUENCE, told["by_rpc"], strict=True) if each[0] == '"'
    ]
    # No call waits for an answer, and the session was deleted.
    assert failed == ["call/deliver", "session/get"]


def _query_text(value: Any) -> str:
    """Return a value as the query of a route has it."""
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(value) if isinstance(value, list) else str(value)


REQUEST = {"jsonrpc": "2.0", "id": 7}
ERRORS: list[tuple[Any, int, str, Any]] = [
    (b"{", -32700, "JSON_INVALID", None),
    (b"", -32700, "JSON_INVALID", None),
    (b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', -32700, "JSON_INVALID", None),
    (b"[" * 70 + b"]" * 70, -32600, "TOO_DEEP", None),
    (b'["\\"",' * 70 + b"1" + b"]" * 70, -32600, "TOO_DEEP", None),
    ({**REQUEST, "method": '["\\' * 70}, -32601, "METHOD_UNKNOWN", 7),
    (b"[]", -32600, "REQUEST_INVALID", None),
    (1, -32600, "REQUEST_INVALID", None),
    ({}, -32600, "REQUEST_INVALID", None),
    ({**REQUEST, "method": 1}, -32600, "REQUEST_INVALID", 7),
    ({**REQUEST, "jsonrpc": "1.0", "method": "server/info"}, -32600, "REQUEST_INVALID", 7),
    ({**REQUEST, "id": [1], "method": "server/info"}, -32600, "REQUEST_INVALID", None),
    ({**REQUEST, "id": True, "method": "server/info"}, -32600, "REQUEST_INVALID", None),
    ({**REQUEST, "method": "server/info", "params": "x"}, -32600, "REQUEST_INVALID", 7),
    ({**REQUEST, "id": "seven", "result": 1}, -32600, "REQUEST_INVALID", "seven"),
    ({**REQUEST, "method": "session/nothing"}, -32601, "METHOD_UNKNOWN", 7),
    ({**REQUEST, "method": "log_in"}, -32601, "METHOD_UNKNOWN", 7),
    ({**REQUEST, "method": "session/get", "params": ["x"]}, -32602, "PARAMS_INVALID", 7),
    ({**REQUEST, "method": "session/get"}, -32602, "PARAMS_INVALID", 7),
    (
        {**REQUEST, "method": "session/get", "params": {"session_id": 1}},
        -32602,
        "PARAMS_INVALID",
        7,
    ),
    ({**REQUEST, "method": "session/list", "params": {"x": 1}}, -32602, "PARAMS_INVALID", 7),
    ({**REQUEST, "method": "session/list", "params": {"limit": "5"}}, -32602, "BODY_INVALID", 7),
    ({**REQUEST, "method": "session/list", "params": {"limit": 0}}, -32602, "BODY_INVALID", 7),
    ({**REQUEST, "method": "session/create", "params": {"tags": 1}}, -32602, "BODY_INVALID", 7),
    ({**REQUEST, "method": "session/create", "params": {"id": "x"}}, -32602, "BODY_INVALID", 7),
    ({**REQUEST, "method": "events/all"}, -32602, "STREAM_REFUSED", 7),
    ({**REQUEST, "method": "session/get", "params": SESSION}, -32011, "NOT_FOUND", 7),
]


async def test_what_is_wrong_has_the_code_of_the_protocol() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        for content, code, name, number in ERRORS:
            status, told = await post(served, content)
            assert status == 200, content
            assert (told["jsonrpc"], told["id"]) == ("2.0", number), content
            error = told["error"]
            assert (error["code"], error["data"]["code"]) == (code, name), content
            assert error["message"] == error["data"]["detail"]
            assert error["data"]["retryable"] is False


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["jsonrpc", "method", "params", "id", "x"]), inner)
    ),
    max_leaves=8,
)
_CALLS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.text()}, optional={"id": _VALUES}
)


@given(
    st.binary()
    | (_VALUES | _CALLS | st.lists(_CALLS)).map(lambda value: json.dumps(value).encode())
)
def test_every_message_is_calls_or_says_what_is_wrong(content: bytes) -> None:
    message = read_rpc_message(content, most=64)
    assert message.requests
    for request in message.requests:
        assert request.error is None or request.error.code in {-32700, -32600, -32602}
        assert not (request.is_notification and request.id is not None)
        told = error_to(request, request.error or rpc_error(-32601, "METHOD_UNKNOWN", "none"))
        assert set(json.loads(told)) == {"jsonrpc", "id", "error"}


async def test_errors_of_the_library_have_codes_of_their_class() -> None:
    agent, _ = make_agent([says("hi")])
    async with serving(agent) as served:
        session_id = (await result_of(served, "session/create", name="taken"))["id"]
        expected = {
            ("session/update", "if_match"): (-32010, "CHANGED"),
            ("session/create", "name"): (-32017, "CONFLICT"),
            ("session/update", "model"): (-32018, "CONFIG_INVALID"),
            ("session/events", "after"): (-32010, "SEQ_UNKNOWN"),
            ("session/compact", ""): (-32010, "NOTHING_TO_SEND"),
        }
        given: dict[str, Any] = {"if_match": 99, "name": "taken", "model": "/", "after": 99}
        async with websocket(served) as client:
            for (method, field), (code, name) in expected.items():
                params = {field: given[field]} if field else {}
                if method != "session/create":
                    params["session_id"] = session_id
                with pytest.raises(CallError) as caught:
                    await client.call(method, **params)
                assert (caught.value.code, caught.value.data["code"]) == (code, name), method


async def test_an_unforeseen_failure_is_internal_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, _ = make_agent([])
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_exception_handler", reported.append)
    async with serving(agent) as served:

        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a secret")

        monkeypatch.setattr(served.app.hub.owner("local").agent.sessions, "list", fail)
        with pytest.raises(CallError) as caught:
            await result_of(served, "session/list")
    assert (caught.value.code, caught.value.data["code"]) == (-32603, "INTERNAL")
    assert "secret" not in str(caught.value)
    assert [type(each["exception"]) for each in reported] == [ZeroDivisionError]


async def test_batches_and_notifications() -> None:
    agent, _ = make_agent([])
    call = {"jsonrpc": "2.0", "method": "session/create"}
    async with serving(agent) as served:
        assert await post(served, call) == (204, b"")
        assert await post(served, [call, call]) == (204, b"")
        assert await post(served, {**call, "method": "nothing"}) == (204, b"")
        status, told = await post(
            served,
            [{**call, "id": "a"}, call, 1, {**call, "id": 2, "method": "x"}, {**call, "id": None}],
        )
        assert status == 200
        codes = {each["id"]: each.get("error", {}).get("code") for each in told if each["id"]}
        assert codes == {"a": None, 2: -32601}
        unnamed = [each.get("error", {}).get("code") for each in told if each["id"] is None]
        assert sorted(unnamed, key=str) == [-32600, None]
        page = await result_of(served, "session/list")
        assert len(page["data"]) == 6
        async with websocket(served) as client:
            await client.send([{**call, "id": "one"}, {**call, "id": "two"}])
            batch = await client.others.get()
            assert {each["id"] for each in batch} == {"one", "two"}
            await client.send(call)
            await client.send(b"{")
            told = await client.others.get()
            assert (told["id"], told["error"]["code"]) == (None, -32700)


async def test_a_call_that_waits_does_not_hold_up_the_abort_of_its_query() -> None:
    gate = Gate()
    said = says("too long")
    agent, _ = make_agent([[*said[:3], gate, *said[3:]]])
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("session/create"))["id"]
        waiting = client.begin("message/send", session_id=session_id, content="go", wait=60)
        await gate.reached.wait()
        assert await client.call("query/cancel", session_id=session_id) is None
        ended = await waiting
        assert ended["end"]["stop_reason"] == "aborted"


async def test_calls_in_flight_are_limited() -> None:
    gate = Gate()
    said = says("done")
    agent, _ = make_agent([[*said[:3], gate, *said[3:]]])
    settings = ServerSettings(calls_per_connection=3)
    async with serving(agent, settings=settings) as served, websocket(served) as client:
        session_id = (await client.call("session/create"))["id"]
        waiting = client.begin("message/send", session_id=session_id, content="go", wait=60)
        await gate.reached.wait()
        call = {"jsonrpc": "2.0", "method": "server/info"}
        await client.send([{**call, "id": "a"}, call, {**call, "id": "b"}])
        batch = await client.others.get()
        assert {each["id"] for each in batch} == {"a", "b"}
        assert {each["error"]["code"] for each in batch} == {-32001}
        assert batch[0]["error"]["data"]["retryable"] is True
        assert batch[0]["error"]["data"]["retry_after"] == 1.0
        assert (await client.call("server/info"))["owner"] == "local"
        gate.open()
        assert (await waiting)["text"] == "done"


async def test_requests_are_limited_as_in_http() -> None:
    agent, _ = make_agent([])
    settings = ServerSettings(requests_per_second=1)
    async with serving(agent, settings=settings) as served, websocket(served) as client:
        await client.call("server/info")
        await client.call("server/info")
        with pytest.raises(CallError) as caught:
            await client.call("no/method")
        assert (caught.value.code, caught.value.data["code"]) == (-32001, "RATE_LIMITED")


async def _follow(client: RpcClient, subscription: str, *, most: int = 1000) -> list[Any]:
    """Return the notifications of a subscription, until it is closed or there are enough."""
    found: list[Any] = []
    while len(found) < most:
        told = await client.others.get()
        assert told["params"]["subscription"] == subscription
        found.append(told)
        if told["method"] == "events/closed":
            break
    return found


@pytest.mark.slow
async def test_events_cut_anywhere_and_gone_on_with_are_those_of_the_log() -> None:
    agent, _ = make_agent([says("a", "b"), says("c")])
    async with serving(agent) as served:
        session_id = (await result_of(served, "session/create"))["id"]
        for text in ("one", "two"):
            await result_of(served, "message/send", session_id=session_id, content=text, wait=30)
        path = f"/api/v1/sessions/{session_id}/events?follow=false"
        async with served.events(path) as events:
            expected = [(each.seq, each.kind, each.data) async for each in events]
        seen: list[Any] = []
        after = 0
        while not seen or seen[-1][1] != "log.synced":
            async with websocket(served) as client:  # a connection for every two events
                told = await client.call("session/events", session_id=session_id, after=after)
                for each in await _follow(client, told["subscription"], most=2):
                    params = each["params"]
                    assert (each["method"], params["session_id"]) == ("event", session_id)
                    seen.append((params["seq"], params["kind"], params["event"]))
                    after = params["seq"] or after
                    if params["kind"] == "log.synced":
                        break
        assert seen == expected


async def test_a_subscription_follows_selects_and_stops() -> None:
    agent, _ = make_agent([says("a"), says("b")])
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("session/create"))["id"]
        types = ["query.ended"]
        told = await client.call("session/events", session_id=session_id, types=types)
        subscription = told["subscription"]
        synced = (await client.others.get())["params"]
        assert (synced["kind"], synced["seq"]) == ("log.synced", None)
        assert synced["event"]["seq"] > 0
        sent = await client.call("message/send", session_id=session_id, content="go")
        ended = (await client.others.get())["params"]
        assert (ended["kind"], ended["event"]["query_id"]) == ("query.ended", sent["query_id"])
        assert await client.call("events/stop", subscription=subscription) == {"stopped": True}
        assert await client.call("events/stop", subscription=subscription) == {"stopped": False}
        await client.call("message/send", session_id=session_id, content="go", wait=30)
        assert client.others.empty()
        replay = await client.call("session/events", session_id=session_id, follow=False)
        closed = (await _follow(client, replay["subscription"]))[-1]["params"]
        assert closed["reason"] == "ended"
        head = (await client.call("session/get", session_id=session_id))["head"]
        assert closed["seq"] == head
        while served.app.hub.streams.open > 1:
            await client.call("server/info")


async def test_all_sessions_are_followed_by_one_subscription() -> None:
    agent, _ = make_agent([says("a")])
    async with serving(agent) as served, websocket(served) as client:
        await client.call("events/all")
        session_id = (await client.call("session/create"))["id"]
        created = (await client.others.get())["params"]
        assert (created["kind"], created["event"]) == (
            "session.created",
            {"session_id": session_id},
        )
        await client.call("message/send", session_id=session_id, content="go", wait=30)
        while (told := (await client.others.get())["params"])["kind"] != "query.ended":
            pass
        assert told["event"]["session_id"] == session_id


async def test_a_message_can_be_streamed_and_the_answer_comes_before_its_events() -> None:
    agent, _ = make_agent([says("Hel", "lo")])
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("session/create"))["id"]
        batch = {
            "jsonrpc": "2.0",
            "id": "b",
            "method": "message/send",
            "params": {"session_id": session_id, "content": "go", "stream": True},
        }
        await client.send([batch])
        (first,) = await client.others.get()
        assert first["result"]["query_id"]
        told = await _follow(client, first["result"]["subscription"])
        kinds = [each["params"].get("kind") for each in told]
        text = "".join(
            each["params"]["event"]["text"]
            for each in told
            if each["params"].get("kind") == "text.delta"
        )
        assert text == "Hello"
        assert kinds[-2:] == ["query.ended", None]
        assert told[-1]["params"]["reason"] == "ended"


async def test_a_client_that_disconnects_does_not_stop_its_query_unless_it_said_so() -> None:
    for on_disconnect, expected in (("continue", "complete"), ("abort", "aborted")):
        gate = Gate()
        said = says("done")
        agent, _ = make_agent([[*said[:3], gate, *said[3:]]])
        async with serving(agent) as served:
            async with websocket(served) as client:
                session_id = (await client.call("session/create"))["id"]
                sent = await client.call(
                    "message/send",
                    session_id=session_id,
                    content="go",
                    stream=True,
                    on_disconnect=on_disconnect,
                )
                await gate.reached.wait()
            while served.app.hub.streams.open:
                await served.call("GET", "/healthz")
            gate.open()
            path = f"/api/v1/sessions/{session_id}/events?after={sent['seq']}"
            async with served.events(path) as events:
                async for event in events:
                    if event.kind == "query.ended":
                        break
            assert event.data["stop_reason"] == expected


async def test_subscriptions_are_closed_with_a_cursor_when_the_server_shuts_down() -> None:
    agent, _ = make_agent([says("a")])
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("session/create"))["id"]
        told = await client.call("session/events", session_id=session_id)
        served.server.should_exit = True
        closed = (await _follow(client, told["subscription"]))[-1]
        head = (await agent.sessions.get(session_id)).head
        assert closed["params"] == {
            "subscription": told["subscription"],
            "seq": head,
            "reason": "shutting_down",
        }
        assert await client.others.get() is None


async def test_the_end_of_a_deleted_session_is_told() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served, websocket(served) as client:
        session_id = (await client.call("session/create"))["id"]
        await client.call("message/list", session_id=session_id)
        told = await client.call("session/events", session_id=session_id)
        await client.call("session/delete", session_id=session_id)
        closed = (await _follow(client, told["subscription"]))[-1]
        assert closed["params"]["reason"] == "deleted"
