"""Servers that are killed, and two over one PostgreSQL: each answers for every session."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Place
from tests.cli.scripted_server import ScriptedServer, Turn, scripted_server
from tests.server.nodes import Follower, Node, nodes, start_node
from tests.server.serving import Sent
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

CLIENTS = 12
BEGINNING, WHOLE = "The anchor ", ["The anchor ", "holds in ", "any storm."]
EFFECT = Turn(calls=[("shell", {"command": "echo done >> effects"})])
SESSIONS = "/api/v1/sessions"


def _store(postgres: PostgresServer, database: str) -> str:
    return f"{postgres.url(database, role=APP_ROLE)}&lease_seconds=3"


async def _new_session(node: Node) -> str:
    return f"{SESSIONS}/{(await node.must('POST', SESSIONS, {}))['id']}"


async def _approval(node: Node, path: str, *, after: int = 0) -> str:
    """Wait until the session rests on an approval; return its id."""
    async with node.events(path, after=after) as events:
        async for event in events:
            if event.kind == "query.ended" and event.data["stop_reason"] == "approval":
                break
    (request,) = (await node.must("GET", f"{path}/approvals"))["data"]
    return str(request["id"])


@pytest.fixture
def provider() -> Iterator[ScriptedServer]:
    """A model whose turns a test sets."""
    with scripted_server(Turn("Yes.")) as script:
        yield script


class Killing:
    """Clients that follow one session while the server that holds it is killed, round by round."""

    def __init__(self, place: Place, provider: ScriptedServer, servers: list[Node]) -> None:
        self._place = place
        self._provider = provider
        self._servers = servers
        self.path = ""
        self.followers: list[Follower] = []
        self.rounds = 0

    async def start(self) -> None:
        """Make the session."""
        self.path = await _new_session(self._servers[0])
        self.followers = [Follower(self.path, self._servers) for _ in range(CLIENTS)]

    async def round(self, holder: int) -> None:
        """Let a query run a tool, kill its server while it says something, wait for its end.

        The first server that a session is sent to holds it; then the one that survived.
        """
        victim, other = self._servers[holder], self._servers[1 - holder]
        self.rounds += 1
        effect = Turn(calls=[("shell", {"command": f"echo {self.rounds} >> effects"})])
        held = Turn([BEGINNING, "never sent"], hold=threading.Event())
        self._provider.turns = [effect, held, Turn(WHOLE)]
        prompt = {"content": "go", "id": f"m{self.rounds}"}
        sent = await victim.must("POST", f"{self.path}/messages", prompt)
        # The answer goes through the server that does not hold the session.
        approval = await _approval(other, self.path, after=sent["seq"])
        await other.must("POST", f"{self.path}/approvals/{approval}", {"decision": "allow_once"})
        for follower in self.followers:
            follower.text = ""
            follower.has_text.clear()
        async with asyncio.TaskGroup() as tasks:
            for follower in self.followers:
                tasks.create_task(follower.until_end(ends=2 * self.rounds))
            for follower in self.followers:
                while follower.text != BEGINNING:
                    await follower.has_text.wait()
                    follower.has_text.clear()
            await victim.kill()
        asked = len(self._provider.requests)
        again = await other.must("POST", f"{self.path}/messages", prompt)
        assert again["query_id"] == sent["query_id"]
        said = await other.must("GET", f"{self.path}/messages")
        assert "".join(WHOLE) in str(said["data"][-1])
        assert len(self._provider.requests) == asked

    def check(self) -> None:
        """Every client has every entry once and the same text; every tool call ran once."""
        head = max(follower.seqs[-1] for follower in self.followers)
        for follower in self.followers:
            assert follower.seqs == list(range(1, head + 1))
            assert follower.text == "".join(WHOLE)
            assert follower.ends == ["approval", "complete"] * self.rounds
        effects = (self._place.project / "effects").read_text().split()
        assert effects == [str(number) for number in range(1, self.rounds + 1)]


async def test_clients_of_a_killed_server_get_the_rest_from_the_other(
    postgres: PostgresServer, database: str, tmp_path: Path, provider: ScriptedServer
) -> None:
    place = Place(tmp_path, provider, is_new=True)
    async with nodes(place, _store(postgres, database)) as servers:
        killing = Killing(place, provider, servers)
        await killing.start()
        await killing.round(0)
        killing.check()


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_servers_are_killed_and_started_again_in_turn(
    postgres: PostgresServer, database: str, tmp_path: Path, provider: ScriptedServer
) -> None:
    place, store = Place(tmp_path, provider), _store(postgres, database)
    async with nodes(place, store) as servers:
        killing = Killing(place, provider, servers)
        await killing.start()
        for number in range(20):
            victim = number % 2
            await killing.round(victim)
            await servers[victim].end()
            servers[victim] = await start_node(place, store)
        killing.check()


async def test_a_server_that_does_not_hold_a_session_answers_for_it(
    postgres: PostgresServer, database: str, tmp_path: Path, provider: ScriptedServer
) -> None:
    released = threading.Event()
    first = Turn("One moment.", calls=[("list", {"path": "."})], hold=released)
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
        again = await other.must("POST", messages, {"content": "next", "id": "m2"})
        assert again["query_id"] == queued["query_id"]
        status, problem = await other.call("POST", messages, {"content": "else", "id": "m1"})
        assert (status, problem["code"]) == (409, "CONFLICT")
        await _entry(other, path, "input.queued", count=3)
        released.set()
        await _until_asked(provider, 3)
        assert "Shorter." in str(provider.requests[1])
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


async def test_history_and_settings_are_changed_at_any_server_also_when_the_holder_is_killed(
    postgres: PostgresServer, database: str, tmp_path: Path, provider: ScriptedServer
) -> None:
    long = "word " * 400
    turns = [Turn("One."), Turn("Two."), Turn("What was said."), Turn("Three.")]
    provider.turns = turns
    place = Place(tmp_path, provider)
    async with nodes(place, _store(postgres, database)) as (holder, other):
        path = await _new_session(holder)
        for text in (f"a {long}", f"b {long}"):
            await holder.must("POST", f"{path}/messages", {"content": text}, prefer="wait=30")
        page = await other.must("GET", f"{path}/messages")
        ids = [each["message"]["id"] for each in page["data"]]
        to = {"message_id": ids[1]}
        tried = await other.must("POST", f"{path}/rewind", {**to, "files": True, "dry_run": True})
        assert (tried["rewind"]["is_done"], tried["rewind"]["messages"]) == (False, ids[2:])
        assert (await other.must("POST", f"{path}/rewind", to))["rewind"]["is_done"]
        await other.must("POST", f"{path}/rewind", {})
        compaction = await other.must("POST", f"{path}/compact", {"instructions": "the words"})
        assert "What was said." in compaction["summary"]
        fork = await other.must("POST", f"{path}/fork", {"at_message_id": ids[1]})
        assert f"{SESSIONS}/{fork['parent']}" == path
        model = "anthropic/claude-opus-4-8"
        assert (await other.must("PATCH", path, {"model": model}))["model"] == model
        told = await other.must("POST", f"{path}/resume", {})
        assert (told["resumed"], told["compactions_applied"]) == (False, 1)
        assert told["model"] == "claude-opus-4-8"
        await holder.kill()
        # The store sees that the process of the holder has ended; this server opens the session.
        assert (await other.must("POST", f"{path}/rewind", to))["rewind"]["is_done"]
        answer = await other.must("POST", f"{path}/messages", {"content": "c"}, prefer="wait=30")
        assert answer["text"] == "Three."
        page = await other.must("GET", f"{path}/messages")
        assert [each["message"]["id"] for each in page["data"]][:2] == ids[:2]
        ended = [event for event in await _log(other, path) if event.kind == "command.ended"]
        assert len({event.data["command_id"] for event in ended}) == len(ended) >= 5


async def _log(node: Node, path: str) -> list[Sent]:
    """Return the entries of a session."""
    found: list[Sent] = []
    async with node.events(path, after=0) as events:
        async for event in events:
            if event.kind == "log.synced":
                break
            found.append(event)
    return found


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


@pytest.mark.slow
async def test_a_killed_server_carries_on_what_it_left_when_it_is_started_again(
    tmp_path: Path, provider: ScriptedServer
) -> None:
    place, store = Place(tmp_path, provider), f"sqlite:{tmp_path / 'sessions.db'}"
    provider.turns = [Turn([BEGINNING, "never sent"], hold=threading.Event()), Turn(WHOLE)]
    async with nodes(place, store, count=1) as servers:
        path = await _new_session(servers[0])
        follower = Follower(path, servers)
        following = asyncio.ensure_future(follower.until_cut(ends=2))
        await servers[0].must("POST", f"{path}/messages", {"content": "go"})
        await servers[0].must("POST", f"{path}/messages", {"content": "and then"})
        await follower.has_text.wait()
        await servers[0].kill()
        await following
        for options in (["--no-resume"], []):
            await servers[0].end()
            servers[0] = await start_node(place, store, *options)
            if options:
                assert (await servers[0].must("GET", path))["phase"] == "running"
                assert len(provider.requests) == 1
        await follower.until_end(ends=2)
        assert follower.ends == ["complete", "complete"]
        assert follower.seqs == list(range(1, len(follower.seqs) + 1))
        assert len(provider.requests) == 3


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
