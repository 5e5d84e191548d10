"""Two servers over one PostgreSQL: each answers for every session, and one may be killed."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Place
from tests.cli.scripted_server import ScriptedServer, Turn, scripted_server
from tests.server.nodes import Follower, Node, nodes
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

CLIENTS = 12
BEGINNING, WHOLE = "The anchor ", ["The anchor ", "holds in ", "any storm."]
EFFECT = Turn(calls=[("shell", {"command": "echo done >> effects"})])
SESSIONS = "/api/v1/sessions"


def _store(postgres: PostgresServer, database: str) -> str:
    return f"{postgres.url(database, role=APP_ROLE)}&lease_seconds=1"


async def _new_session(node: Node) -> str:
    return f"{SESSIONS}/{(await node.must('POST', SESSIONS, {}))['id']}"


async def _approval(node: Node, path: str) -> str:
    """Wait until the session rests on an approval; return its id."""
    async with node.events(path, after=0) as events:
        async for event in events:
            if event.kind == "query.ended" and event.data["stop_reason"] == "approval":
                break
    (request,) = (await node.must("GET", f"{path}/approvals"))["data"]
    return str(request["id"])


async def test_clients_of_a_killed_server_get_the_rest_from_the_other(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    held = Turn([BEGINNING, "never sent"], hold=threading.Event())
    with scripted_server(EFFECT, held, Turn(WHOLE)) as provider:
        place = Place(tmp_path, provider)
        async with nodes(place, _store(postgres, database)) as (one, other):
            path = await _new_session(one)
            prompt = {"content": "go", "id": "m1"}
            sent = await one.must("POST", f"{path}/messages", prompt)
            # The answer goes through the server that does not hold the session.
            approval = await _approval(other, path)
            await other.must("POST", f"{path}/approvals/{approval}", {"decision": "allow_once"})
            followers = [Follower(path, [one, other]) for _ in range(CLIENTS)]
            async with asyncio.TaskGroup() as tasks:
                for follower in followers:
                    tasks.create_task(follower.until_end(ends=2))
                for follower in followers:
                    await follower.has_text.wait()
                assert {follower.text for follower in followers} == {BEGINNING}
                await one.kill()
            _check(followers)
            assert (place.project / "effects").read_text() == "done\n"
            asked = len(provider.requests)
            again = await other.must("POST", f"{path}/messages", prompt)
            assert again["query_id"] == sent["query_id"]
            said = await other.must("GET", f"{path}/messages")
            assert "".join(WHOLE) in str(said["data"][-1])
            assert len(provider.requests) == asked


def _check(followers: list[Follower]) -> None:
    """Every client has every entry once, and the same text at the end."""
    head = max(follower.seqs[-1] for follower in followers)
    for follower in followers:
        assert follower.seqs == list(range(1, head + 1))
        assert follower.text == "".join(WHOLE)


@pytest.fixture
def provider() -> Iterator[ScriptedServer]:
    """A model whose turns a test sets."""
    with scripted_server(Turn("Yes.")) as script:
        yield script


async def test_a_server_that_does_not_hold_a_session_answers_for_it(
    postgres: PostgresServer, database: str, tmp_path: Path, provider: ScriptedServer
) -> None:
    first = Turn(["One ", "moment."], hold=threading.Event())
    stopped = Turn(["Not ", "sent."], hold=threading.Event())
    provider.turns = [first, Turn("Steered."), Turn("Queued."), stopped, Turn("Yes.")]
    place = Place(tmp_path, provider)
    async with nodes(place, _store(postgres, database)) as (holder, other):
        path = await _new_session(holder)
        follower = Follower(path, [other])
        following = asyncio.ensure_future(follower.until_end(ends=3))
        await holder.must("POST", f"{path}/messages", {"content": "go", "id": "m1"})
        await _until_asked(provider, 1)
        messages = f"{path}/messages"
        # Both are stored when they are answered, and reach the query that runs elsewhere.
        await other.must("POST", messages, {"content": "Shorter.", "delivery": "steer"})
        queued = await other.must("POST", messages, {"content": "next", "id": "m2"})
        assert queued == await other.must("POST", messages, {"content": "next", "id": "m2"})
        status, problem = await other.call("POST", messages, {"content": "else", "id": "m1"})
        assert (status, problem["code"]) == (409, "CONFLICT")
        await _entry(other, path, "input.queued", count=2)
        first.hold.set()
        await _until_asked(provider, 3)
        await other.must("POST", messages, {"content": "and then"})
        await _until_asked(provider, 4)
        await other.must("POST", f"{path}/cancel", {"query_id": "qry_of_another"})
        await other.must("POST", f"{path}/cancel", {})
        await following
        assert follower.seqs == list(range(1, len(follower.seqs) + 1))
        assert follower.kinds.count("input.promoted") >= 2
        assert follower.ends == ["complete", "complete", "aborted"]
        for route in ("", "/messages", "/approvals", "/usage", "/export?format=markdown"):
            assert (await other.call("GET", f"{path}{route}"))[0] == 200, route
        listed = await other.must("GET", SESSIONS)
        assert [SESSIONS + "/" + each["id"] for each in listed["data"]] == [path]


@pytest.mark.parametrize("decision", ["allow_once", "reject_once"])
async def test_approvals_are_answered_at_any_server(
    decision: str,
    postgres: PostgresServer,
    database: str,
    tmp_path: Path,
    provider: ScriptedServer,
) -> None:
    provider.turns = [EFFECT, Turn("So be it.")]
    place = Place(tmp_path, provider)
    async with nodes(place, _store(postgres, database)) as (holder, other):
        path = await _new_session(holder)
        await holder.must("POST", f"{path}/messages", {"content": "go"})
        approval = await _approval(other, path)
        await other.must("POST", f"{path}/approvals/{approval}", {"decision": decision})
        follower = Follower(path, [other])
        await follower.until_end(ends=2)
        assert follower.text == "So be it."
        assert (place.project / "effects").exists() == (decision == "allow_once")
        assert (await other.must("GET", f"{path}/approvals"))["data"] == []


async def _until_asked(provider: ScriptedServer, count: int) -> None:
    while len(provider.requests) < count:
        await asyncio.to_thread(provider.arrived.acquire, timeout=30)


async def _entry(node: Node, path: str, kind: str, *, count: int) -> None:
    """Wait until the log has so many entries of a kind."""
    async with node.events(path, after=0) as events:
        async for event in events:
            count -= event.kind == kind
            if not count:
                return
