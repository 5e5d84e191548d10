"""A forked process is like a new interpreter: what it has of its own, and how it ends."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import forked_processes
from tests.architecture.source_tree import ROOT
from tests.cli.commands import Place
from tests.cli.scripted_server import Turn, scripted_server
from tests.forked_processes import ForkedProcess

pytestmark = pytest.mark.slow

PROBE = "tests.forked_probe"
_GET_CHILD_SUBREAPER = 37


def _start(folder: Path, *arguments: str, is_new: bool = False, **more: str) -> Any:
    environment = {"PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", **more}
    pipe = subprocess.PIPE
    options: Any = {"cwd": folder, "env": environment, "stdin": pipe, "stdout": pipe}
    if is_new:
        command = [sys.executable, "-m", PROBE, *arguments]
        return subprocess.Popen(command, stderr=pipe, **options)
    return ForkedProcess(PROBE, *arguments, stderr=pipe, **options)


def _described(process: Any, stdin: bytes = b"") -> dict[str, Any]:
    with process:
        out, err = process.communicate(stdin, 60)
    assert (process.returncode, err) == (0, b"")
    found: dict[str, Any] = json.loads(out)
    return found


def test_it_has_what_a_new_interpreter_has(tmp_path: Path) -> None:
    forked, new = (
        _described(_start(tmp_path, "describe", "ä b", is_new=is_new, OWN="ö"), b"input")
        for is_new in (False, True)
    )
    assert forked.pop("random") != new.pop("random")
    assert forked == new
    assert forked["parent"] == os.getpid()
    assert forked["read"] == "input"
    assert forked["folder"] == str(tmp_path)


def test_each_has_its_own_random_numbers_and_ids(tmp_path: Path) -> None:
    processes = [_start(tmp_path, "describe") for _ in range(2)]
    one, two = (_described(process)["random"] for process in processes)
    assert not set(one) & set(two)


ENDS = ["", "0", "7", "-1", "a message", "an exception", "a thread", "a signal", "an interrupt"]


@pytest.mark.parametrize("how", [*ENDS, "no reader"])
def test_it_ends_as_a_new_interpreter_does(how: str, tmp_path: Path) -> None:
    ends = []
    for is_new in (False, True):
        with _start(tmp_path, "end", how, is_new=is_new) as process:
            out, err = process.communicate(timeout=60)
        ends.append((process.returncode, out, err.splitlines()[-1:]))
    assert ends[0] == ends[1]


def test_it_is_signalled_and_waited_for_like_any_child(tmp_path: Path) -> None:
    with _start(tmp_path, "describe") as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL


def test_streams_that_are_not_given_are_those_of_this_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = {"PYTHONPATH": str(ROOT)}
    with ForkedProcess(PROBE, "end", "7", cwd=tmp_path, env=environment) as process:
        assert process.wait(60) == 7
    assert capfd.readouterr().out == "said\nat exit\n"


def test_processes_are_started_from_several_threads(tmp_path: Path) -> None:
    def run(number: int) -> list[str]:
        found: list[str] = _described(_start(tmp_path, "describe", str(number)))["argv"]
        return found

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(run, range(16))) == [["describe", str(n)] for n in range(16)]


def test_a_module_that_does_not_exist_fails_in_its_process_only(tmp_path: Path) -> None:
    with ForkedProcess(
        "tests.no_such_module", cwd=tmp_path, env={}, stderr=subprocess.PIPE
    ) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"no_such_module" in err
    assert _described(_start(tmp_path, "describe"))["threads"] == 1


def test_orphans_of_others_are_not_adopted_and_the_fork_server_has_one_thread(
    tmp_path: Path,
) -> None:
    _described(_start(tmp_path, "describe"))
    is_adopting = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(_GET_CHILD_SUBREAPER, ctypes.byref(is_adopting), 0, 0, 0)
    assert is_adopting.value == 0
    server = forked_processes._fork_server()._process
    assert len(list(Path(f"/proc/{server.pid}/task").iterdir())) == 1


def test_a_command_finds_what_it_needs_imported_already(tmp_path: Path) -> None:
    with scripted_server(Turn("Hello.")) as server:
        place = Place(tmp_path, server)
        found: Any = place.environment
        with _start(place.project, "run", "-p", "Hi", **found) as process:
            out, err = process.communicate(timeout=60)
    assert (out, err) == (b"Hello.\nhaptera.cli.main\n", b"")
