"""What a process of our own does about the processes above and below it, as Linux lets it.

Standard library only: the programs that `isolated_python` starts import this without the rest of
the package. `main` is such a program itself, the supervisor of another one, which outlives nothing
of it. Its arguments are the pid of its parent and a command. It ends the command and everything
that the command started when

- the process that started it is gone (the kernel tells it: PDEATHSIG),
- it is told to end (SIGTERM), or
- the command itself has ended.

As a subreaper it is the parent of whatever the command leaves behind, so nothing gets away by
changing its group or session.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_STARTED = 127
"""The exit status when a program cannot be run, as shells have it."""

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *arguments: int) -> None:
    """Set something about this process; `option` is one of the PR_ numbers."""
    # Several options are refused unless the arguments that they do not use are zero.
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)][:4]
    if _libc.prctl(option, *padded) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends.

    A parent that had ended before is not noticed: compare `os.getppid()` afterwards.
    """
    if sys.platform == "linux":
        prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ended, so that none gets away."""
    if sys.platform == "linux":
        prctl(_PR_SET_CHILD_SUBREAPER, 1)


def shell_code(status: int) -> int:
    """Return the exit code of a status of `wait`, the way a shell says it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def descendants() -> list[int]:
    """Return the processes below this one, as far as the kernel shows them."""
    processes: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        children = list(_children_of(waiting.pop()))
        processes += children
        waiting += children
    return processes


def _children_of(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                yield from map(int, file.read().split())


def signal_descendants(number: int) -> None:
    """Send a signal to every process below this one."""
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_descendants() -> None:
    """Kill every process below this one and wait until none is left."""
    while True:
        signal_descendants(signal.SIGKILL)
        try:
            # Blocks until one is gone: each was killed, and new ones are found the next time.
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main() -> None:
    """Run the command, wait for its end, end what it left, and exit as it did."""
    # `isolated_python` puts its folder and module before the arguments.
    parent, command = int(sys.argv[3]), sys.argv[4:]
    end_with_parent(signal.SIGTERM)
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: _end(128 + signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl+C is for the program above
    if os.getppid() != parent:
        sys.exit(_NOT_STARTED)  # it died before the kernel was told to watch it
    child = os.fork()
    if child == 0:
        end_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _execute(command)
    for standard in (0, 1):
        os.close(standard)  # the pipes are the command's; while we held them, neither would end
    while True:
        # Orphans become children of this process, too, and are reaped here.
        pid, status = os.wait()
        if pid == child:
            _end(shell_code(status))


def _execute(command: list[str]) -> None:
    try:
        os.execv(command[0], command)  # noqa: S606 - this program is there to run it
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(_NOT_STARTED)


def _end(status: int) -> None:
    """Kill all descendants, reap them, and exit."""
    # A second SIGTERM must not begin this anew.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kill_descendants()
    os._exit(status)
