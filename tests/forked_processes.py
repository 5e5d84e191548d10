"""Starts Python programs by a fork from a process that has imported what they import.

A new interpreter takes 0.3 s of CPU time for its imports, the fork of one that has them 0.01 s.
What comes of it is a process like any other: it has its own arguments, environment, working folder,
standard streams and random numbers, and it is a child of the test process. It differs in what an
interpreter reads once, at its start or on an import, and in that its modules are not cleared at its
end: tests of that start a new interpreter.

The fork server, `python -m tests.forked_processes`, is started when it is first needed, and lives
as long as the test process. It runs nothing but imports, so it has one thread and no event loop.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
COMMAND = "haptera.cli.__main__"
"""The module that is the command `haptera`."""
_IMPORTED_LATE = (
    COMMAND,
    "haptera.agent.sub_agents",
    "haptera.access.assembly.attachments",
    "haptera.access.assembly.composition",
    "haptera.cli.login_commands",
    "haptera.cli.machine_commands",
    "haptera.cli.one_shot",
    "haptera.cli.sessions_commands",
    "haptera.access.config.context_files",
    "haptera.providers.schema_targets",
    "haptera.providers.transport.http",
    "haptera.providers.vendor_clients",
    "haptera.providers.wire.anthropic_messages.reply",
    "haptera.server.command",
    "haptera.stores.file_trees.git_trees",
    "haptera.stores.jsonl.store",
    "haptera.stores.postgresql.store",
    "haptera.stores.sqlite.store",
    "haptera.tools",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
)
"""What the command imports when it first needs it; any other module is imported by its process."""

_SET_CHILD_SUBREAPER = 36
_LARGEST_START = 1024 * 1024


class Start(msgspec.Struct, frozen=True):
    """What a new process is to run, and where."""

    module: str
    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]


class ForkedProcess(subprocess.Popen[bytes]):
    """A process that runs a module, started by a fork; otherwise what `Popen` returns.

    `streams` are the arguments stdin, stdout and stderr of `Popen`.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str],
        bufsize: int = -1,
        **streams: Any,
    ) -> None:
        self._start = Start(module, arguments, str(cwd), env)
        super().__init__([sys.executable, "-m", module, *arguments], bufsize, **streams)

    def _execute_child(self, *details: Any) -> None:
        """Fork where `Popen` would fork and exec; it reaps the process with `waitpid`."""
        pipes = details[10:16]
        for_child = (pipes[0], pipes[3], pipes[5])
        streams = [own if given == -1 else given for own, given in enumerate(for_child)]
        try:
            self.pid = _fork_server().start(self._start, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class _ForkServer:
    """The process that forks, seen from the test process."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked_processes", str(its.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                pass_fds=[its.fileno()],
            )
        self._lock = threading.Lock()
        atexit.register(self._end)

    def start(self, start: Start, streams: Sequence[int]) -> int:
        """Start a process; returns its id once it is a child of this process.

        The fork server leaves it as an orphan, and this process adopts orphans for that moment
        only: those of other tests are left to the process that reaps orphans otherwise.
        """
        content = msgspec.json.encode(start)
        with self._lock:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._socket, [content], streams)
                return int(self._socket.recv(20))
            finally:
                _adopt_orphans(False)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


def _adopt_orphans(do: bool) -> None:
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, do, 0, 0, 0):
        raise OSError("this process cannot adopt others")


_fork_server = functools.cache(_ForkServer)


def _serve(requests: socket.socket) -> tuple[Start, list[int]] | None:
    """Fork for each request; returns in each new process what it is to run, and None at the end."""
    while True:
        content, streams, *_ = socket.recv_fds(requests, _LARGEST_START, 3)
        if not content:
            return None
        start = msgspec.json.decode(content, type=Start)
        with contextlib.suppress(Exception):  # it fails in the new process, too, and is told there
            import_module(start.module)
        gc.freeze()
        pid = _fork_an_orphan()
        if not pid:
            requests.close()
            return start, streams
        for stream in streams:
            os.close(stream)
        requests.send(str(pid).encode())


def _fork_an_orphan() -> int:
    """Fork a process whose parent has ended; returns its id, and 0 in the new process."""
    reading, writing = os.pipe()
    between = os.fork()
    if not between:
        pid = os.fork()
        if pid:
            os.write(writing, str(pid).encode())
            os._exit(0)
    else:
        os.waitpid(between, 0)
        pid = int(os.read(reading, 20))
    os.close(reading)
    os.close(writing)
    return pid


def _become(start: Start, streams: Sequence[int]) -> None:
    """Make this process what a new interpreter for the module would be."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    _open_text(0, "stdin", "r", "surrogateescape")
    _open_text(1, "stdout", "w", "surrogateescape")
    _open_text(2, "stderr", "w", "backslashreplace")
    os.chdir(start.folder)
    os.environ.clear()  # noqa: TID251 - the environment of a new process
    os.environ.update(start.environment)  # noqa: TID251 - likewise
    time.tzset()
    named = filter(None, start.environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [start.folder, *named]
    sys.argv[1:] = start.arguments
    sys.modules.pop(start.module, None)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_text(number: int, name: str, mode: str, errors: str) -> None:
    """Open a standard stream as an interpreter does."""
    buffering = 1 if number == 2 or os.isatty(number) else -1
    stream = open(number, mode, buffering, "utf-8", errors, closefd=False)  # noqa: SIM115 - it stays open
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


class _Program:
    """The module that a new process runs, and its end."""

    def __init__(self) -> None:
        self._code: int | None = None
        # The first one to be registered is the last one to be called.
        atexit.register(self._leave)

    def run(self, module: str) -> None:
        """Run the module; an exit code is kept for the end of the process."""
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            self._code = 0
        except SystemExit as ended:
            self._code = ended.code if isinstance(ended.code, int) else None
            raise

    def _leave(self) -> None:
        """End the process without clearing its modules, which takes longer than most programs."""
        if self._code is not None:
            gc.collect()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._code & 0xFF)


def _main() -> None:
    # A terminal interrupts the fork server, too, and the test process has yet to tell it to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    program = _Program()
    requests = socket.socket(fileno=int(sys.argv[1]))
    for name in _IMPORTED_LATE:
        import_module(name)
    todo = _serve(requests)
    if todo is not None:
        _become(*todo)
        program.run(todo[0].module)


if __name__ == "__main__":
    _main()
