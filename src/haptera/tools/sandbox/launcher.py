"""The launcher: starts one command, confined as its plan says, and ends all that it leaves behind.

It is a process of its own between Haptera and the command. Namespaces and filters must be set up
in a process with one thread, and the process that ends a command must be able to find what the
command started. It reads a plan from its control pipe. A line `{"end": seconds}` there ends the
command: SIGTERM, so many seconds later SIGKILL. When the pipe is closed the same happens, so
nothing outlives the program that started it.

Three processes: this one watches; the guardian below it is the first process of the command's own
process namespace, where there is one, and everything in it ends with the guardian; the third
becomes the command.

Standard library only, run by `python -I -S` without the rest of the package.
"""

import contextlib
import json
import os
import select
import signal
import sys
from types import FrameType
from typing import NoReturn

from haptera.system import process_tree
from haptera.tools.sandbox import privileges
from haptera.tools.sandbox.confinement import (
    LayerError,
    confine,
    enter_namespaces,
    enter_view,
)
from haptera.tools.sandbox.kernel import close_from
from haptera.tools.sandbox.plan import SETUP_FAILED, Plan, read_plan, to_line

_GRACE_WHEN_ABANDONED = 0.2
_POLL_MS = 20
_LOOK_UP_MS = 1000
"""How often it is checked whether the parent is still there, beside its pipe."""
_STATUS = 3
"""Where the status pipe is in the process that becomes the command; it is closed by that."""
_NOT_FOUND = 127
_FAILURES = (LayerError, OSError, ValueError, AttributeError)
"""What a plan that cannot be carried out raises."""


def main() -> None:
    """Run the plan that comes through the control pipe; report through the status pipe."""
    control, status = int(sys.argv[-2]), int(sys.argv[-1])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        # The command is ended through the pipe. A signal must not end the process that would do it.
        signal.signal(number, signal.SIG_IGN)
    line = _read_line(control)
    if not line:
        return
    plan = read_plan(line)
    try:
        sockets = enter_namespaces(plan)
    except _FAILURES as error:
        _report_failure(status, error)
        return
    process_tree.adopt_orphans()
    # By the end of this pipe the guardian sees that this process is gone.
    alive_reader, alive = os.pipe()
    guardian = os.fork()
    if guardian == 0:
        os.close(alive)
        os.close(control)
        _guard(plan, status, alive_reader, sockets=sockets)
    code = _watch(guardian, control)
    process_tree.kill_descendants()
    os.write(status, to_line({"exit": code}))


def _watch(guardian: int, control: int) -> int:
    """Wait for the guardian to end; end it when told to."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    pause = _LOOK_UP_MS
    try:
        poll.register(os.pidfd_open(guardian), select.POLLIN)
    except OSError:
        # Without a descriptor for the process there is nothing that would end the wait early.
        pause = _POLL_MS
    parent = os.getppid()
    while (code := _exit_code(guardian)) is None:
        ready = {descriptor for descriptor, _ in poll.poll(pause)}
        if control in ready:
            # A closed pipe is ready all the time: the waits of `_end` would return at once.
            poll.unregister(control)
            return _end(guardian, _grace(_read_line(control)), poll)
        if os.getppid() != parent:  # a fork of it may hold the pipe open
            return _end(guardian, _GRACE_WHEN_ABANDONED, poll)
    return code


def _end(guardian: int, grace: float, poll: "select.poll") -> int:
    """Ask the command to end, then kill it."""
    os.kill(guardian, signal.SIGTERM)  # not reaped yet, so the number is still its own
    left = grace * 1000
    while (code := _exit_code(guardian)) is None and left > 0:
        poll.poll(_POLL_MS)
        left -= _POLL_MS
    if code is None:
        os.kill(guardian, signal.SIGKILL)
        os.waitpid(guardian, 0)
    return 128 + signal.SIGKILL if code is None else code


def _grace(line: bytes) -> float:
    return float(json.loads(line)["end"]) if line.strip() else _GRACE_WHEN_ABANDONED


def _exit_code(pid: int) -> int | None:
    """Return how a child ended, the way a shell says it; None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return process_tree.shell_code(status) if ended else None


def _guard(plan: Plan, status: int, alive: int, *, sockets: list[str] | None) -> NoReturn:
    """Start the command, hand SIGTERM on to everything below, and end with the command."""
    process_tree.end_with_parent()
    if select.select([alive], [], [], 0)[0]:  # the watcher was gone before the kernel was asked
        os._exit(SETUP_FAILED)
    command = 0

    def end_all(_number: int, _frame: FrameType | None) -> None:
        if "namespaces" in plan.layers:
            with contextlib.suppress(ProcessLookupError):
                # In its process namespace that is everything but this process.
                os.kill(-1, signal.SIGTERM)
            return
        process_tree.signal_descendants(signal.SIGTERM)

    try:
        missing = enter_view(plan, sockets)
        signal.signal(signal.SIGTERM, end_all)
        command = os.fork()
        if command == 0:
            _become_command(plan, status, missing)
    except _FAILURES as error:
        _report_failure(status, error)
        os._exit(SETUP_FAILED)
    # What is open here leads around the command's mounts, so it is closed and kept from sight.
    close_from(_STATUS)
    privileges.hide_from_others()
    if plan.layers:
        privileges.drop_capabilities()
    while True:
        # Orphans become children of this process, too, and are reaped here.
        pid, code = os.waitpid(-1, 0)
        if pid == command:
            os._exit(process_tree.shell_code(code))


def _become_command(plan: Plan, status: int, missing: list[str]) -> NoReturn:
    try:
        os.setsid()
        process_tree.end_with_parent()
        os.dup2(status, _STATUS, inheritable=False)
        close_from(_STATUS + 1)
        missing += confine(plan)
        privileges.restore_signals()
        os.write(_STATUS, to_line({"started": True, "missing": missing}))
        os.execvpe(plan.argv[0], plan.argv, plan.environment)  # noqa: S606 - what it is for
    except _FAILURES as error:
        _report_failure(_STATUS, error)
        os._exit(_NOT_FOUND)


def _report_failure(status: int, error: Exception) -> None:
    layer = error.layer if isinstance(error, LayerError) else None
    os.write(status, to_line({"failed": str(error), "layer": layer}))


def _read_line(descriptor: int) -> bytes:
    """Read up to a line's end, or what there is when the pipe is closed."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        line += piece
    return line


if __name__ == "__main__":
    main()
