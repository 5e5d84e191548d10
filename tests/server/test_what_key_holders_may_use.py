"""What holders of keys may use: the tools of their agent, no agent with others, and no file."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from haptera import AgentError, ConfigError, tool
from haptera.server import Access, ApiKey, ServerSettings
from haptera.stores.memory import MemoryStore
from haptera.testing import calls, says
from tests.providers.claude_agent.children import MODEL, Child, received
from tests.scripted_agents import make_agent
from tests.server.serving import TOKEN, Served, serving

KEY = "key-of-ana-0123456789"
HERS = {"authorization": f"Bearer {KEY}"}


class Place:
    """A server whose owner `ana` has a key, and a process elsewhere with the same store."""

    def __init__(self, folder: Path, **hers: Any) -> None:
        self.child = Child(folder / "child", [])
        self.store = MemoryStore()
        common: dict[str, Any] = {"store": self.store, "environment": self.child.environment()}
        common["claude_agent"] = {"executable": str(self.child.executable)}
        self.own, _ = make_agent([], **common)
        steps = hers.pop("steps", [says("Hello."), says("Hello.")])
        self.hers, self.provider = make_agent(steps, owner="ana", **common | hers)
        self.elsewhere, _ = make_agent([], owner="ana", **common)
        self.served: Served

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator["Place"]:
        access = Access(TOKEN, keys=[ApiKey.of(KEY, owner="ana")])
        more: dict[str, Any] = {"settings": ServerSettings(**settings), "access": access}
        agents = {"ana": self.hers}.get
        served = serving(self.own, agents=agents, **more)
        async with self.hers, self.elsewhere, served as self.served:
            yield self

    @property
    def started(self) -> list[Any]:
        """What the agent's program was started with."""
        return [value for kind, value in received(self.child.folder) if kind == "start"]

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        return await self.served.call(method, path, body, **{"headers": HERS, **more})

    async def rpc(self, method: str, **params: Any) -> tuple[int, Any]:
        """Call JSON-RPC; returns the status and the problem of an error, or 200 and the result."""
        said = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        status, told = await self.call("POST", "/rpc", said)
        assert status == 200
        if "error" not in told:
            return 200, told["result"]
        return told["error"]["data"]["status"], told["error"]["data"]

    async def new_session(self) -> str:
        status, made = await self.call("POST", "/api/v1/sessions", {})
        assert status == 201, made
        return str(made["id"])

    async def left_elsewhere(self, **settings: Any) -> str:
        """Have a process without bounds leave a session with settings; returns its id."""
        async with self.elsewhere.session(**settings) as session:
            await session.configure(**settings)
            return session.session_id or ""

    async def imported(self, session_id: str) -> tuple[int, Any]:
        """Export a session elsewhere and import it over HTTP."""
        file = b"".join([piece async for piece in self.elsewhere.sessions.export(session_id)])
        headers = HERS | {"content-type": "application/octet-stream"}
        path = f"{self.served.url}/api/v1/sessions:import"
        async with self.served.client.post(path, data=file, headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def end_of(self, session_id: str) -> dict[str, Any]:
        """Ask something over HTTP and return the end of the query."""
        path = f"/api/v1/sessions/{session_id}/messages"
        headers = HERS | {"prefer": "wait=20"}
        status, told = await self.call("POST", path, {"content": "go"}, headers=headers)
        assert status == 200, told
        end: dict[str, Any] = told["end"]
        return end


Way = Callable[[Place, str], Awaitable[tuple[int, Any]]]
WAYS: dict[str, Way] = {}


def way(function: Way) -> Way:
    WAYS[function.__name__] = function
    return function


@way
async def a_new_session(place: Place, model: str) -> tuple[int, Any]:
    return await place.call("POST", "/api/v1/sessions", {"model": model})


@way
async def a_change(place: Place, model: str) -> tuple[int, Any]:
    session_id = await place.new_session()
    return await place.call("PATCH", f"/api/v1/sessions/{session_id}", {"model": model})


@way
async def a_change_of_a_session_held_elsewhere(place: Place, model: str) -> tuple[int, Any]:
    async with place.elsewhere.session() as session:
        path = f"/api/v1/sessions/{session.session_id}"
        return await place.call("PATCH", path, {"model": model})


@way
async def a_command_of_another_process(place: Place, model: str) -> tuple[int, Any]:
    session_id = await place.new_session()
    path = f"/api/v1/sessions/{session_id}/messages"
    await place.call("POST", path, {"content": "go"}, headers=HERS | {"prefer": "wait=20"})
    remote = await place.elsewhere.remote(session_id)
    try:
        await remote.configure(model=model)
    except AgentError as error:
        return 400, {"code": error.code.value, "detail": error.message}
    return 200, {}


@way
async def a_resumed_session(place: Place, model: str) -> tuple[int, Any]:
    session_id = await place.new_session()
    return await place.call("POST", f"/api/v1/sessions/{session_id}/resume", {"model": model})


@way
async def a_fork(place: Place, model: str) -> tuple[int, Any]:
    session_id = await place.left_elsewhere(model=model)
    return await place.call("POST", f"/api/v1/sessions/{session_id}/fork", {})


@way
async def json_rpc_creates(place: Place, model: str) -> tuple[int, Any]:
    return await place.rpc("session/create", model=model)


@way
async def json_rpc_updates(place: Place, model: str) -> tuple[int, Any]:
    return await place.rpc("session/update", session_id=await place.new_session(), model=model)


@way
async def json_rpc_resumes(place: Place, model: str) -> tuple[int, Any]:
    return await place.rpc("session/resume", session_id=await place.new_session(), model=model)


async def _last_moment(place: Place, model: str) -> dict[str, Any]:
    """Ask in a session whose log names a model; returns the end of the query."""
    return await place.end_of(await place.left_elsewhere(model=model))


@pytest.mark.parametrize("model", [MODEL, "local:/srv/there.gguf", "local:missing.gguf"])
async def test_an_import_leaves_such_a_model_out(model: str, tmp_path: Path) -> None:
    async with Place(tmp_path, allowed_tools=[]).running() as place:
        session_id = await place.left_elsewhere(model=model)
        status, told = await place.imported(session_id)
        assert status == 201
        assert told["session"].get("model") != model
    assert place.started == []


@pytest.mark.parametrize("way", WAYS)
async def test_no_way_leads_to_an_agent_with_tools_of_its_own(way: str, tmp_path: Path) -> None:
    async with Place(tmp_path, allowed_tools=[]).running() as place:
        status, told = await WAYS[way](place, MODEL)
        assert status == 400, told
        assert told["code"] == "CONFIG_INVALID"
        assert "run by an agent with tools of its own" in told["detail"]
        page = await place.hers.sessions.list()
        assert [each.model for each in page].count(MODEL) <= 1  # the one of elsewhere
    assert place.started == []


async def test_the_program_is_not_started_where_a_log_names_its_model(tmp_path: Path) -> None:
    async with Place(tmp_path, allowed_tools=[]).running() as place:
        end = await _last_moment(place, MODEL)
        assert (end["stop_reason"], end["error"]["code"]) == ("error", "CONFIG_INVALID")
    assert place.started == []


async def test_nor_where_it_is_the_model_of_the_server(tmp_path: Path) -> None:
    async with Place(
        tmp_path, allowed_tools=["x"], denied_tools=["x"], model=MODEL
    ).running() as it:
        end = await it.end_of(await it.new_session())
        assert end["error"]["code"] == "CONFIG_INVALID"
    assert it.started == []


@pytest.mark.parametrize("hers", [{}, {"allowed_tools": ["Read"]}])
async def test_an_owner_with_tools_may_use_it(hers: dict[str, Any], tmp_path: Path) -> None:
    async with Place(tmp_path, **hers).running() as place:
        status, told = await place.call("POST", "/api/v1/sessions", {"model": MODEL})
        assert status == 201, told
        assert told["model"] == MODEL


def _paths(folder: Path) -> dict[str, str]:
    """Return names of files that are there, are not, and would block a reader."""
    (there := folder / "there.gguf").write_bytes(b"GGUF" + bytes(64))
    os.mkfifo(pipe := folder / "pipe.gguf")
    return {
        "there": f"local:{there}",
        "missing": f"local:{folder / 'missing.gguf'}",
        "folder": f"local:{folder}",
        "pipe": f"local:{pipe}",
        "with a slash": f"local/{there}",
        "relative": "local:there.gguf",
        "up": f"local:../{there}",
    }


@pytest.mark.parametrize("way", WAYS)
async def test_no_way_leads_to_a_file_or_tells_whether_it_is_there(
    way: str, tmp_path: Path
) -> None:
    told: dict[str, str] = {}
    async with Place(tmp_path, steps=[says("Hello.")] * 20).running() as place:
        for what, model in _paths(tmp_path).items():
            status, problem = await WAYS[way](place, model)
            assert status == 400, (what, problem)
            told[what] = problem["detail"].replace(model, "MODEL")
    assert len(set(told.values())) == 1, told


async def test_the_file_that_a_log_names_is_not_opened(tmp_path: Path) -> None:
    told: dict[str, str] = {}
    async with Place(tmp_path).running() as place:
        for what, model in _paths(tmp_path).items():
            end = await _last_moment(place, model)
            assert end["error"]["code"] == "CONFIG_INVALID"
            told[what] = end["error"]["message"].replace(model, "MODEL")
    assert len(set(told.values())) == 1, told


async def test_files_that_the_server_lists_or_names_itself_may_be_used(tmp_path: Path) -> None:
    listed, own, other = (str(tmp_path / f"{name}.gguf") for name in ("listed", "own", "other"))
    place = Place(tmp_path, fallbacks=[f"local:{own}"])
    async with place.running(local_files=frozenset({listed})):
        for path, status in ((listed, 201), (own, 201), (other, 400), (f"{listed}/", 400)):
            made = await place.call("POST", "/api/v1/sessions", {"model": f"local:{path}"})
            assert made[0] == status, made
        by_name = await place.call("POST", "/api/v1/sessions", {"model": "local/smollm2-135m"})
        assert by_name[0] == 201


async def test_the_servers_own_user_may_name_any(tmp_path: Path) -> None:
    async with Place(tmp_path, allowed_tools=[]).running() as place:
        for model in (MODEL, f"local:{tmp_path / 'any.gguf'}"):
            assert (await place.served.call("POST", "/api/v1/sessions", {"model": model}))[0] == 201


async def test_a_program_can_bound_the_models_of_its_own_sessions(tmp_path: Path) -> None:
    agent, _ = make_agent([])
    async with agent:
        agent.sessions.restrict_models(files=["/srv/models/a.gguf"])
        async with agent.session(model="local:/srv/models/a.gguf"):
            pass
        for model in ("local:/etc/passwd", "local:/srv/models/b.gguf"):
            with pytest.raises(ConfigError, match="is the path of a file"):
                agent.session(model=model)


# Tools.

NAMES = ("a", "b", "c")
SESSIONS = 4
Asked = Callable[[Place, dict[str, Any]], Awaitable[object]]


async def _asked_in_a_log(place: Place, hostile: dict[str, Any]) -> object:
    return await place.end_of(await place.left_elsewhere(**hostile))


async def _asked_in_an_import(place: Place, hostile: dict[str, Any]) -> object:
    status, made = await place.imported(await place.left_elsewhere(**hostile))
    assert status == 201, made
    return await place.end_of(made["session"]["id"])


async def _asked_in_a_fork(place: Place, hostile: dict[str, Any]) -> object:
    path = f"/api/v1/sessions/{await place.left_elsewhere(**hostile)}/fork"
    status, made = await place.call("POST", path, {})
    assert status == 201, made
    return await place.end_of(made["id"])


async def _asked_after_a_command(place: Place, hostile: dict[str, Any]) -> object:
    session_id = await place.new_session()
    async with asyncio.timeout(20):
        await place.call("POST", f"/api/v1/sessions/{session_id}/resume", {})  # held by the server
        await (await place.elsewhere.remote(session_id)).configure(**hostile)
    return await place.end_of(session_id)


async def _asked_over_json_rpc(place: Place, hostile: dict[str, Any]) -> object:
    session_id = await place.left_elsewhere(**hostile)
    status, told = await place.rpc("message/send", session_id=session_id, content="go", wait=20)
    assert status == 200, told
    return told["end"]


@pytest.mark.parametrize(
    "own",
    [
        {"allowed_tools": []},
        {"allowed_tools": ["a", "b"], "denied_tools": ["b"]},
        {"approval": "ask", "unanswered": "deny"},
    ],
)
@pytest.mark.parametrize(
    "ask",
    [
        _asked_in_a_log,
        _asked_in_an_import,
        _asked_in_a_fork,
        _asked_after_a_command,
        _asked_over_json_rpc,
    ],
)
async def test_no_session_of_a_key_holder_has_more_tools_than_its_agent(
    own: dict[str, Any], ask: Asked, tmp_path: Path
) -> None:
    ran: list[str] = []

    def made(name: str) -> Any:
        async def work() -> str:
            """Work."""
            ran.append(name)
            return name

        return tool(name=name)(work)

    chance = random.Random(ask.__name__)
    turns = [calls(*((name, {}) for name in NAMES)), says("done")] * SESSIONS
    async with Place(tmp_path, steps=turns, tools=list(map(made, NAMES)), **own).running() as place:
        for _ in range(SESSIONS):
            some = chance.sample(NAMES, chance.randint(1, 3))
            allowed = chance.choice([None, some])
            mode = chance.choice(["default", "accept_edits"])
            hostile = {"allowed_tools": allowed, "approval": "by_tool", "permission_mode": mode}
            await ask(place, hostile)
    permitted = set(own.get("allowed_tools", NAMES)) - set(own.get("denied_tools", ()))
    offered = {spec.name for request in place.provider.requests for spec in request.tools}
    assert len(place.provider.requests) == 2 * SESSIONS
    assert offered <= permitted
    assert set(ran) <= (set() if "approval" in own else permitted)
    assert bool(ran) == ("b" in own.get("denied_tools", ()))
