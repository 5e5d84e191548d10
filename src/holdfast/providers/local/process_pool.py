"""Model processes that are started once and shared by everyone in this program who wants them.

A model takes hundreds of megabytes, so agents with the same one use the same process, whatever
loop or thread they run in. It starts with the first request, is restarted by the first request
after it has failed, and ends when the last lease on it is released.
"""

import asyncio
import threading
from urllib.parse import urlsplit

from holdfast.providers.local.model_process import ModelProcess, ProcessEndpoint, ServeParameters
from holdfast.vocabulary.errors import ErrorCode, RequestError, SessionError

STARTUP_SECONDS = 180.0
"""How long a model may take to load, from a slow disk on a busy machine."""
_HEALTH_REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class _Shared:
    """One model's process, those who use it, and whether anyone doubts it."""

    def __init__(self, parameters: ServeParameters) -> None:
        self.parameters = parameters
        self.leases = 0
        self.process: ModelProcess | None = None
        self.doubted: ModelProcess | None = None


class ModelProcessPool:
    """Owns the model processes of this program. Does not speak to models (clients do)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[ServeParameters, _Shared] = {}

    def lease(self, parameters: ServeParameters) -> "ModelProcessLease":
        """Take part in a model's process; it is not started before its endpoint is asked for."""
        with self._lock:
            shared = self._shared.setdefault(parameters, _Shared(parameters))
            shared.leases += 1
        return ModelProcessLease(self, shared)

    def running(self, shared: _Shared) -> ModelProcess:
        """Return the process, started now if there is none that lives."""
        with self._lock:
            if shared.process is None or not shared.process.is_usable:
                shared.process = ModelProcess(shared.parameters)
                shared.process.start()
            return shared.process

    def give_back(self, shared: _Shared) -> ModelProcess | None:
        """End one lease; returns the process if that was the last one."""
        with self._lock:
            shared.leases -= 1
            if shared.leases:
                return None
            del self._shared[shared.parameters]
            return shared.process


class ModelProcessLease:
    """One user's share of a model process."""

    def __init__(self, pool: ModelProcessPool, shared: _Shared) -> None:
        self._pool = pool
        self._shared = shared
        self._released = False

    @property
    def pid(self) -> int | None:
        """The id of the process, while there is one."""
        process = self._shared.process
        return process.pid if process is not None and process.is_usable else None

    async def endpoint(self) -> ProcessEndpoint:
        """Return where the model listens; starts it, or starts it again.

        Raises:
            ConfigError: the weights cannot be loaded, or the extra is not installed.
            ProviderError: SERVER_ERROR when the process ended while it started.
            RequestError: TIMEOUT when it does not come up.

        """
        if self._released:
            raise SessionError(ErrorCode.CLOSED, "the client of this local model is closed")
        process = self._pool.running(self._shared)
        if process is self._shared.doubted:
            if await _is_healthy(await _started(process)):
                self._shared.doubted = None
            else:
                await asyncio.to_thread(process.stop)
                process = self._pool.running(self._shared)
        return await _started(process)

    def doubt(self) -> None:
        """Say that a request failed: the next one first sees whether the process is well."""
        self._shared.doubted = self._shared.process

    async def release(self) -> None:
        """Give the share back; the last one ends the process. Giving it back again does nothing."""
        if self._released:
            return
        self._released = True
        process = self._pool.give_back(self._shared)
        if process is not None:
            await asyncio.to_thread(process.stop)


async def _is_healthy(endpoint: ProcessEndpoint, *, seconds: float = 5.0) -> bool:
    """Ask the process how it is; no answer within `seconds` is an answer, too."""
    url = urlsplit(endpoint.url)
    try:
        async with asyncio.timeout(seconds):
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
            provider="local",
        ) from None


SHARED_PROCESSES = ModelProcessPool()
"""The pool of this program. The one shared object of this package: a second copy of a model in
memory would be worse than a name at module level."""
