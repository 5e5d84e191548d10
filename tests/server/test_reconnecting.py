"""Clients that are cut off: none misses an entry or gets one twice, also over a restart."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from holdfast.server import ServerSettings
from holdfast.testing import says
from holdfast.testing.scripted_provider import Gate
from tests.scripted_agents import make_agent
from tests.server.serving import Sent, Served, serving

WIDE = ServerSettings(requests_per_second=1e6, streams_per_owner=500)
TEXT = ["The ", "anchor ", "holds ", "in ", "any ", "storm."]


class Client:
    """Follows a session, reconnecting with the last id; puts text together by part and offset."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.parts: dict[str, str] = defaultdict(str)
        self.is_over = False

    @property
    def text(self) -> str:
        """The text of the parts, in the order in which they began."""
        return "".join(self.parts.values())

    def take(self, event: Sent) -> None:
        """Take one event in."""
        if event.seq is not None:
            self.seqs.append(event.seq)
        data = event.data
        if event.kind in {"text.delta", "part.checkpoint"}:
            known = self.parts[data["part_id"]]
            assert data.get("offset", 0) <= len(known)
            self.parts[data["part_id"]] = known[: data.get("offset", 0)] + data["text"]
        elif event.kind == "part.ended":
            self.parts[data["part_id"]] = data["part"]["text"]
        elif event.kind == "query.ended":
            self.is_over = True

    async def connect(self, served: Served, session_id: str, *, most: int) -> None:
        """Follow until so many events came, or until the query has ended."""
        path = f"/api/v1/sessions/{session_id}/events"
        last = {"last_event_id": str(self.seqs[-1])} if self.seqs else {}
        async with served.events(path, **last) as events:
            async for event in events:
                self.take(event)
                most -= event.kind not in {"log.synced", "ping"}
                if self.is_over or most <= 0:
                    return


def _script(gate: Gate) -> list[Any]:
    told = says(*TEXT)
    return [[*told[:5], gate, *told[5:]]]


async def _follow(served: Served, session_id: str, client: Client, *, most: int) -> None:
    while not client.is_over:
        await client.connect(served, session_id, most=most)


async def test_clients_that_are_cut_at_every_event_miss_nothing_and_get_nothing_twice() -> None:
    gate = Gate()
    agent, _ = make_agent(_script(gate))
    async with serving(agent) as served:
        session_id = await served.new_session()
        await served.call("POST", f"/api/v1/sessions/{session_id}/messages", {"content": "go"})
        await gate.reached.wait()
        clients = [Client() for _ in range(20)]
        async with asyncio.TaskGroup() as tasks:
            for place, client in enumerate(clients):
                tasks.create_task(_follow(served, session_id, client, most=1 + place % 4))
            gate.open()
    _check(clients)


