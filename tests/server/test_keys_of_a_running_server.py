"""API keys while a server runs: added, removed, expired, and what their owners may use."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import pytest

from haptera.model.secrets import token_digest
from haptera.server import Access, ApiKey
from haptera.server.access import COOKIE, LOGIN_HEADER
from haptera.server.key_file import KeyFile, add_key, remove_key
from haptera.testing import FakeClock
from tests.cli.commands import Place, call
from tests.cli.scripted_server import Turn, scripted_server
from tests.scripted_agents import make_agent
from tests.server.processes import ServeProcess, running
from tests.server.serving import TOKEN, Served, serving

pytestmark = pytest.mark.slow

KEY = "key-of-ana-0123456789"
DIGEST = token_digest(KEY)
HERS = {"authorization": f"Bearer {KEY}"}
NOTES_ITS_START = """#!/bin/sh
printf '%s\\n' "$0" "$@" > "$0.started"
exit 1
"""


async def _status(served: Served, headers: dict[str, str]) -> int:
    return (await served.call("GET", "/api/v1/info", headers=headers))[0]


def test_keys_that_are_made_at_once_are_all_there(tmp_path: Path) -> None:
    made = [ApiKey(digest=token_digest(f"key {number}"), owner="ana") for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: add_key(tmp_path, key), made))
        assert set(KeyFile(tmp_path).keys()) == {key.digest for key in made}
        assert all(threads.map(lambda key: remove_key(tmp_path, key.digest), made[1:]))
    assert set(KeyFile(tmp_path).keys()) == {made[0].digest}


async def test_keys_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    agent, _ = make_agent([])
    hers, _ = make_agent([], owner="ana")
    access = Access(TOKEN, keys=KeyFile(tmp_path).keys)
    async with hers, serving(agent, access=access, agents=lambda _: hers) as served:
        assert await _status(served, HERS) == 401
        add_key(tmp_path, ApiKey(digest=DIGEST, owner="ana"))
        assert await _status(served, HERS) == 200
        file = tmp_path / "server-keys.json"
        file.chmod(0o644)  # others may read it: no key counts
        assert await _status(served, HERS) == 401
        file.chmod(0o600)
        assert await _status(served, HERS) == 200
        good = file.read_bytes()
        file.write_bytes(good[:-1])
        assert await _status(served, HERS) == 401
        file.write_bytes(good)
        assert await _status(served, HERS) == 200
        assert remove_key(tmp_path, DIGEST[:12])
        assert await _status(served, HERS) == 401
        assert await _status(served, {}) == 200


@pytest.mark.parametrize("how", ["removed", "expired", "logged out"])
@pytest.mark.parametrize("stream", ["/api/v1/sessions/{id}/events", "/api/v1/events"])
async def test_a_stream_ends_when_its_credential_does(
    how: str, stream: str, tmp_path: Path
) -> None:
    clock = FakeClock(start_ms=1_000)
    add_key(tmp_path, ApiKey(digest=DIGEST, owner="local", expires=2_000))
    access = Access(TOKEN, keys=KeyFile(tmp_path).keys, clock=clock)
    agent, _ = make_agent([])
    async with serving(agent, access=access) as served, aiohttp.ClientSession() as browser:
        session_id = await served.new_session()
        made = access.log_in(KEY)
        assert made is not None
        login = {"cookie": f"{COOKIE}={made.cookie}", LOGIN_HEADER: made.secret}
        headers = login if how == "logged out" else HERS
        url = served.url + stream.format(id=session_id)
        async with browser.get(url, headers=headers) as answer:
            assert answer.status == 200
            if how == "removed":
                remove_key(tmp_path, DIGEST[:12])
            elif how == "expired":
                clock.advance(2)
            else:
                access.log_out(made.cookie)
            path = f"/api/v1/sessions/{session_id}"
            assert (await served.call("PATCH", path, {"title": "News"}))[0] == 200
            told = await answer.content.read()
            assert b"News" not in told
        async with browser.get(url, headers=headers) as answer:
            assert answer.status == 401


async def test_a_browser_is_logged_out_when_its_key_is_removed(tmp_path: Path) -> None:
    add_key(tmp_path, ApiKey(digest=DIGEST, owner="ana"))
    access = Access(TOKEN, keys=KeyFile(tmp_path).keys)
    made = access.log_in(KEY)
    assert made is not None
    principal = access.principal_of_login(made.cookie, made.secret)
    assert principal is not None
    assert principal.owner == "ana"
    remove_key(tmp_path, DIGEST[:12])
    assert access.principal_of_login(made.cookie, made.secret) is None
    assert not access.is_valid(principal)


def _program(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a program that does nothing but note its arguments; returns it and the note."""
    program = folder / name
    program.write_text(NOTES_ITS_START)
    program.chmod(0o700)
    return program, program.with_name(f"{name}.started")


