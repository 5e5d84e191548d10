"""One command that runs: started through the launcher, read as it writes, ended with all it left.

Nothing here waits for a pipe that another process may hold open: the launcher tells how the command
ended, and ends whatever the command started before it says so.
"""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable

import msgspec

from haptera.system.child_processes import start_child
from haptera.system.isolated_python import isolated_python
from haptera.tools.sandbox.plan import Plan

_READ_SIZE = 65536
_LAUNCHER = "haptera.tools.sandbox.launcher"
_LATE_OUTPUT_SECONDS = 1.0


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    code: int | None = None
    """The exit status, 128 and the signal's number if it was killed; None if it never started."""
    failure: str | None = None
    """Why it did not start."""
    layer: str | None = None
    """The layer of the sandbox that could not be set up."""
    missing: tuple[str, ...] = ()
    """What the kernel could not give."""


class RunningCommand:
    """A command on its way. Made by `start`, in the event loop that reads its output.

    Owns the launcher's process and pipes. Does not own what the output is for, or time limits.
    """

    def __init__(self, plan: Plan, take: Callable[[bytes], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._told = b""
        self._is_full = False
        self.started: asyncio.Future[None] = self._loop.create_future()
        """Done when the command is about to run, or will not."""
        self.ended: asyncio.Future[Ending] = self._loop.create_future()
        """Done when the command and everything it started are gone."""
        outputs, self._control, statuses = os.pipe(), os.pipe(), os.pipe()
        inside = (outputs[1], self._control[0], statuses[1])
        try:
            child = self._spawn(outputs[1], self._control[0], statuses[1])
        except BaseException:
            for descriptor in (*outputs, *self._control, *statuses):
                os.close(descriptor)
            raise
        # Closed here, so that the pipes end with the launcher and the command.
        for descriptor in inside:
            os.close(descriptor)
        self._output, self._status = outputs[0], statuses[0]
        self._open: set[int] = set()
        self._read_from(self._output, self._on_output)
        self._read_from(self._status, self._on_status)
        # This only reaps the process. How the command ended comes through the status pipe.
        threading.Thread(target=child.wait, name="haptera-command", daemon=True).start()
        self._tell(plan.to_line())

    def end(self, *, grace: float) -> None:
        """End the command: SIGTERM now, and SIGKILL after `grace` seconds."""
        self._tell(json.dumps({"end": grace}).encode() + b"\n")

    def abandon(self) -> None:
        """Let go of the pipes; the launcher ends the command by itself."""
        for descriptor in tuple(self._open):
            self._close(descriptor)
        self._close_control()
        if not self.ended.done():
            self.ended.set_result(Ending(failure="it was left behind"))

    def _spawn(self, output: int, control: int, status: int) -> "subprocess.Popen[bytes]":
        return start_child(
            isolated_python(_LAUNCHER, str(control), str(status)),
            environment={},
            stdout=output,
            stderr=output,
            descriptors=(control, status),
        )

    def _tell(self, line: bytes) -> None:
        if self._control[1] < 0:
            return
        try:
            os.write(self._control[1], line)
        except BrokenPipeError:  # it has ended
            return

    def _read_from(self, descriptor: int, callback: Callable[[], None]) -> None:
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, callback)
        self._open.add(descriptor)

    def _on_output(self) -> None:
        if piece := self._read(self._output):
            # Told once: the launcher reads one such line, and more could fill its pipe.
            if not self._take(piece) and not self._is_full:
                self._is_full = True
                self.end(grace=0)
        elif piece is not None:
            self._finish_if_done()

    def _on_status(self) -> None:
        if piece := self._read(self._status):
            self._told += piece
            self._note_start()
        elif piece is not None and not self._finish_if_done():
            # Everything that the command started is gone, or cannot be found any more.
            self._loop.call_later(_LATE_OUTPUT_SECONDS, self._give_up_output)

    def _read(self, descriptor: int) -> bytes | None:
        """Read what there is; b"" at the end, None if there was nothing after all."""
        try:
            piece = os.read(descriptor, _READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            piece = b""
        if not piece:
            self._close(descriptor)
        return piece

    def _give_up_output(self) -> None:
        self._close(self._output)
        self._finish_if_done()

    def _finish_if_done(self) -> bool:
        if self._open:
            return False
        self._close_control()
        self._note_start()
        if not self.ended.done():
            self.ended.set_result(_ending_of(self._told))
        return True

    def _note_start(self) -> None:
        if not self.started.done():
            self.started.set_result(None)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def _close_control(self) -> None:
        if self._control[1] >= 0:
            os.close(self._control[1])
            self._control = (-1, -1)


def _ending_of(told: bytes) -> Ending:
    """Read what the launcher said from start to end."""
    messages: dict[str, object] = {}
    for line in told.splitlines():
        messages |= json.loads(line)
    missing = messages.get("missing")
    failure, layer, code = (messages.get(name) for name in ("failed", "layer", "exit"))
    if failure is None and code is None:
        failure = "the launcher was killed"
    return Ending(
        code=code if isinstance(code, int) and failure is None else None,
        failure=None if failure is None else str(failure),
        layer=None if layer is None else str(layer),
        missing=tuple(str(item) for item in missing) if isinstance(missing, list) else (),
    )
