"""The start of `haptera serve` and `rpc`: what is refused, what is warned of, whose keys read."""

import runpy
import socket
import sys
import threading
from pathlib import Path

import click
import pytest

from haptera import Agent
from haptera.server.command import keys, rpc, serve
from tests.cli.commands import Place, call
from tests.cli.scripted_server import Turn, scripted_server
from tests.server.processes import running, sent_in, started
from tests.server.rpc_client import CallError, pipes

_EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("rpc",)])
@pytest.mark.parametrize(
    ("store", "told"), [("foo:bar", "'foo' is not a store"), ("sqlite:folder", "Is a directory")]
)
def test_a_store_that_cannot_be_used_is_refused_before_a_client_is_told_of_the_server(
    command: tuple[str, ...],
    store: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(tmp_path)
    (place.project / "folder").mkdir()
    done = call(place, monkeypatch, *command, "--store", store)
    assert done.code in {1, 2}
    assert told in done.err
    assert "Traceback" not in done.err
    assert "http://" not in done.err
    assert not list(tmp_path.rglob("server.json"))


@pytest.mark.parametrize("store", ["sqlite:chat.db", "sqlite:linked/chat.db", "jsonl:chats"])
def test_a_store_in_the_folder_of_holders_of_keys_who_have_tools_is_refused(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    (tmp_path / "linked").symlink_to(place.project)
    if "linked" in store:
        store = f"sqlite:{tmp_path}/linked/chat.db"
    flags = ("--port", "0", "--tools-for-keys", "--store", store)
    done = call(place, monkeypatch, "serve", *flags)
    assert done.code in {1, 2}
    assert f"store {store!r} is in {place.project}, where the holders of keys have" in done.err
    assert "Keep it elsewhere" in done.err
    assert not list(tmp_path.rglob("server.json"))


def test_a_port_that_is_taken_is_refused_with_the_flag_that_takes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = call(Place(tmp_path), monkeypatch, "serve", "--port", port)
    assert done.code == 2
    assert f"port {port} cannot be used" in done.err
    assert "--port takes another" in done.err


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "*", "null"])
def test_an_origin_that_no_browser_sends_is_refused(
    origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = call(Place(tmp_path), monkeypatch, "serve", "--port", "0", "--cors", origin)
    assert done.code == 2
    assert "https://app.example" in done.err


@pytest.mark.parametrize("command", [serve, rpc, keys.commands["add"]])
def test_every_option_is_explained(command: click.Command) -> None:
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert options
    assert [each.name for each in options if not each.help] == []


@pytest.mark.slow
def test_the_limits_of_a_server_are_options(tmp_path: Path) -> None:
    limits = ("--max-sessions", "1", "--max-streams", "1", "--max-requests", "1000")
    with scripted_server() as model, started(Place(tmp_path, model), *limits) as server:
        first, second = (server.json("POST", "/api/v1/sessions", {})["id"] for _ in range(2))
        with server.answer("GET", f"/api/v1/sessions/{first}/events") as stream:
            assert next(sent_in(stream))
            status, problem = server.call("GET", f"/api/v1/sessions/{second}/events")
            assert (status, b"TOO_MANY_STREAMS" in problem) == (429, True)


def _configured(place: Place, text: str) -> Place:
    """Write the user's configuration file of a place."""
    folder = Path(place.environment["HOME"]) / ".config" / "haptera"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "flags", "is_full"),
    [(None, (), True), ("1", (), True), ("9", (), False), ("1", ("--max-sessions", "9"), False)],
)
def test_the_file_the_environment_and_then_a_flag_say_how_many_sessions_a_server_keeps_open(
    variable: str | None, flags: tuple[str, ...], is_full: bool, tmp_path: Path
) -> None:
    hold = threading.Event()
    variables = {} if variable is None else {"HAPTERA_MAX_SESSIONS": variable}
    with scripted_server(Turn(["a", "b"], hold=hold), Turn("c")) as model:
        place = Place(tmp_path, model, variables=variables)
        _configured(place, "[runtime]\nmax_concurrent_sessions = 1\n")
        with started(place, *flags) as server:
            first, second = (server.json("POST", "/api/v1/sessions", {})["id"] for _ in range(2))
            server.json("POST", f"/api/v1/sessions/{first}/messages", {"content": "go"})
            model.arrived.acquire()
            status, told = server.call(
                "POST", f"/api/v1/sessions/{second}/messages", {"content": "go"}, prefer="wait=30"
            )
            hold.set()
    assert (status == 503, b"POOL_FULL" in told) == (is_full, is_full), told