def _with_mcp_server(place: Place, program: Path) -> None:
    config = Path(place.environment["HOME"]) / ".config/haptera/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[mcpServers.clock]\ncommand = "{program}"\n')


@pytest.mark.slow
def test_the_owner_of_a_key_has_no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mcp_server, mcp_start = _program(tmp_path, "clock")
    claude, claude_start = _program(tmp_path, "claude")
    with scripted_server(Turn("Hello.")) as model:
        variables = {"HAPTERA_CLAUDE_EXECUTABLE": str(claude)}
        place = Place(tmp_path, model, variables=variables)
        _with_mcp_server(place, mcp_server)
        with running(place) as server:
            key = call(place, monkeypatch, "keys", "add", "ana").out.strip()
            hers = {"authorization": f"Bearer {key}"}
            assert server.json("GET", "/api/v1/tools", **hers)["data"] == []
            assert _asked(server, hers) == "Hello."
            native = {"model": "claude-agent/claude-sonnet-5"}
            status, told = server.call("POST", "/api/v1/sessions", native, **hers)
            assert (status, b"tools of its own" in told) == (400, True)
        assert "tools" not in model.requests[0]
    assert not mcp_start.exists()
    assert not claude_start.exists()


@pytest.mark.slow
def test_the_owner_of_a_key_without_tools_gets_no_agent_that_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude, claude_start = _program(tmp_path, "claude")
    with scripted_server() as model:
        place = Place(tmp_path, model, variables={"HAPTERA_CLAUDE_EXECUTABLE": str(claude)})
        with running(place, "--model", "claude-agent/claude-sonnet-5") as server:
            key = call(place, monkeypatch, "keys", "add", "ana").out.strip()
            hers = {"authorization": f"Bearer {key}", "prefer": "wait=60"}
            made = server.json("POST", "/api/v1/sessions", {}, **hers)["id"]
            path = f"/api/v1/sessions/{made}/messages"
            end = server.json("POST", path, {"content": "hi"}, **hers)["end"]
            assert end["error"]["code"] == "CONFIG_INVALID"
            assert "tools of its own" in end["error"]["message"]
            assert not claude_start.exists()
            own = server.json("POST", "/api/v1/sessions", {})["id"]  # the server's own user
            path = f"/api/v1/sessions/{own}/messages"
            server.json("POST", path, {"content": "hi"}, prefer="wait=60")
    assert claude_start.exists()


@pytest.mark.slow
def test_the_owner_of_a_key_has_tools_when_the_operator_says_so_until_the_key_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_server(Turn("Hello.")) as model:
        mcp_server, mcp_start = _program(tmp_path, "clock")
        place = Place(tmp_path, model)
        _with_mcp_server(place, mcp_server)
        with running(place, "--tools-for-keys") as server:
            key = call(place, monkeypatch, "keys", "add", "ana").out.strip()
            hers = {"authorization": f"Bearer {key}"}
            assert _asked(server, hers) == "Hello."
            (digest, *_) = call(place, monkeypatch, "keys", "list").out.split()
            assert call(place, monkeypatch, "keys", "remove", digest).code == 0
            assert server.call("GET", "/api/v1/info", **hers)[0] == 401
        assert {"shell", "write"} <= {tool["name"] for tool in model.requests[0]["tools"]}
    assert mcp_start.exists()


def _asked(server: ServeProcess, headers: dict[str, str], **changes: str) -> str:
    """Ask a question, so that the model is offered the caller's tools; returns the answer."""
    made = server.json("POST", "/api/v1/sessions", {}, **headers)["id"]
    path = f"/api/v1/sessions/{made}"
    server.json("PATCH", path, changes, **headers)
    asked = f"{path}/messages", {"content": "hi"}
    return str(server.json("POST", *asked, prefer="wait=60", **headers)["text"])
