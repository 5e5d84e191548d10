"""Model processes: each runs one local model, and all clients in this program share it.

A model takes hundreds of megabytes, so agents with the same model use the same process, whatever
event loop or thread they run in. The process starts with the first request, is restarted by the
first request after it failed, and ends when the last lease on it is released.

A thread starts each process, reads its output and reaps it. The thread must live as long as the
process: Linux sends a child its death signal when the *thread* that started it ends, and the event
loop of a caller may end long before the last user of the model.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    ProviderError,
    RequestError,
    SessionError,
)
from haptera.model.vendors import LOCAL
from haptera.providers.local import serve
from haptera.providers.vendors import key_advice
from haptera.system.child_processes import GROUPS, KeptTail, start_child
from haptera.system.isolated_python import isolated_python

GRACE_SECONDS = 5.0
"""How long a process may take to end before it is killed."""
_LOG_LINES = 15


class ServeParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one model process; clients with equal parameters share one."""

    weights: str
    """The GGUF file."""
    alias: str
    """The name of the model in answers, so that they do not show the path."""
    context: int = 4096
    """The most tokens of one conversation."""
    batch: int = 16
    """Tokens of a prompt that are read at once; an abort takes effect between two batches."""
    slots: int = 2
    """Answers that are generated at the same time; further requests wait."""
    threads: int = 1
    """More than one is only useful on a machine that is otherwise idle."""
    template: str = ""
    memory: int = 8 << 30
    """The limit of the process's address space, in bytes."""


class ProcessEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The URL and the key of a model process."""

    url: str
    key: str


class ModelProcess:
    """One model process, and the thread that owns it. Does not restart it (the pool does).

    Every method may be called from any thread.
    """

    def __init__(self, parameters: ServeParameters) -> None:
        self._parameters = parameters
        self._key = secrets.token_urlsafe(32)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        """Held while the process is signalled or reaped, so that a signal never reaches a new
        process with the old one's id."""
        self._child: subprocess.Popen[bytes] | None = None
        self._is_stopping = False
        self._log = KeptTail()
        self._refusal: str | None = None
        self._ended = threading.Event()
        self.started: Future[ProcessEndpoint] = Future()
        """The endpoint once the model is loaded, or the error."""
        # Several callers wait for it, and one that gives up must not cancel it for the others.
        self.started.set_running_or_notify_cancel()
        # A daemon, so that a program can exit without closing its client. The process ends with it.
        self._thread = threading.Thread(target=self._own, name="haptera-model", daemon=True)

    def start(self) -> None:
        """Start the process; `started` has the outcome."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process id, once there is one."""
        return None if self._child is None else self._child.pid

    @property
    def is_usable(self) -> bool:
        """Whether the process is starting or running, and was not started before a fork."""
        if self._owner != os.getpid() or self._ended.is_set():
            return False
        with self._lock:
            return self._child is None or self._child.poll() is None

    @property
    def log(self) -> str:
        """The last lines that the process printed."""
        return self._log.last_lines(_LOG_LINES)

    def stop(self) -> None:
        """End the process and wait for its end; kills it after `GRACE_SECONDS`. Blocks."""
        if self._owner != os.getpid():
            return
        self._demand(GROUPS.terminate)
        if not self._ended.wait(GRACE_SECONDS):
            self._demand(GROUPS.kill)
        self._thread.join()

    def _demand(self, end: Callable[[int], None]) -> None:
        with self._lock:
            self._is_stopping = True
            if self._child is not None and self._child.poll() is None:
                end(self._child.pid)

    def _own(self) -> None:
        try:
            with self._lock:
                child = self._child = self._spawn()
                # `stop` came before there was a process to send a signal to.
                if self._is_stopping:
                    child.kill()
        except OSError as error:
            self._fail(ProviderError(ErrorCode.SERVER_ERROR, f"cannot start a process: {error}"))
            self._ended.set()
            return
        with child:
            self._tell_parameters(child)
            for line in child.stdout or ():
                self._take(line.decode("utf-8", "replace").rstrip())
            # Reaped only with the lock; until then the number is that of this process.
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            with self._lock:
                child.wait()
        if not self.started.done():
            self._fail(self._failure(child.returncode))
        self._ended.set()

    def _spawn(self) -> subprocess.Popen[bytes]:
        return start_child(
            isolated_python(serve.__name__),
            # Without our environment: it holds keys, and llama.cpp reads settings from it.
            environment={"MALLOC_ARENA_MAX": "2", "GGML_NO_BACKTRACE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _tell_parameters(self, child: subprocess.Popen[bytes]) -> None:
        if child.stdin is None:
            return
        # Without the working folder: nothing must be imported from wherever the user is.
        path = [folder for folder in sys.path if Path(folder).is_absolute()]
        parameters = {"parent": os.getpid(), "path": path, "key": self._key}
        message = msgspec.json.encode(msgspec.to_builtins(self._parameters) | parameters)
        try:
            child.stdin.write(message + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            self._log.add("(it ended before it was told what to do)\n")

    def _take(self, line: str) -> None:
        if not line.startswith(serve.READY):
            self._log.add(f"{line}\n")
            return
        message: dict[str, str] = msgspec.json.decode(line.removeprefix(serve.READY))
        if "url" in message:
            self.started.set_result(ProcessEndpoint(url=message["url"], key=self._key))
        elif message["failed"] == "import":
            self._fail(
                ConfigError(
                    ErrorCode.CONFIG_MISSING,
                    f"local models need the extra 'local', which is one package. Either "
                    f"pip install xllamacpp ({message['message']}), or {key_advice()}",
                    provider=LOCAL,
                )
            )
        else:
            self._refusal = message["message"]  # its log may still be on its way

    def _fail(self, error: AgentError) -> None:
        self.started.set_exception(error)

    def _failure(self, code: int) -> AgentError:
        if self._refusal is not None:
            return ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the model {self._parameters.weights!r} cannot be loaded: "
                f"{self._refusal.rstrip('.')}. The last lines of its log:\n{self.log}",
                provider=LOCAL,
            )
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return ProviderError(
            ErrorCode.SERVER_ERROR,
            f"the process of model {self._parameters.alias!r} ended while it started ({how}). "
            f"The last lines of its log:\n{self.log}",
            provider=LOCAL,
        )


STARTUP_SECONDS = 180.0
"""How long a model may take to load, from a slow disk on a busy machine."""
_HEALTH_REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_HEALTH_SECONDS = 5.0


class _Shared:
    """One model's process, its number of leases, and the process that failed a request, if any."""

    def __init__(self, parameters: ServeParameters) -> None:
        self.parameters = parameters
        self.leases = 0
        self.process: ModelProcess | None = None
        self.suspected: ModelProcess | None = None


class ModelProcessPool:
    """Owns the model processes of this program. Sends them no requests (clients do)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[ServeParameters, _Shared] = {}

    def lease(self, parameters: ServeParameters) -> "ModelProcessLease":
        """Return a lease on a model's process, which starts when its endpoint is asked for."""
        with self._lock:
            shared = self._shared.setdefault(parameters, _Shared(parameters))
            shared.leases += 1
        return ModelProcessLease(self, shared)

    def running(self, shared: _Shared) -> ModelProcess:
        """Return the process; it is started if none is running."""
        with self._lock:
            if shared.process is None or not shared.process.is_usable:
                shared.process = ModelProcess(shared.parameters)
                shared.process.start()
            return shared.process

    def release(self, shared: _Shared) -> ModelProcess | None:
        """End one lease; returns the process if that was the last one."""
        with self._lock:
            shared.leases -= 1
            if shared.leases:
                return None
            del self._shared[shared.parameters]
            return shared.process


class ModelProcessLease:
    """One client's use of a model process."""

    def __init__(self, pool: ModelProcessPool, shared: _Shared) -> None:
        self._pool = pool
        self._shared = shared
        self._released = False

    @property
    def pid(self) -> int | None:
        """The process id, while the process runs."""
        process = self._shared.process
        return process.pid if process is not None and process.is_usable else None

    async def endpoint(self) -> ProcessEndpoint:
        """Return the endpoint; starts the process, or restarts it.

        Raises:
            ConfigError: the weights cannot be loaded, or the extra is not installed.
            ProviderError: SERVER_ERROR if the process ended while it started.
            RequestError: TIMEOUT if it does not start in time.

        """
        if self._released:
            raise SessionError(ErrorCode.CLOSED, "the client of this local model is closed")
        process = self._pool.running(self._shared)
        # By identity: a process that was started since then is not the one that failed.
        if process is self._shared.suspected:
            if await _is_healthy(await _started(process)):
                self._shared.suspected = None
            else:
                await asyncio.to_thread(process.stop)
                process = self._pool.running(self._shared)
        return await _started(process)

    def suspect(self) -> None:
        """Note that a request failed: the next one checks the health of the process first."""
        self._shared.suspected = self._shared.process

    async def release(self) -> None:
        """Release the lease; the last release ends the process. Does nothing if repeated."""
        if self._released:
            return
        self._released = True
        process = self._pool.release(self._shared)
        if process is not None:
            await asyncio.to_thread(process.stop)


async def _is_healthy(endpoint: ProcessEndpoint) -> bool:
    """Return whether the process answers a health check in time."""
    url = urlsplit(endpoint.url)
    try:
        async with asyncio.timeout(_HEALTH_SECONDS):
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
            try:
                writer.write(_HEALTH_REQUEST)
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


async def _started(process: ModelProcess) -> ProcessEndpoint:
    try:
        async with asyncio.timeout(STARTUP_SECONDS):
            return await asyncio.wrap_future(process.started)
    except TimeoutError:
        await asyncio.to_thread(process.stop)
        raise RequestError(
            ErrorCode.TIMEOUT,
            f"a local model did not start within {STARTUP_SECONDS:g} s. "
            f"The last lines of its log:\n{process.log}",
            provider=LOCAL,
        ) from None


SHARED_PROCESSES = ModelProcessPool()
"""The pool of this program. It is a module-level object, because a second copy of a model in memory
would be worse."""