@pytest.mark.slow
async def test_a_hundred_clients_are_cut_at_every_event_and_the_server_restarts(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    clients = [Client() for _ in range(100)]
    gate = Gate()
    agent, _ = make_agent([*_script(gate)], store=store, runtime={"close_drain_seconds": 0.01})
    async with serving(agent, settings=WIDE) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        await served.call("POST", f"{path}/messages", {"content": "go", "id": "m1"})
        await gate.reached.wait()
        async with asyncio.TaskGroup() as tasks:
            for place, client in enumerate(clients):
                tasks.create_task(client.connect(served, session_id, most=1 + place % 5))
    assert {len(client.seqs) for client in clients}
    # The query was cut off by the end of the first server; a new prompt is answered by the second.
    agent, _ = make_agent([says(*TEXT)], store=store)
    for client in clients:
        client.is_over = False
    async with serving(agent, settings=WIDE) as served:
        body = {"content": "again", "id": "m2"}
        status, ended = await served.call(
            "POST", f"{path}/messages", body, headers={"prefer": "wait=30"}
        )
        assert status == 200, ended
        async with asyncio.TaskGroup() as tasks:
            for place, client in enumerate(clients):
                tasks.create_task(
                    _until(served, session_id, client, most=1 + place % 7, seq=ended["seq"])
                )
    assert {client.seqs[-1] for client in clients} == {ended["seq"]}
    _check(clients)


async def _until(served: Served, session_id: str, client: Client, *, most: int, seq: int) -> None:
    while not client.seqs or client.seqs[-1] < seq:
        client.is_over = False
        await client.connect(served, session_id, most=most)


def _check(clients: list[Client]) -> None:
    expected = list(range(1, max(client.seqs[-1] for client in clients) + 1))
    for client in clients:
        assert client.seqs == expected
        assert client.text.endswith("".join(TEXT))
        assert client.text == clients[0].text


async def test_streams_end_when_the_server_shuts_down() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        session_id = await served.new_session()
        one, all_of_them = f"/api/v1/sessions/{session_id}/events", "/api/v1/events"
        async with served.events(one) as first, served.events(all_of_them) as second:
            assert (await anext(first)).kind
            served.app.end_streams()
            assert [event async for event in second] == []
            assert all([event.seq is None or event.seq > 0 async for event in first])
        assert (await served.call("GET", "/readyz"))[0] == 503
        status, problem = await served.call("GET", "/api/v1/info")
        assert (status, problem["retryable"]) == (503, True)


async def test_a_stream_that_followed_the_log_gets_deltas_once_the_session_is_open() -> None:
    gate = Gate()
    agent, _ = make_agent([[gate, *says("Hel", "lo")]])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        kinds: list[str] = []
        async with served.events(f"{path}/events") as events:
            assert (await anext(events)).kind == "session.opened"
            await served.call("POST", f"{path}/messages", {"content": "go"})
            async for event in events:
                kinds.append(event.kind)
                if event.kind == "query.started":
                    gate.open()
                if event.kind == "query.ended":
                    break
        assert "text.delta" in kinds
        assert len(set(kinds)) > 5


async def test_types_follow_and_ids_beyond_the_log() -> None:
    agent, _ = make_agent([says("hi")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        await served.call(
            "POST", f"{path}/messages", {"content": "go"}, headers={"prefer": "wait=30"}
        )
        wanted = f"{path}/events?follow=false&types=query.started,query.ended"
        async with served.events(wanted) as events:
            kinds = [event.kind async for event in events]
        assert kinds == ["query.started", "query.ended", "log.synced"]
        status, problem = await served.call("GET", f"{path}/events?after=999")
        assert (status, problem["code"]) == (410, "SEQ_UNKNOWN")
        status, _ = await served.call("GET", f"{path}/events", headers={"last-event-id": "x"})
        assert status == 400


async def test_a_deleted_session_ends_its_streams() -> None:
    agent, _ = make_agent([])
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{await served.new_session()}"
        async with served.events(f"{path}/events") as events:
            await anext(events)
            assert (await served.call("DELETE", path))[0] == 204
            kinds = [event.kind async for event in events]
        assert kinds[-1] == "session.deleted"


@pytest.mark.slow
async def test_a_thousand_clients_that_come_and_go_leave_nothing() -> None:
    agent, _ = make_agent([])
    async with serving(agent, settings=WIDE) as served:
        session_id = await served.new_session()
        before = len(asyncio.all_tasks())
        for _ in range(1000):
            async with served.events(f"/api/v1/sessions/{session_id}/events") as events:
                await anext(events)
        while served.app.hub.streams.open or len(asyncio.all_tasks()) > before + 5:
            await served.call("GET", "/healthz")
        assert not served.app.hub._feeds


async def test_a_stream_goes_on_while_its_session_is_closed_for_others_and_opened_again(
    tmp_path: Path,
) -> None:
    agent, _ = make_agent([says(*TEXT)] * 4, store=f"sqlite:{tmp_path / 'store.db'}")
    settings = ServerSettings(sessions=1)
    async with serving(agent, settings=settings) as served:
        first, second = await served.new_session(), await served.new_session()
        clients = [Client(), Client()]
        following = [
            asyncio.ensure_future(_follow_to_the_end(served, first, client, ends=2))
            for client in clients
        ]
        for session_id in (first, second, first, second):
            path = f"/api/v1/sessions/{session_id}/messages"
            status, ended = await served.call(
                "POST", path, {"content": "go"}, headers={"prefer": "wait=30"}
            )
            assert (status, ended["text"]) == (200, "".join(TEXT))
        await asyncio.gather(*following)
    assert clients[0].seqs == clients[1].seqs == list(range(1, len(clients[0].seqs) + 1))
    assert clients[0].text == clients[1].text == 2 * "".join(TEXT)


async def _follow_to_the_end(served: Served, session_id: str, client: Client, *, ends: int) -> None:
    """Follow on one connection until so many queries have ended."""
    async with served.events(f"/api/v1/sessions/{session_id}/events") as events:
        async for event in events:
            client.take(event)
            ends -= event.kind == "query.ended"
            if not ends:
                return