@pytest.mark.slow
async def test_the_environment_says_how_many_sessions_json_rpc_keeps_open(tmp_path: Path) -> None:
    hold = threading.Event()
    with scripted_server(Turn(["a", "b"], hold=hold), Turn("c")) as model:
        place = Place(tmp_path, model, variables={"HAPTERA_MAX_SESSIONS": "1"})
        async with pipes(place, "--model", "anthropic/claude-sonnet-5") as (client, _):
            first, second = [(await client.call("session/create"))["id"] for _ in range(2)]
            await client.call("message/send", session_id=first, content="go")
            with pytest.raises(CallError) as caught:
                await client.call("message/send", session_id=second, content="go")
            hold.set()
    assert caught.value.data["code"] == "POOL_FULL"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["file", "environment"])
async def test_a_session_is_closed_when_it_was_idle_for_as_long_as_was_configured(
    by: str, tmp_path: Path
) -> None:
    # By default a server would hold the session for five minutes, longer than a test may take.
    store = f"sqlite:{tmp_path / 'chat.db'}"
    with scripted_server(Turn("Paris.")) as model:
        told = {"HAPTERA_SESSION_TIMEOUT": "0"} if by == "environment" else {}
        place = Place(tmp_path, model, variables=told)
        _configured(place, "[runtime]\nsession_timeout = 0\n" if by == "file" else "")
        with started(place, "--store", store) as server:
            session_id = server.json("POST", "/api/v1/sessions", {})["id"]
            path = f"/api/v1/sessions/{session_id}/messages"
            server.json("POST", path, {"content": "go"}, prefer="wait=30")
            project = server.json("GET", f"/api/v1/sessions/{session_id}")["project"]
            agent = Agent("scripted/m", store=store, project=project, environment={})
            async with agent, agent.session(session_id, must_exist=True, busy="wait") as session:
                assert session.messages[-1].text == "Paris."


@pytest.mark.slow
def test_without_a_key_and_a_local_model_the_start_says_that_queries_will_fail(
    tmp_path: Path,
) -> None:
    done = Place(tmp_path, is_new=True).run("rpc", stdin=b"")
    assert done.returncode == 0
    assert done.stdout == b""
    assert b"queries will fail" in done.stderr
    assert b"haptera models pull" in done.stderr
    with scripted_server() as server:
        assert Place(tmp_path, server).run("rpc", stdin=b"").stderr == b""


@pytest.mark.slow
def test_the_example_client_says_why_there_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, variables={"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"})
    with running(place):
        monkeypatch.setenv("HOME", place.environment["HOME"])
        monkeypatch.setattr(sys, "argv", ["http_client.py", "Hello"])
        with pytest.raises(SystemExit, match="ANTHROPIC_API_KEY"):
            runpy.run_path(str(_EXAMPLES / "http_client.py"), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "expected"), [((), 403), (("--tools-for-keys",), 201)])
def test_a_key_for_the_servers_own_user_only_reads_unless_keys_have_tools(
    flags: tuple[str, ...], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_server() as server:
        place = Place(tmp_path, server)
        key = call(place, monkeypatch, "keys", "add", "local").out.strip()
        with running(place, *flags) as process:
            own = {"authorization": f"Bearer {key}"}
            assert process.call("GET", "/api/v1/sessions", **own)[0] == 200
            status, told = process.call("POST", "/api/v1/sessions", {}, **own)
    assert status == expected
    assert (b"SCOPE_MISSING" in told) == (expected == 403)


def test_keys_say_how_long_they_are_valid_and_how_they_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    empty = call(place, monkeypatch, "keys", "list")
    assert (empty.out, "haptera keys add OWNER" in empty.err) == ("", True)
    call(place, monkeypatch, "keys", "add", "ana", "--days", "1", "--label", "laptop")
    call(place, monkeypatch, "keys", "add", "ben", "--days", "0.0000000001")
    first, second = call(place, monkeypatch, "keys", "list").out.splitlines()
    assert "  until " in first
    assert first.endswith("  laptop")
    assert "  expired " in second
    for wrong in ("abc", "0" * 12):
        refused = call(place, monkeypatch, "keys", "remove", wrong)
        assert refused.code != 0
        assert "haptera keys list" in refused.err


@pytest.mark.parametrize(
    "flag",
    ["--days=0", "--days=-1", "--days=nan", "--days=inf", "--days=1e12", "--label=\udcff"],
    ids=repr,
)
def test_a_key_that_could_not_be_listed_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    place = Place(tmp_path)
    refused = call(place, monkeypatch, "keys", "add", "ana", flag)
    assert (refused.code, refused.out) == (2, "")
    assert "CONFIG_INVALID: " in refused.err
    assert call(place, monkeypatch, "keys", "list").out == ""


def test_the_doctor_names_the_extra_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = call(Place(tmp_path), monkeypatch, "doctor").out
    (line,) = [each for each in told.splitlines() if "extras:" in each]
    assert "server" in line.partition("; not:")[0]
