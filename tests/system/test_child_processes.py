"""Child processes: groups that end as a whole, lines with a bound, the end of standard error."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from haptera.system.child_processes import (
    GROUPS,
    POSIX_GROUPS,
    ChildProcess,
    KeptTail,
    LineTooLongError,
    ProcessGroups,
    start_child,
)

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
WAITS = "import sys; print('ready', flush=True); sys.stdin.read(); import time; time.sleep(600)"
WITH_A_CHILD = (
    "import subprocess, sys; "
    "subprocess.Popen([sys.executable, '-c', '{child}'], stdin=subprocess.DEVNULL).wait()"
)
READY_CHILD = 'print(\\"ready\\", flush=True); import time; time.sleep(600)'
EACH_MECHANISM = pytest.mark.parametrize("groups", [POSIX_GROUPS])


def started(groups: ProcessGroups, code: str) -> "subprocess.Popen[bytes]":
    """A program that has said that it is ready, or whose child has."""
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=groups.has_session,
        creationflags=groups.creation_flags,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def wait_for_all(child: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of everything that has the output of a program."""
    with child:
        assert child.stdout is not None
        assert child.stdout.read() == b""


@EACH_MECHANISM
def test_a_group_that_is_told_to_end_ends_with_what_it_started(groups: ProcessGroups) -> None:
    child = started(groups, WITH_A_CHILD.format(child=READY_CHILD))
    groups.terminate(child.pid)
    wait_for_all(child)


@EACH_MECHANISM
def test_a_group_that_hears_nothing_is_killed_with_what_it_started(groups: ProcessGroups) -> None:
    child = started(groups, DEAF + WITH_A_CHILD.format(child=READY_CHILD))
    groups.kill(child.pid)
    wait_for_all(child)
    assert child.returncode == -signal.SIGKILL


@EACH_MECHANISM
def test_a_stopped_program_can_be_told_to_end(groups: ProcessGroups) -> None:
    child = started(groups, WAITS)
    os.kill(child.pid, signal.SIGSTOP)
    groups.terminate(child.pid)
    wait_for_all(child)


@EACH_MECHANISM
def test_a_group_that_is_gone_can_be_told_to_end(groups: ProcessGroups) -> None:
    child = started(groups, WAITS)
    child.kill()
    wait_for_all(child)
    groups.terminate(child.pid)
    groups.kill(child.pid)


@EACH_MECHANISM
def test_a_key_of_the_terminal_reaches_no_child(groups: ProcessGroups) -> None:
    child = started(groups, WAITS)
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid
    groups.kill(child.pid)
    wait_for_all(child)


def test_a_child_inherits_no_variable_and_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAPTERA_SECRET", "x")
    code = "import os; print(os.getcwd(), sorted(os.environ.keys() - {'LC_CTYPE'}))"
    child = start_child(
        [sys.executable, "-c", code],
        environment={"A": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.communicate()[0] == b"/ ['A']\n"


async def start(code: str, tail: KeptTail | None = None) -> ChildProcess:
    return await ChildProcess.start([sys.executable, "-c", code], environment={}, tail=tail)


async def lines_of(child: ChildProcess, *, longest: int = 1 << 20) -> list[bytes]:
    found: list[bytes] = []
    while (line := await child.read_line(longest=longest)) is not None:
        found.append(line)
    return found


async def test_lines_are_read_one_by_one_however_they_come() -> None:
    code = (
        "import os; os.write(1, b'a\\n\\nb'); os.write(1, b'c\\n'); "
        "print('d' * 300_000, flush=True); os.write(1, b'cut')"
    )
    child = await start(code)
    assert await lines_of(child) == [b"a", b"", b"bc", b"d" * 300_000]
    assert await child.wait() == 0
    await child.kill()


async def test_a_line_without_end_is_refused() -> None:
    child = await start("import sys\nwhile True: sys.stdout.write('x' * 1000)")
    with pytest.raises(LineTooLongError):
        await lines_of(child, longest=100_000)
    await child.kill()
    assert child.exit_status == -signal.SIGKILL


async def test_what_is_written_at_once_arrives_whole_and_in_order() -> None:
    child = await start("import sys\nfor line in sys.stdin: print(line[0], len(line))")
    await asyncio.gather(*(child.write(letter * 200_000 + b"\n") for letter in (b"a", b"b", b"c")))
    child.end_input()
    assert await lines_of(child) == [b"a 200001", b"b 200001", b"c 200001"]
    with pytest.raises(ConnectionError):
        await child.write(b"x")
    await child.stop(grace=10)
    assert child.exit_status == 0


async def test_a_program_that_ends_with_its_input_is_not_told_to() -> None:
    child = await start("import sys; sys.stdin.read(); sys.exit(3)")
    await child.stop(grace=30)
    assert child.exit_status == 3


async def test_a_program_that_goes_on_is_told_to_end() -> None:
    child = await start(WAITS)
    assert await child.read_line(longest=100) == b"ready"
    await child.stop(grace=0)
    assert child.exit_status == -signal.SIGTERM


@pytest.mark.slow
async def test_a_program_that_hears_nothing_is_killed() -> None:
    child = await start(DEAF + WAITS)
    assert await child.read_line(longest=100) == b"ready"
    await child.stop(grace=0)
    assert child.exit_status == -signal.SIGKILL


async def test_a_stop_that_is_cancelled_kills() -> None:
    child = await start(DEAF + WAITS)
    assert await child.read_line(longest=100) == b"ready"
    stopping = asyncio.ensure_future(child.stop(grace=600))
    await asyncio.wait({stopping}, timeout=0.01)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert child.exit_status == -signal.SIGKILL


async def test_what_is_written_while_a_program_ends_does_not_keep_it() -> None:
    code = "import sys; sys.stdin.read(); sys.stdout.write('x' * 1_000_000); sys.exit(4)"
    child = await start(code)
    await child.stop(grace=30, drains=True)
    assert child.exit_status == 4


async def test_the_end_of_standard_error_is_kept() -> None:
    tail = KeptTail()
    child = await start("import sys; sys.stderr.write('x' * 1_000_000 + '\\nno key\\n')", tail)
    assert await lines_of(child) == []
    await child.stop(grace=30)
    assert len(str(tail)) == 16_000
    assert tail.last_lines(1) == "no key"


def test_the_last_lines_leave_out_empty_ones() -> None:
    tail = KeptTail()
    assert (str(tail), tail.last_lines(2)) == ("", "")
    for piece in ("a\n", "b", "c\n\n", "d\n"):
        tail.add(piece)
    assert tail.last_lines(2) == "bc\nd"


def test_this_system_has_groups() -> None:
    assert GROUPS is POSIX_GROUPS
