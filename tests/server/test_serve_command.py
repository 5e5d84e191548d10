"""`holdfast serve` as a process: its state file, its refusals, its end, and the guide with curl."""

import re
import runpy
import stat
import subprocess
import sys
from pathlib import Path

import pytest

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
        place = Place(tmp_path, server)
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


@pytest.mark.slow
def test_other_commands_open_no_socket(tmp_path: Path) -> None:
    place = Place(tmp_path)
    program = (
        "import socket, sys\n"
        "socket.socket.listen = lambda *a: sys.exit('it listens')\n"
        "from holdfast.cli.main import main\n"
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
