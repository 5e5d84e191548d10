"""Runs a program and kills it at its n-th write or sync, whichever of its threads makes it.

Started by tests as `kill_at_call.py NUMBER FILE COMMAND...`; the calls that were made are counted
in FILE. NUMBER 0 kills nothing. strace counts the calls of every thread by itself, so the calls of
a thread that writes little (the log of a fork, the effect of a tool) are never the ones to die at;
here all threads share one count. Needs Linux 5.3.
"""

import ctypes
import os
import platform
import signal
import sys
from pathlib import Path

CALLS = {
    "x86_64": {
        "write": 1,
        "pwrite64": 18,
        "fsync": 74,
        "fdatasync": 75,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "link": 86,
        "unlink": 87,
        "renameat": 264,
        "renameat2": 316,
    },
    "aarch64": {
        "mkdirat": 34,
        "unlinkat": 35,
        "linkat": 37,
        "renameat": 38,
        "ftruncate": 46,
        "write": 64,
        "pwrite64": 68,
        "fsync": 82,
        "fdatasync": 83,
        "renameat2": 276,
    },
}
"""The numbers of the calls to be killed at. Notes of what was acknowledged use `writev`."""

_TRACE_ME, _CONTINUE_TO_CALL, _SET_OPTIONS, _GET_CALL = 0, 24, 0x4200, 0x420E
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x100000
"""Calls are told apart from other traps, children, threads and exec are traced, and all of it dies
with the tracer."""
_CALL_STOP = signal.SIGTRAP | 0x80
_ALL_CHILDREN = 0x40000000


class _Call(ctypes.Structure):
    """The beginning of what the kernel tells of a call at which a thread stopped."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("padding", ctypes.c_uint8 * 3),
        ("architecture", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
    )


_ENTRY = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def is_possible() -> bool:
    """Whether this machine's calls are known here."""
    return sys.platform == "linux" and platform.machine() in CALLS


def _ptrace(request: int, thread: int, address: int = 0, data: int | None = None) -> bool:
    """Ask the kernel; False when the thread is gone."""
    return bool(_libc.ptrace(request, thread, address, data) != -1)


def _start(command: list[str]) -> int:
    child = os.fork()
    if not child:
        _ptrace(_TRACE_ME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.execvp(command[0], command)  # noqa: S606 - the test's own program
    os.waitpid(child, 0)
    _ptrace(_SET_OPTIONS, child, data=_OPTIONS)
    _ptrace(_CONTINUE_TO_CALL, child)
    return child


class _Killer:
    """Counts the calls of a program, and kills it at one of them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._calls = frozenset(CALLS[platform.machine()].values())
        self.count = 0

    def watch(self, child: int) -> int:
        """Let the program run; returns how it ended, as `waitpid` says it."""
        while True:
            thread, status = os.waitpid(-1, _ALL_CHILDREN)
            if os.WIFSTOPPED(status):
                self._go_on(child, thread, status)
            elif thread == child:
                return status

    def _go_on(self, child: int, thread: int, status: int) -> None:
        stop, deliver = os.WSTOPSIG(status), 0
        if stop == _CALL_STOP:
            if self._is_counted(thread):
                self.count += 1
                if self.count == self._number:
                    os.kill(child, signal.SIGKILL)
                    return
        elif status >> 16 == 0 and stop not in {signal.SIGTRAP, signal.SIGSTOP}:
            deliver = stop
        _ptrace(_CONTINUE_TO_CALL, thread, data=deliver)

    def _is_counted(self, thread: int) -> bool:
        call = _Call()
        _ptrace(_GET_CALL, thread, ctypes.sizeof(call), ctypes.addressof(call))
        return call.op == _ENTRY and call.number in self._calls


def main() -> None:
    """Read the arguments and end as the program did."""
    number, file, *command = sys.argv[1:]
    killer = _Killer(int(number))
    status = killer.watch(_start(command))
    Path(file).write_text(str(killer.count))
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
