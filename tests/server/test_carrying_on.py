"""Queries that were cut off are carried on by the server that finds them, unless it is told not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from haptera import Agent, Event
from haptera.model.ids import (
    InputId,
    MessageId,
    SessionId,
    new_entry_id,
    new_session_id,
    query_id_for,
)
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued, QueryEnded, QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.model.messages import UserMessage
from haptera.model.operations.operation import new_command_id
from haptera.model.operations.session import SendPrompt
from haptera.model.parts import TextPart
from haptera.model.secrets import token_digest
from haptera.ports.session_store import Store
from haptera.server import Access, ApiKey, ServerSettings, create_app
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, Gate, ScriptedProvider, says
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, Served, read_events, serving

pytestmark = pytest.mark.slow

SOON = ServerSettings(resume_seconds=0.01)
NEVER = ServerSettings(resume=False)
CUT = query_id_for("msg_cut")
"""The query that was cut off."""
OLD = 24 * 3600 * 1000 + 1
"""Milliseconds."""


def _message(text: str) -> UserMessage:
    return UserMessage(
        id=MessageId(f"msg_{text}"),
        parts=(TextPart(text=text),),
        query_id=query_id_for(f"msg_{text}"),
    )


class Left:
    """A store with what an earlier server left in it, and an agent for the next one."""

    def __init__(self, *steps: Any, owner: str = "local") -> None:
        self._owner = owner
        self.store: Store = MemoryStore()
        self.clock = FakeClock()
        self.agent: Agent
        self.provider: ScriptedProvider
        self.agent, self.provider = make_agent(
            steps, store=self.store, owner=owner, project="p", clock=self.clock
        )

    async def session(
        self, *entries: type[Entry], project: str = "p", age_ms: int = 1000, by: str | None = None
    ) -> SessionId:
        """Write a session whose log ends so: `QueryStarted` was cut off, `InputQueued` waits."""
        session_id = new_session_id()
        lease = await self.store.leases.acquire(session_id, "killed")
        time = self.clock.time_ms() - age_ms
        spawned = None if by is None else SessionId(by)
        log: list[Entry] = [
            SessionOpened(
                id=new_entry_id(),
                time=time,
                seq=1,
                session_id=session_id,
                owner=self._owner,
                project=project,
                settings=self.agent.settings,
                spawned_by=spawned,
            )
        ]
        for kind in entries:
            stamp: Any = {"id": new_entry_id(), "time": time, "seq": len(log) + 1}
            if kind is QueryStarted:
                log.append(QueryStarted(**stamp, query_id=CUT, message=_message("cut")))
            elif kind is InputQueued:
                log.append(
                    InputQueued(
                        **stamp,
                        input_id=InputId("inp_1"),
                        delivery="queue",
                        message=_message("queued"),
                    )
                )
            else:
                log.append(QueryEnded(**stamp, query_id=CUT, stop_reason="complete"))
        await self.store.log.append(lease, log)
        await self.store.leases.release(lease)
        return session_id

    async def ends(self, session_id: SessionId) -> list[tuple[str | None, str]]:
        """Return the queries that have ended, and how; one that was resumed by its first id."""
        first: dict[str | None, str | None] = {}
        found: list[tuple[str | None, str]] = []
        for entry in await self.store.log.read(session_id):
            if isinstance(entry, QueryStarted):
                first[entry.query_id] = first.get(entry.resumes, entry.query_id)
            elif isinstance(entry, QueryEnded):
                found.append((first[entry.query_id], entry.stop_reason))
        return found


async def _ended(served: Served, session_id: str, *, count: int = 1) -> list[int]:
    """Follow a session until so many queries have ended; returns every `seq` that came."""
    seqs: list[int] = []
    async with served.events(f"/api/v1/sessions/{session_id}/events") as events:
        async for event in events:
            seqs += [] if event.seq is None else [event.seq]
            count -= event.kind == "query.ended"
            if not count:
                break
    return seqs


async def test_a_server_carries_on_what_its_predecessor_left() -> None:
    left = Left(says("one"), says("two"), says("three"))
    cut = await left.session(QueryStarted)
    waiting = await left.session(InputQueued)
    commanded = await left.session(QueryStarted, QueryEnded)
    await left.store.inbox.put(
        commanded,
        SendPrompt(id=new_command_id(), input_id=InputId("inp_2"), message=_message("told")),
    )
    async with serving(left.agent, settings=SOON) as served:
        for session_id, count in ((cut, 1), (waiting, 1), (commanded, 2)):
            seqs = await _ended(served, session_id, count=count)
            assert seqs == list(range(1, len(seqs) + 1))
        assert await left.ends(cut) == [(CUT, "complete")]
        assert await left.ends(waiting) == [(query_id_for("msg_queued"), "complete")]
        assert await left.ends(commanded) == [
            (CUT, "complete"),
            (query_id_for("msg_told"), "complete"),
        ]


async def test_the_queries_of_owners_of_keys_are_carried_on_too() -> None:
    own, left = Left(), Left(says("on"), owner="ana")
    cut = await left.session(QueryStarted)
    key = ApiKey(digest=token_digest(TOKEN + "ana"), owner="ana")
    access = Access(TOKEN, keys=[key])
    async with left.agent, serving(own.agent, access=access, agents=lambda _: left.agent) as served:
        headers = {"authorization": f"Bearer {TOKEN}ana"}
        path = f"{served.url}/api/v1/sessions/{cut}/events"
        async with served.client.get(path, headers=headers) as answer:
            async for event in read_events(answer.content):
                if event.kind == "query.ended":
                    break
    assert await left.ends(cut) == [(CUT, "complete")]


async def test_an_application_without_a_lifespan_begins_with_the_first_request() -> None:
    left = Left(says("on"))
    cut = await left.session(QueryStarted)
    app = create_app(left.agent, token=TOKEN, settings=SOON)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with left.agent:
        transport = httpx.ASGITransport(app=app)
        url = "http://127.0.0.1:8000"
        async with httpx.AsyncClient(transport=transport, base_url=url, headers=headers) as client:
            assert (await client.get(f"/api/v1/sessions/{cut}")).status_code == 200
            (last,) = [event async for event in _until_ended(left.agent, cut)][-1:]
        await app.close()
    assert last.kind == "query.ended"
    assert await left.ends(cut) == [(CUT, "complete")]


async def _until_ended(agent: Agent, session_id: str) -> AsyncIterator[Event]:
    async with contextlib.aclosing((await agent.remote(session_id)).events()) as events:
        async for event in events:
            yield event
            if event.kind == "query.ended":
                return


async def test_what_is_old_ended_of_another_project_or_a_sub_agents_is_left_alone() -> None:
    left = Left(says("one"))
    others = [
        await left.session(QueryStarted, age_ms=OLD),
        await left.session(QueryStarted, project="another"),
        await left.session(QueryStarted, by="the caller"),
    ]
    ended = await left.session(QueryStarted, QueryEnded)
    cut = await left.session(QueryStarted)
    async with serving(left.agent, settings=SOON) as served:
        await _ended(served, cut)
        found = await left.agent.sessions.unowned.claim(
            limit=9, most_attempts=9, first_pause=0, longest_pause=0
        )
    assert list(found) == []
    assert [await left.ends(each) for each in others] == [[], [], []]
    assert len(await left.ends(ended)) == 1
    assert len(left.provider.requests) == 1


async def test_a_server_that_is_told_not_to_carries_nothing_on_before_it_is_asked() -> None:
    left = Left(says("on"))
    cut = await left.session(QueryStarted)
    async with serving(left.agent, settings=NEVER) as served:
        path = f"/api/v1/sessions/{cut}"
        assert (await served.call("GET", path))[1]["phase"] == "running"
        assert left.provider.requests == []
        status, resumed = await served.call("POST", f"{path}/resume", {})
        assert (status, resumed["query_id"]) == (200, CUT)
        await _ended(served, cut)


async def test_a_new_message_comes_after_what_was_cut_off() -> None:
    gate = Gate()
    left = Left([gate, *says("first")], says("second"))
    # It is so old that the server does not carry it on by itself.
    cut = await left.session(QueryStarted, age_ms=OLD)
    async with serving(left.agent) as served:
        path = f"/api/v1/sessions/{cut}/messages"
        body = {"content": "cut", "id": "msg_cut"}
        assert (await served.call("POST", path, body))[0] == 202
        await gate.reached.wait()
        asking = {"prefer": "wait=30"}
        waiting = asyncio.ensure_future(served.call("POST", path, body, headers=asking))
        status, sent = await served.call("POST", path, {"content": "next"})
        assert status == 202
        gate.open()
        await _ended(served, cut, count=2)
        assert await left.ends(cut) == [(CUT, "complete"), (sent["query_id"], "complete")]
        # Who waits for the prompt that was cut off gets the end of the query that resumed it.
        status, ended = await waiting
        assert (status, ended["text"]) == (200, "first")


async def test_two_requests_at_once_begin_one_query() -> None:
    left = Left(says("first"), says("second"), says("third"))
    cut = await left.session(QueryStarted, age_ms=OLD)
    async with serving(left.agent) as served:
        path = f"/api/v1/sessions/{cut}/messages"
        sent = await asyncio.gather(*(served.call("POST", path, {"content": "x"}) for _ in "ab"))
        assert [status for status, _ in sent] == [202, 202]
        await _ended(served, cut, count=3)
        assert (await left.ends(cut))[0] == (CUT, "complete")


async def test_a_client_can_open_a_session_without_carrying_it_on() -> None:
    left = Left(says("on"))
    cut = await left.session(QueryStarted, age_ms=OLD)
    async with serving(left.agent, settings=SOON) as served:
        path = f"/api/v1/sessions/{cut}"
        await served.call("POST", f"{path}/resume", {"carry_on": False})
        held = served.app.hub.cut_off._cut_off
        assert held() == []
        assert (await served.call("POST", f"{path}/cancel", {}))[0] == 202
        await _ended(served, cut)


async def test_a_query_that_was_cut_off_is_cancelled_by_its_first_id() -> None:
    gate = Gate()
    left = Left([gate, *says("never")])
    cut = await left.session(QueryStarted)
    async with serving(left.agent, settings=SOON) as served:
        await gate.reached.wait()
        path = f"/api/v1/sessions/{cut}/cancel"
        assert (await served.call("POST", path, {"query_id": "qry_other"}))[0] == 202
        assert await left.ends(cut) == []
        assert (await served.call("POST", path, {"query_id": CUT}))[0] == 202
        await _ended(served, cut)
        assert await left.ends(cut) == [(CUT, "aborted")]


async def test_what_is_carried_on_at_once_is_bounded() -> None:
    gates = [Gate() for _ in range(5)]
    left = Left(*([gate, *says("done")] for gate in gates))
    found = [await left.session(QueryStarted) for _ in gates]
    settings = ServerSettings(resume_seconds=0.01, resume_at_once=2)
    async with serving(left.agent, settings=settings) as served:
        await gates[0].reached.wait()
        await gates[1].reached.wait()
        for _ in range(3):
            await served.call("GET", "/healthz")
        assert len(left.provider.requests) == 2
        for gate in gates:
            gate.open()
        for session_id in found:
            await _ended(served, session_id)


@pytest.mark.parametrize("settings", [SOON, NEVER], ids=["resuming", "not resuming"])
async def test_a_server_that_ends_leaves_no_task(settings: ServerSettings) -> None:
    left = Left()
    before = len(asyncio.all_tasks())
    async with serving(left.agent, settings=settings) as served:
        await served.call("GET", "/readyz")
    assert len(asyncio.all_tasks()) <= before
