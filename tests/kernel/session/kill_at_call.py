"""Does work in a process of its own and kills it at its n-th write or sync, in whichever thread.

strace counts the calls of every thread by itself. So the calls of a thread that makes few (the
tool's, the writer of a fork's log) are never the ones to die at: another thread gets to that number
first. Here all threads share one count. A seccomp filter makes the process stop at these calls and
at no other, so it runs at almost its own speed.
"""

import ctypes
import os
import platform
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from typing import NamedTuple

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

_TRACE_ME, _CONTINUE, _SET_OPTIONS = 0, 7, 0x4200
_OPTIONS = 0x2 | 0x4 | 0x8 | 0x80 | 0x100000
"""Threads, children and filtered calls are traced, and everything dies with the tracer."""
_FILTERED_CALL = 7
_ALL_CHILDREN = 0x40000000

_SET_SECCOMP, _NO_NEW_PRIVILEGES, _FILTER = 22, 38, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def is_possible() -> bool:
    """Whether this machine's calls are known here."""
    return sys.platform == "linux" and platform.machine() in CALLS


def _ptrace(request: int, thread: int, data: int = 0) -> None:
    """Ask the kernel; a thread that is gone meanwhile needs nothing more."""
    _libc.ptrace(request, thread, None, data)


def _stop_at_calls() -> None:
    """Let this process, and what becomes of it, stop for its tracer at every counted call."""
    numbers = list(CALLS[platform.machine()].values())
    steps = [(_LOAD, 0, 0, 0)]
    for place, number in enumerate(numbers):
        steps.append((_JUMP_IF_EQUAL, len(numbers) - place, 0, number))
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _TRACE)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or _libc.prctl(_SET_SECCOMP, _FILTER, program):
        raise OSError(ctypes.get_errno(), "no seccomp filter can be set")


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    """As `Popen.returncode` has it: 0, 1 when the work failed, or minus the signal."""
    calls: int
    """How many of the counted calls it came to make."""


def run_until_call(work: Callable[[], None], number: int) -> Ended:
    """Do work in a process that is killed at its n-th counted call; 0 kills nothing.

    The caller must have no other children and no threads.
    """
    child = _start(work)
    killer = _Killer(number)
    status = killer.watch(child)
    return Ended(os.waitstatus_to_exitcode(status), killer.count)


def _start(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        _ptrace(_TRACE_ME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        _work(work)
    os.waitpid(child, 0)
    _ptrace(_SET_OPTIONS, child, _OPTIONS)
    _ptrace(_CONTINUE, child)
    return child


def _work(work: Callable[[], None]) -> None:
    """Do the work and end this process, whatever comes of it."""
    code = 1
    try:
        _stop_at_calls()
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the code of the parent
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


class _Killer:
    """Counts the calls of a process, and kills it at one of them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.count = 0

    def watch(self, child: int) -> int:
        """Let the process run; returns how it ended, as `waitpid` says it."""
        while True:
            thread, status = os.waitpid(-1, _ALL_CHILDREN)
            if os.WIFSTOPPED(status):
                self._go_on(child, thread, status)
            elif thread == child:
                return status

    def _go_on(self, child: int, thread: int, status: int) -> None:
        event, stop = status >> 16, os.WSTOPSIG(status)
        if event == _FILTERED_CALL:
            self.count += 1
            if self.count == self._number:
                os.kill(child, signal.SIGKILL)
                return
        # A new thread or process begins with a stop of its own, which is not for it to see.
        is_its_own = not event and stop not in {signal.SIGTRAP, signal.SIGSTOP}
        _ptrace(_CONTINUE, thread, stop if is_its_own else 0)
