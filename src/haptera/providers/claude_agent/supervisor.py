"""The supervisor of one agent process: a program that starts it and outlives nothing of it.

It runs as `python -I -S supervisor.py PARENT COMMAND...`, in a process group and session of its
own, and imports nothing but the standard library. It ends the agent and everything that the agent
started when

- the process that started it is gone (the kernel tells it: PDEATHSIG),
- it is told to end (SIGTERM), or
- the agent itself has ended.

As a subreaper it is the parent of whatever the agent leaves behind, so nothing gets away by
changing its group or session.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NOT_STARTED = 127
"""The exit status when the agent's program cannot be run, as shells have it."""


def main() -> None:
    """Run the command, wait for its end, end what it left, and exit as it did."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    _tell_kernel(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _tell_kernel(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: _end(128 + signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl+C is for the program above
    if os.getppid() != parent:
        sys.exit(_NOT_STARTED)  # it died before the kernel was told to watch it
    agent = os.fork()
    if agent == 0:
        _tell_kernel(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _execute(command)
    for standard in (0, 1):
        os.close(standard)  # the pipes are the agent's; while we held them, neither would end
    _end(_status_of(agent))


def _tell_kernel(option: int, value: int) -> None:
    """Set an option of this process; only Linux has them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _execute(command: list[str]) -> None:
    try:
        os.execv(command[0], command)  # noqa: S606 - this program is there to run it
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(_NOT_STARTED)


def _status_of(agent: int) -> int:
    """Wait for the agent, reaping whatever else ends meanwhile."""
    while True:
        pid, status = os.wait()
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end(status: int) -> None:
    """Kill all descendants, reap them, and exit."""
    # A second SIGTERM must not begin this anew.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Again and again: a process may fork between the listing and its end.
    while left := list(_descendants(os.getpid())):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            break
    os._exit(status)


def _read_all(descriptor: int) -> bytes:
    pieces = []
    while piece := os.read(descriptor, 65536):
        pieces.append(piece)
    return b"".join(pieces)


def _descendants(pid: int) -> Iterable[int]:
    """Find the children of a process and theirs, as the kernel lists them."""
    try:
        # A Path would be one more import, and this program starts with every session.
        listing = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY)
    except OSError:
        return
    try:
        children = [int(word) for word in _read_all(listing).split()]
    except OSError:
        return
    finally:
        os.close(listing)
    for child in children:
        yield child
        yield from _descendants(child)


if __name__ == "__main__":
    main()
