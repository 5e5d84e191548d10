"""No caller of a server loads a plugin, by whatever request and with whatever key."""

import sys
from pathlib import Path
from typing import Any

import pytest

from haptera import ConfigError
from tests.plugins.wheels import build, install
from tests.scripted_agents import make_agent
from tests.server.serving import serving
from tests.server.test_what_key_holders_may_use import WAYS, Place

MODELS = ("echo/any", "diver/any")


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install(build(tmp_path / "wheels"), tmp_path / "site"))


@pytest.fixture
def _unloaded() -> Any:
    yield
    assert "kelp" not in sys.modules


@pytest.mark.usefixtures("_unloaded")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS)
async def test_no_way_leads_to_a_plugin(way: str, model: str, tmp_path: Path) -> None:
    async with Place(tmp_path).running() as place:
        status, told = await WAYS[way](place, model)
        assert status == 400, told
        assert told["code"] == "CONFIG_INVALID"
        assert "it is a plugin, of kelp 1.0" in told["detail"]
        assert "a request to a server" in told["detail"]


@pytest.mark.usefixtures("_unloaded")
@pytest.mark.parametrize("model", MODELS)
async def test_nor_does_the_key_of_the_servers_own_user(model: str, tmp_path: Path) -> None:
    said = {"jsonrpc": "2.0", "id": 1, "method": "session/create", "params": {"model": model}}
    async with Place(tmp_path).running() as place:
        status, told = await place.served.call("POST", "/api/v1/sessions", {"model": model})
        assert (status, told["code"]) == (400, "CONFIG_INVALID")
        _, answer = await place.served.call("POST", "/rpc", said)
        assert answer["error"]["data"]["code"] == "CONFIG_INVALID"


@pytest.mark.usefixtures("_unloaded")
async def test_nor_does_a_log_that_names_one(tmp_path: Path) -> None:
    async with Place(tmp_path).running() as place:
        end = await place.end_of(await place.left_elsewhere(model="echo/any"))
        assert end["error"]["code"] == "CONFIG_INVALID"
        assert "it is a plugin" in end["error"]["message"]


@pytest.mark.usefixtures("_unloaded")
async def test_nor_is_a_session_exported_in_the_format_of_one(tmp_path: Path) -> None:
    async with Place(tmp_path).running() as place:
        session_id = await place.new_session()
        path = f"/api/v1/sessions/{session_id}/export?format=plain"
        status, _ = await place.call("GET", path)
        assert status == 400
        with pytest.raises(ConfigError, match="no request to a server can load"):
            _ = [piece async for piece in place.hers.sessions.export(session_id, to="plain")]


@pytest.mark.usefixtures("_unloaded")
async def test_an_agent_with_tools_of_its_own_is_refused_to_an_owner_without(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, allowed_tools=["x"], denied_tools=["x"], fallbacks=["diver/any"])
    async with place.running():
        status, told = await place.call("POST", "/api/v1/sessions", {"model": "diver/any"})
        assert status == 400
        assert "run by an agent with tools of its own" in told["detail"]


async def test_what_the_agent_of_a_server_names_its_callers_may_choose() -> None:
    agent, _ = make_agent([], fallbacks=["echo/any"])
    headers = {"prefer": "wait=20"}
    async with serving(agent) as served:
        session_id = await served.new_session(model="echo/any")
        path = f"/api/v1/sessions/{session_id}/messages"
        status, told = await served.call("POST", path, {"content": "Hi"}, headers=headers)
        assert (status, told["end"]["stop_reason"]) == (200, "complete")
    sys.modules.pop("kelp")
