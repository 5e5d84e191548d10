"""The start of `holdfast serve` and `rpc`: what is refused, what is warned of, whose keys read."""

import runpy
import sys
from pathlib import Path

import click
import pytest

from holdfast.server.command import keys, rpc, serve
from tests.cli.commands import Place, call
from tests.cli.scripted_server import scripted_server
from tests.server.processes import running, sent_in, started

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


@pytest.mark.slow
def test_without_a_key_and_a_local_model_the_start_says_that_queries_will_fail(
    tmp_path: Path,
) -> None:
    done = Place(tmp_path).run("rpc", stdin=b"")
    assert done.returncode == 0
    assert done.stdout == b""
    assert b"queries will fail" in done.stderr
    assert b"holdfast models pull" in done.stderr
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
    assert (empty.out, "holdfast keys add OWNER" in empty.err) == ("", True)
    call(place, monkeypatch, "keys", "add", "ana", "--days", "1", "--label", "laptop")
    call(place, monkeypatch, "keys", "add", "ben", "--days", "0.0000000001")
    first, second = call(place, monkeypatch, "keys", "list").out.splitlines()
    assert "  until " in first
    assert first.endswith("  laptop")
    assert "  expired " in second
    for wrong in ("abc", "0" * 12):
        refused = call(place, monkeypatch, "keys", "remove", wrong)
        assert refused.code != 0
        assert "holdfast keys list" in refused.err


def test_the_doctor_names_the_extra_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = call(Place(tmp_path), monkeypatch, "doctor").out
    (line,) = [each for each in told.splitlines() if "extras:" in each]
    assert "server" in line.partition("; not:")[0]
