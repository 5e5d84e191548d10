"""Clients that are cut off: none misses an entry or gets one twice, also over a restart."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from haptera import AgentError, AgentSession, ErrorCode, QueryEnded, SessionError, StoreError
from haptera.model.log.entry import Entry
from haptera.server import ServerSettings
from haptera.server.feeds import SessionFeed
from haptera.testing import says
from haptera.testing.scripted_provider import Beat, Gate
from tests.kernel.session.pausing_store import PausingStore
from tests.scripted_agents import make_agent
from tests.server.following import FollowingClient, Pace, check_clients
from tests.server.serving import Sent, Served, serving
from tests.stores.store_factories import STORE_FACTORIES, store_string

pytestmark = pytest.mark.slow

WIDE = ServerSettings(requests_per_second=1e6, streams_per_owner=500)
TEXT = ["The ", "anchor \u2693 ", "holds ", "in \U0001f30a ", "any ", "storm, ", "or ", "so."]
SAVED_OFTEN = {"checkpoint_bytes": 30}
"""Not after every piece: a client that was away for one gets deltas that it cannot use yet."""


def _script(pace: Pace, *, cut_off_at: Gate | None = None) -> list[Beat]:
    """Say the text; before every second piece, all clients have caught up."""
    opened, begun, *pieces, closed, finished = says(*TEXT)
    beats: list[Beat] = [opened, begun]
    for place, piece in enumerate(pieces):
        beats += [pace.wait, piece] if place % 2 == 0 else [piece]
        if cut_off_at is not None and place == len(pieces) // 2:
            beats.append(cut_off_at)
    return [*beats, closed, finished]


def _clients(count: int, *, at_every_event: int) -> list[FollowingClient]:
    return [
        FollowingClient(stride=1 if place < at_every_event else 2 + place % 12)
        for place in range(count)
    ]


@contextlib.asynccontextmanager
async def _following(
    served: Served, session_id: str, clients: Sequence[FollowingClient]
) -> AsyncIterator[None]:
    """Let clients follow until there is an answer, or the server ends its streams in the block."""
    async with asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(client.follow(served, session_id))
        yield


async def test_clients_that_are_cut_at_every_event_miss_nothing_and_get_nothing_twice() -> None:
    clients = _clients(12, at_every_event=6)
    agent, _ = make_agent([_script(Pace(clients))], runtime=SAVED_OFTEN)
    async with serving(agent, settings=WIDE) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}/messages"
        await served.call("POST", path, {"content": "go"})
        async with _following(served, session_id, clients):
            pass
        log = await served.log(session_id)
    assert check_clients(clients, log, said=["".join(TEXT)]) > 6 * len(log)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["killed", "shut down"])
async def test_a_hundred_clients_are_cut_at_every_event_and_the_server_restarts(
    ending: str, tmp_path: Path
) -> None:
    await _restart(tmp_path, _clients(100, at_every_event=6), is_killed=ending == "killed")


@pytest.mark.soak
@pytest.mark.parametrize("ending", ["killed", "shut down"])
async def test_each_of_a_hundred_clients_is_cut_at_every_single_event_and_the_server_restarts(
    ending: str, tmp_path: Path
) -> None:
    await _restart(tmp_path, _clients(100, at_every_event=100), is_killed=ending == "killed")


async def _restart(folder: Path, clients: Sequence[FollowingClient], *, is_killed: bool) -> None:
    """End a server in the middle of an answer, and let another one go on with its log."""
    first, second = folder / "first", folder / "second"
    first.mkdir()
    gate, pace = Gate(), Pace(clients)
    runtime = {**SAVED_OFTEN, "close_drain_seconds": 0.01}
    agent, _ = make_agent([_script(pace, cut_off_at=gate)], store=f"jsonl:{first}", runtime=runtime)
    async with serving(agent, settings=WIDE) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        _, admitted = await served.call("POST", f"{path}/messages", {"content": "go"})
        async with _following(served, session_id, clients):
            await gate.reached.wait()
            await pace.wait()
            if is_killed:
                shutil.copytree(first, second)  # the disk as it is when the process dies
            served.app.end_streams()
    assert not any(client.has_answer for client in clients)
    place = second if is_killed else first
    agent, _ = make_agent([_script(pace)], store=f"jsonl:{place}", runtime=SAVED_OFTEN)
    async with serving(agent, settings=WIDE) as served:
        _, resumed = await served.call("POST", f"{path}/resume")
        assert resumed["query_id"] == admitted["query_id"]
        async with _following(served, session_id, clients):
            pass
        log = await served.log(session_id)
    at_every_event = sum(client.stride == 1 for client in clients)
    assert check_clients(clients, log, said=["".join(TEXT)] * 2) > at_every_event * len(log)
    ends = [entry.data["stop_reason"] for entry in log if entry.kind == "query.ended"]
    assert ends == ["complete"]
    assert clients[0].parts.texts.popitem()[1] == "".join(TEXT)


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


@pytest.mark.parametrize("path", ["/events", "/messages"])
async def test_a_stream_that_begins_while_the_server_shuts_down_ends_as_well(path: str) -> None:
    is_held, asked, answers = False, asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        if is_held:
            asked.set()
            await answers.wait()

    gate = Gate()
    agent, _ = make_agent([[gate, *says("later")]], store=PausingStore(pause))
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{await served.new_session()}{path}"
        method, body = ("POST", {"content": "go"}) if "messages" in path else ("GET", None)

        async def follow() -> list[Sent]:
            async with served.events(path, method=method, body=body) as events:
                return [event async for event in events]

        async with asyncio.TaskGroup() as tasks:
            is_held = True
            following = tasks.create_task(follow())
            await asked.wait()
            served.app.end_streams()
            is_held = False
            answers.set()
            assert all(event.kind != "ping" for event in await following)
        gate.open()


async def test_a_stream_that_followed_the_log_gets_every_delta_of_the_first_answer() -> None:
    agent, _ = make_agent([says("Hel", "lo")])
    async with serving(agent) as served:
        session_id = await served.new_session()
        path = f"/api/v1/sessions/{session_id}"
        taken: list[Sent] = []
        async with served.events(f"{path}/events") as events:
            assert (await anext(events)).kind == "session.opened"
            await served.call("POST", f"{path}/messages", {"content": "go"})
            async for event in events:
                taken.append(event)
                if event.kind == "query.ended":
                    break
        assert [e.data["text"] for e in taken if e.kind == "text.delta"] == ["Hel", "lo"]
        assert [e.seq for e in taken if e.seq] == list(
            range(2, 2 + sum(bool(e.seq) for e in taken))
        )


async def test_what_the_log_and_the_session_both_have_is_delivered_once() -> None:
    agent, _ = make_agent([says("one"), says("two")])
    async with serving(agent) as served:
        hub = served.app.hub
        session_id = await served.new_session()
        async with agent.session(session_id) as session:
            await session.chat("first")
        sessions = hub.owner("local")
        feed = sessions.feed(session_id, after=1)
        with hub.feeding("local", feed):
            await feed.begin()
            for _ in range(5):  # the log is read, and not taken
                await served.call("GET", "/healthz")
            async with sessions.handle(session_id) as handle:  # the session has all of it, too
                await handle.send("second")
                seen: list[int] = []
                ended = 0
                async for batch in feed.batches(ping_seconds=60):
                    seen += [event.seq for event in batch if isinstance(event, Entry)]
                    ended += sum(isinstance(event, QueryEnded) for event in batch)
                    if ended == 2:
                        break
        assert seen == list(range(2, seen[-1] + 1))


@pytest.mark.slow
async def test_a_repeated_message_waits_for_the_query_that_carries_its_own_on(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    gate = Gate()
    message = {"content": "go", "id": "m1"}
    agent, _ = make_agent([[gate]], store=f"jsonl:{first}", runtime={"close_drain_seconds": 0.01})
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{await served.new_session()}"
        await served.call("POST", f"{path}/messages", message)
        await gate.reached.wait()
        shutil.copytree(first, second)
    agent, _ = make_agent([says("Hello.")], store=f"jsonl:{second}")
    async with serving(agent) as served:
        status, ended = await served.call(
            "POST", f"{path}/messages", message, headers={"prefer": "wait=30"}
        )
        assert (status, ended["text"]) == (200, "Hello.")
        async with served.events(f"{path}/messages", method="POST", body=message) as events:
            kinds = [event.kind async for event in events]
        assert kinds[-1] == "query.ended"


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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SessionError(ErrorCode.NOT_FOUND, "there is no such session"), ["session.deleted"]),
        (StoreError(ErrorCode.CORRUPT, "line 7 cannot be read"), []),
        (SessionError(ErrorCode.CLOSED, "the agent is closed"), []),
    ],
)
async def test_only_a_session_that_is_gone_is_said_to_be_deleted(
    error: AgentError, told: list[str]
) -> None:
    async def look(_seen: int) -> AgentSession:
        raise error

    feed = SessionFeed(look, session_id="some", after=3)
    batches = [batch async for batch in feed.batches(ping_seconds=60)]
    assert [event.kind for batch in batches for event in batch] == told


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_deleted_session_ends_its_streams_and_its_query(
    kind: str, is_running: bool, tmp_path: Path
) -> None:
    gate = Gate()
    agent, _ = make_agent([[gate, *says("never")]], store=store_string(kind, tmp_path))
    async with serving(agent) as served:
        path = f"/api/v1/sessions/{await served.new_session()}"
        if is_running:
            await served.call("POST", f"{path}/messages", {"content": "go"})
            await gate.reached.wait()
        async with served.events(f"{path}/events") as events:
            while (await anext(events)).kind != "log.synced":
                pass
            assert (await served.call("DELETE", path))[0] == 204
            kinds = [event.kind async for event in events]
        assert kinds[-1] == "session.deleted"
        assert ("query.ended" in kinds) == is_running


async def test_a_stream_goes_on_while_its_session_is_closed_for_others_and_opened_again(
    tmp_path: Path,
) -> None:
    agent, _ = make_agent([says(*TEXT)] * 4, store=f"sqlite:{tmp_path / 'store.db'}")
    async with serving(agent, settings=ServerSettings(sessions=1)) as served:
        first, second = await served.new_session(), await served.new_session()
        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(_two_queries(served, first)) for _ in range(2)]
            for session_id in (first, second, first, second):
                path = f"/api/v1/sessions/{session_id}/messages"
                wait = {"prefer": "wait=30"}
                status, ended = await served.call("POST", path, {"content": "go"}, headers=wait)
                assert (status, ended["text"]) == (200, "".join(TEXT))
    for events in (task.result() for task in following):
        seqs = [event.seq for event in events if event.seq is not None]
        assert seqs == list(range(1, len(seqs) + 1))
        said = [event.data["part"]["text"] for event in events if event.kind == "part.ended"]
        assert said == 2 * ["".join(TEXT)]


async def _two_queries(served: Served, session_id: str) -> list[Sent]:
    """Follow a session on one connection until two queries have ended."""
    seen: list[Sent] = []
    async with served.events(f"/api/v1/sessions/{session_id}/events") as events:
        async for event in events:
            seen.append(event)
            if [each.kind for each in seen].count("query.ended") == 2:
                break
    return seen
