"""`haptera rpc` as a process: its lines, its end, and what it leaves alone."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.server.rpc_stdio import LineReader
from tests.cli.commands import Place, call
from tests.cli.scripted_server import Turn, scripted_server
from tests.docs.traps import folder_of_traps
from tests.server.rpc_client import pipes

_ROOT = Path(__file__).parents[2]
MODEL = "anthropic/claude-sonnet-5"


def _line(method: str, number: int | None = 1, **params: Any) -> bytes:
    request = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(request | ({} if number is None else {"id": number})).encode() + b"\n"


@pytest.mark.slow
def test_lines_that_are_wrong_are_answered_and_nothing_else_is_printed(tmp_path: Path) -> None:
    huge = b'{"x":"' + b"a" * (65 * 1024 * 1024) + b'"}\n'
    lines = [b"nonsense\n", b"\n", b"\xff\xfe\n", huge, _line("server/info", 2), b"[1]\n"]
    last = _line("server/health", 3).rstrip()  # without an end of line
    done = Place(tmp_path).run("rpc", "--model", MODEL, stdin=b"".join(lines) + last)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    by_id = {each["id"]: each for each in told if isinstance(each, dict) and each["id"]}
    assert by_id[2]["result"]["owner"] == "local"
    assert by_id[3]["result"] == {"status": "ok"}
    codes = [
        each["error"]["data"]["code"] for each in told if isinstance(each, dict) and not each["id"]
    ]
    assert codes == ["JSON_INVALID", "JSON_INVALID", "TOO_LARGE"]
    (batch,) = [each for each in told if isinstance(each, list)]
    assert batch[0]["error"]["code"] == -32600


@pytest.mark.slow
def test_the_end_of_the_input_lets_a_running_query_end_and_its_call_be_answered(
    tmp_path: Path,
) -> None:
    with scripted_server(Turn(["Par", "is."])) as server:
        place = Place(tmp_path, server)
        made = place.run("rpc", "--model", MODEL, stdin=_line("session/create"))
        session_id = json.loads(made.stdout)["result"]["id"]
        ask = _line("message/send", 2, session_id=session_id, content="Capital?", wait=60)
        done = place.run("rpc", stdin=ask)
        assert json.loads(done.stdout)["result"]["text"] == "Paris."
        # A notification is not waited for by its client; the process still is there for its query.
        unasked = _line("message/send", None, session_id=session_id, content="And now?")
        assert place.run("rpc", stdin=unasked).stdout == b""
        shown = place.run("rpc", stdin=_line("message/list", session_id=session_id))
        data = json.loads(shown.stdout)["result"]["data"]
        assert [each["message"]["role"] for each in data] == ["user", "assistant"] * 2


@pytest.mark.slow
async def test_sigterm_in_a_query_ends_it_in_an_orderly_way_and_no_port_is_open(
    tmp_path: Path,
) -> None:
    hold = threading.Event()
    with scripted_server(Turn(["Par", "is."], hold=hold)) as server:
        place = Place(tmp_path, server)
        async with pipes(place, "--model", MODEL) as (client, process):
            session_id = (await client.call("session/create"))["id"]
            await client.call("session/events", session_id=session_id, types="query.ended")
            await client.call("message/send", session_id=session_id, content="Capital?")
            assert await asyncio.to_thread(server.arrived.acquire, timeout=30)
            assert _listening(process.pid) == set()
            process.send_signal(signal.SIGTERM)
            told = [await client.others.get()]
            while told[-1]["method"] != "events/closed":
                told.append(await client.others.get())
            assert told[-1]["params"]["reason"] == "shutting_down"
            hold.set()
            assert await asyncio.wait_for(process.wait(), 30) == 0
            assert await client.others.get() is None
        shown = place.run("rpc", stdin=_line("message/list", session_id=session_id))
        (_, answer) = json.loads(shown.stdout)["result"]["data"]
        assert answer["message"]["parts"][0]["text"] == "Paris."


def _listening(pid: int) -> set[str]:
    """Return the inodes of the sockets of a process that listen."""
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening.add(fields[9])
    links = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
    return {inode for inode in listening if f"socket:[{inode}]" in links}


@pytest.mark.slow
def test_a_client_that_closes_what_it_reads_ends_the_process(tmp_path: Path) -> None:
    place, pipe = Place(tmp_path), subprocess.PIPE
    command = [sys.executable, "-m", "haptera.cli", "rpc", "--model", MODEL]
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, cwd=place.project, env=place.environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_line("server/info"))
        process.stdin.flush()
        assert b"result" in process.stdout.readline()
        process.stdout.close()
        process.stdin.write(_line("server/info"))
        process.stdin.flush()
        assert process.wait(60) == 0  # though its input is still open


@pytest.mark.slow
def test_the_guide_with_a_shell_runs_as_it_stands(tmp_path: Path) -> None:
    page = (_ROOT / "docs/rpc.md").read_text()
    found = re.search(r"<!-- walk-through -->\n```sh\n(.*?)```", page, re.DOTALL)
    assert found is not None
    with scripted_server(Turn("Paris.")) as server:
        command = f'set -euo pipefail\nhaptera() {{ $haptera "$@" --model {MODEL}; }}\n'
        done = Place(tmp_path, server).shell(command + found[1])
    assert done.returncode == 0, done.stderr
    answered, listed, exported = map(json.loads, done.stdout.splitlines())
    assert answered["result"]["text"] == "Paris."
    assert len(listed["result"]["data"]) == 2
    assert exported["result"]["content"].startswith("# Capitals")


@pytest.mark.slow
def test_the_example_client_prints_the_answer_as_it_comes(tmp_path: Path) -> None:
    example = (_ROOT / "examples/rpc_client.py").read_text()
    page = (_ROOT / "docs/rpc.md").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert shown.rstrip() in example
    with scripted_server(Turn(["Pa", "ris."])) as server:
        place = Place(tmp_path, server)
        folder_of_traps(place.project)
        command = f"{sys.executable} {_ROOT}/examples/rpc_client.py Capital of France?"
        done = place.shell(f"HAPTERA_MODEL={MODEL} {command}")
    assert (done.returncode, done.stdout) == (0, b"Paris.\n"), done.stderr


def test_help_shows_a_line_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call(Place(tmp_path), monkeypatch, "rpc", "--help")
    assert done.code == 0
    assert '\'{"jsonrpc":"2.0","id":1,"method":"session/list"}\' | haptera rpc' in done.out


_LIMIT = 5


@given(
    st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b".")), max_size=6),
    st.booleans(),
)
def test_lines_are_those_that_were_written_and_long_ones_are_told_once(
    lines: list[bytes], ends: bool
) -> None:
    content = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    for size in (1, 3, 64):
        source, target = os.pipe()
        reader = LineReader(source, limit=_LIMIT, chunk=size)
        os.write(target, content)
        os.close(target)
        found: list[bytes | None] = []
        while (some := reader.read()) is not None:
            found += some
        os.close(source)
        expected = [line if len(line) <= _LIMIT else None for line in lines]
        if expected and not ends and expected[-1] == b"":
            expected.pop()
        assert found == expected
