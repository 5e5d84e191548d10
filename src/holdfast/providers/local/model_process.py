"""One model process from start to end.

A thread of its own starts the process, reads what it prints, and reaps it. It has to be a thread
that lives as long as the process does: Linux sends a child its death signal when the *thread* that
started it ends, and the loop of a caller may end long before the last user of a model.
"""

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path

import msgspec

from holdfast.providers.local import serve
from holdfast.vocabulary.errors import AgentError, ConfigError, ErrorCode, ProviderError

GRACE_SECONDS = 5.0
"""How long a process that was asked to end may take until it is killed."""
_LOG_LINES = 15
_REAP_INTERVAL = 0.01


class ServeParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What makes one model process different from another; equal ones are shared."""

    weights: str
    """The GGUF file."""
    alias: str
    """What the model is called in answers; a path is not shown to the model's users."""
    context: int = 4096
    """Tokens that one conversation may have."""
    batch: int = 16
    """Tokens of a prompt that are read in one go; an abort is noticed after each."""
    slots: int = 2
    """Answers that are written at the same time; more of them wait."""
    threads: int = 1
    """More than one only pays on a machine that has nothing else to do."""
    template: str = ""
    memory: int = 8 << 30
    """Bytes of address space that the process may have."""


class ProcessEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model process listens."""

    url: str
    key: str


class ModelProcess:
    """Owns one model process and the thread that watches it. Does not restart it (the pool does).

    Every method may be called from any thread.
    """

    def __init__(self, parameters: ServeParameters) -> None:
        self._parameters = parameters
        self._key = secrets.token_urlsafe(32)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        """Held while the process is signalled or reaped, so that a signal never meets a new
        process that was given the old one's id."""
        self._child: subprocess.Popen[str] | None = None
        self._unwanted = False
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._ended = threading.Event()
        self.started: Future[ProcessEndpoint] = Future()
        """Holds the endpoint once the model is loaded, or why it was not."""
        # Several callers wait for it, and one that gives up must not cancel it for the others.
        self.started.set_running_or_notify_cancel()
        self._thread = threading.Thread(target=self._own, name="holdfast-model", daemon=True)

    def start(self) -> None:
        """Start the process; `started` tells how that went."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process's id, once there is one."""
        return None if self._child is None else self._child.pid

    @property
    def is_usable(self) -> bool:
        """Whether the process is starting or running, and ours: a fork of us has to start anew."""
        if self._owner != os.getpid() or self._ended.is_set():
            return False
        with self._lock:
            return self._child is None or self._child.poll() is None

    @property
    def log(self) -> str:
        """The last lines that the process printed."""
        return "\n".join(self._log)

    def stop(self) -> None:
        """End the process and wait until it is gone; blocks for `GRACE_SECONDS` at most."""
        if self._owner != os.getpid():
            return
        # A process that is held still hears of its end only when it goes on.
        self._signal(signal.SIGTERM, signal.SIGCONT)
        if not self._ended.wait(GRACE_SECONDS):
            self._signal(signal.SIGKILL)
        self._thread.join()

    def _signal(self, *numbers: signal.Signals) -> None:
        with self._lock:
            self._unwanted = True
            if self._child is not None and self._child.poll() is None:
                for number in numbers:
                    os.killpg(self._child.pid, number)

    def _own(self) -> None:
        try:
            with self._lock:
                child = self._child = self._spawn()
                if self._unwanted:
                    child.kill()
        except OSError as error:
            self._fail(ProviderError(ErrorCode.SERVER_ERROR, f"cannot start a process: {error}"))
            self._ended.set()
            return
        with child:
            self._tell_parameters(child)
            assert child.stdout is not None  # noqa: S101 - for the type checker
            for line in child.stdout:
                self._take(line.rstrip())
            while not self._is_reaped(child):
                self._ended.wait(_REAP_INTERVAL)
        if not self.started.done():
            self._fail(self._startup_error(child.returncode))
        self._ended.set()

    def _spawn(self) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", str(Path(serve.__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            cwd="/",
            # Nothing of our environment: it holds keys, and llama.cpp takes settings from it.
            env={"MALLOC_ARENA_MAX": "2", "GGML_NO_BACKTRACE": "1"},
            start_new_session=True,
        )

    def _tell_parameters(self, child: subprocess.Popen[str]) -> None:
        assert child.stdin is not None  # noqa: S101 - for the type checker
        # Not the working folder: nothing is to be imported from where a user happens to be.
        path = [folder for folder in sys.path if Path(folder).is_absolute()]
        told = {"parent": os.getpid(), "path": path, "key": self._key}
        message = msgspec.json.encode(msgspec.to_builtins(self._parameters) | told).decode()
        try:
            child.stdin.write(message + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            self._log.append("(it ended before it was told what to do)")

    def _take(self, line: str) -> None:
        if not line.startswith(serve.READY):
            if line:
                self._log.append(line)
            return
        message: dict[str, str] = msgspec.json.decode(line.removeprefix(serve.READY))
        if "url" in message:
            self.started.set_result(ProcessEndpoint(url=message["url"], key=self._key))
        elif message["failed"] == "import":
            self._fail(
                ConfigError(
                    ErrorCode.CONFIG_MISSING,
                    f"local models need the extra 'local', which is one package: "
                    f"pip install xllamacpp ({message['message']})",
                    provider="local",
                )
            )
        else:
            self._fail(self._load_error(message["message"]))

    def _is_reaped(self, child: subprocess.Popen[str]) -> bool:
        with self._lock:
            return child.poll() is not None

    def _fail(self, error: AgentError) -> None:
        self.started.set_exception(error)

    def _load_error(self, reason: str) -> ConfigError:
        return ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"the model {self._parameters.weights!r} cannot be loaded: {reason.rstrip('.')}. "
            f"The last lines of its log:\n{self.log}",
            provider="local",
        )

    def _startup_error(self, code: int) -> ProviderError:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return ProviderError(
            ErrorCode.SERVER_ERROR,
            f"the process of model {self._parameters.alias!r} ended while it started ({how}). "
            f"The last lines of its log:\n{self.log}",
            provider="local",
        )
