"""`haptera serve` as a process: its state file, its refusals, its end, and the guide with curl."""

import re
import runpy
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from haptera.options.declarations import declared_fields
from haptera.server import ServerSettings
from haptera.server.command import serve
from tests.cli.commands import Place, call
from tests.cli.scripted_server import Turn, scripted_server
from tests.server.processes import running

_ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_guide_with_curl_runs_as_it_stands(tmp_path: Path) -> None:
    page = (_ROOT / "docs/server.md").read_text()
    found = re.search(r"<!-- walk-through -->\n```sh\n(.*?)```", page, re.DOTALL)
    assert found is not None
    with scripted_server(Turn("Paris."), Turn(["Ro", "me."])) as server:
        place = Place(tmp_path, server, is_new=True)
        with running(place):
            done = place.shell("set -euo pipefail\n" + found[1])
        told = done.stdout.decode()
        assert done.returncode == 0, (told, done.stderr)
    assert '"text":"Paris."' in told
    assert "event: text.delta" in told
    assert "event: query.ended" in told
    assert "Rome." in told
    assert "# Capitals" in told


@pytest.mark.slow
def test_the_server_logs_to_standard_error_at_the_level_that_was_configured(
    tmp_path: Path,
) -> None:
    for level, expected in (("debug", ["INFO", "DEBUG"]), ("warning", [])):
        with scripted_server(Turn("Paris.")) as model:
            place = Place(tmp_path, model, variables={"HAPTERA_LOG": level})
            with running(place) as server:
                session_id = server.json("POST", "/api/v1/sessions", {})["id"]
                path = f"/api/v1/sessions/{session_id}/messages"
                server.json("POST", path, {"content": "go"}, prefer="wait=30")
            printed = b"".join(server.printed).decode()
        assert bool(printed) == bool(expected)
        assert all(f" {each} haptera." in printed for each in expected)
        assert "go" not in printed.split()
        for secret in ("sk-made-up", server.state["token"]):
            assert secret not in printed


@pytest.mark.slow
def test_the_example_client_finds_the_server_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted_server(Turn(["Pa", "ris."])) as server:
        place = Place(tmp_path, server)
        with running(place):
            monkeypatch.setenv("HOME", place.environment["HOME"])
            monkeypatch.setattr(sys, "argv", ["http_client.py", "Capital", "of", "France?"])
            runpy.run_path(str(_ROOT / "examples/http_client.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() == "Paris."


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--host", "0.0.0.0"), "--behind-proxy"),  # noqa: S104 - it is refused
        (("--host", "::"), "--behind-proxy"),
        (("--host", "chat.example"), "no IP address"),
        (("--host", "0.0.0.0", "--behind-proxy"), "--allow-host"),  # noqa: S104 - refused, too
        (("--tls-key", __file__), "together"),
    ],
)
def test_what_others_could_reach_unprotected_is_refused(
    arguments: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = call(Place(tmp_path), monkeypatch, "serve", "--port", "0", *arguments)
    assert done.code != 0
    assert told in done.err


def test_keys_are_shown_once_and_kept_as_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    key = call(place, monkeypatch, "keys", "add", "ana", "--read-only", "--days", "1").out.strip()
    listed = call(place, monkeypatch, "keys", "list").out
    assert "ana  read" in listed
    assert key not in listed
    (path,) = tmp_path.rglob("server-keys.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key not in path.read_text()
    digest = listed.split()[0]
    assert call(place, monkeypatch, "keys", "remove", digest).code == 0
    assert call(place, monkeypatch, "keys", "list").out == ""
    assert call(place, monkeypatch, "keys", "remove", digest).code != 0
    assert call(place, monkeypatch, "keys", "add", "not an owner").code != 0


@pytest.mark.parametrize(
    ("blocked", "arguments"),
    [
        ("haptera", ["keys", "list"]),
        ("haptera", ["keys", "add", "ana"]),
        ("haptera", ["serve", "--port", "0"]),
        ("haptera/server-keys.json", ["keys", "list"]),
        ("haptera/server-keys.json", ["keys", "add", "ana"]),
        ("haptera/server-keys.json", ["serve", "--port", "0"]),
        ("haptera/server.json", ["serve", "--port", "0"]),
    ],
)
def test_a_state_folder_that_cannot_be_used_is_named(
    blocked: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    path = Path(place.environment["HOME"]) / ".local/state" / blocked
    if path.suffix:  # a folder where a file should be
        path.mkdir(parents=True, mode=0o700)
    else:
        path.parent.mkdir(parents=True)
        path.write_text("a file where a folder should be")
    before = sorted(tmp_path.rglob("server*"))
    done = call(place, monkeypatch, *arguments)
    assert done.code == 2
    assert "CONFIG_INVALID" in done.err
    assert f"{path}" in done.err
    left = [found for found in tmp_path.rglob("server*") if found.suffix != ".lock"]
    assert sorted(left) == before


@pytest.mark.slow
def test_other_commands_open_no_socket(tmp_path: Path) -> None:
    place = Place(tmp_path)
    program = (
        "import socket, sys\n"
        "socket.socket.listen = lambda *a: sys.exit('it listens')\n"
        "from haptera.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    for arguments in (["--help"], ["sessions", "list"], ["models", "list"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            env=place.environment,
            cwd=place.project,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_flags_of_settings_say_check_and_default_to_what_is_declared() -> None:
    declared = declared_fields(ServerSettings)
    assert all(item.option.sentence for item in declared.values())
    flags = {each.name: each for each in serve.params if each.name in declared}
    assert set(flags) == {
        *("behind_tls", "hosts", "origins", "sessions", "streams_per_owner"),
        *("requests_per_second", "resume", "local_files"),
        *("queries", "pending_queries", "when_queries_full", "pending_seconds"),
    }
    for name, flag in flags.items():
        assert isinstance(flag, click.Option)
        said, default = declared[name].option, declared[name].default
        if name == "sessions":  # the configuration may say it
            assert (flag.help or "").startswith(declared[name].brief().option.sentence)
            assert flag.show_default == f"as configured, else {default}"
            default = None
        else:
            assert (flag.help or "").startswith(said.sentence)
        assert flag.default == (() if flag.multiple else default)
        if isinstance(flag.type, click.IntRange | click.FloatRange):
            low = said.least if said.above is None else said.above
            assert (flag.type.min, flag.type.max) == (low, said.most)
            assert flag.type.min_open == (said.above is not None)


@pytest.mark.parametrize("flag", [["--max-requests", "0"], ["--max-streams", "0"]])
def test_a_limit_that_could_not_be_kept_is_refused_before_the_server_listens(
    flag: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = call(Place(tmp_path), monkeypatch, "serve", "--port", "0", *flag)
    assert (done.code, done.out) == (2, "")
    assert flag[0] in done.err
