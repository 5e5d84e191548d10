"""Two servers over one PostgreSQL: each answers for every session, and one may be killed."""

import asyncio
import threading
from pathlib import Path
from typing import Any

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
            status = await other.call("POST", f"{path}/messages", prompt, prefer="wait=30")
            assert (status[0], status[1]["text"]) == (200, "".join(WHOLE))
            assert len(provider.requests) == asked


def _check(followers: list[Follower]) -> None:
    """Every client has every entry once, and the same text at the end."""
    head = max(follower.seqs[-1] for follower in followers)
    for follower in followers:
        assert follower.seqs == list(range(1, head + 1))
        assert follower.text == "".join(WHOLE)
