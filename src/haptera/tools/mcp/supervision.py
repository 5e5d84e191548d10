"""Supervision: an MCP server is started when it is needed, checked, and started again in time."""

import asyncio
from contextvars import Context
from types import ModuleType
from typing import TYPE_CHECKING

from haptera.model.errors import AgentError, ConfigError, ErrorCode, ToolError
from haptera.model.late_names import late_module
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks
from haptera.tools.mcp.offered_tools import OnTools
from haptera.tools.mcp.server_settings import ResolvedServer

if TYPE_CHECKING:
    from haptera.tools.mcp.requests import ServerRequests

CHECK_AFTER = 30.0
"""Seconds without use after which a server is asked for a sign of life before a call."""
_CHECK_SECONDS = 5.0
_LONGEST_WAIT = 60.0
_END_SECONDS = 10.0

_logger = scrubbed_logger(__name__)


class Supervisor:
    """Owns the connection to a server and the task that holds it.

    A server that ends by itself is started again at once by the next need; one that does so again
    and again, or does not start, only after a time that doubles, up to a minute. What needs it
    earlier fails with the reason.
    """

    def __init__(self, settings: ResolvedServer, on_tools: OnTools) -> None:
        self._settings = settings
        self._on_tools = on_tools
        self._tasks = OwnedTasks()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requests: ServerRequests | None = None
        self._starting: asyncio.Task[ServerRequests] | None = None
        self._used_at = 0.0
        self._not_before = 0.0
        self.failures = 0
        """How often in a row it ended by itself, or did not start."""
        self.error: AgentError | None = None
        """Why, the last time."""

    @property
    def running(self) -> "ServerRequests | None":
        """The connection, if requests can be made on it."""
        requests = self._requests
        return requests if requests is not None and requests.connection.is_alive else None

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to its standard error, also after its end."""
        return "" if self._requests is None else self._requests.connection.stderr

    @property
    def has_ended(self) -> bool:
        """Whether the server ended by itself and was not started again yet."""
        return self._requests is not None and not self._requests.connection.is_alive

    async def requests(self) -> "ServerRequests":
        """Return a connection on which requests can be made.

        Raises:
            ToolError: TOOL_FAILED or TOOL_TIMEOUT when the server cannot be had now.
            ConfigError: CONFIG_MISSING when the package `mcp` is not installed.

        """
        self._adopt_loop()
        running = self.running
        is_doubtful = running is not None and running.connection.is_doubtful
        if is_doubtful or self._now() - self._used_at >= CHECK_AFTER:
            await self.check()
        if (running := self.running) is not None:
            self._used_at = self._now()
            return running
        if self._starting is None:
            self._note_end()
            self._refuse_too_soon()
            # In an empty context: the server outlives the query that needs it first.
            self._starting = self._tasks.start(
                self._start(), name=f"haptera-mcp-start-{self._settings.name}", context=Context()
            )
            self._starting.add_done_callback(self._forget_start)
        starting = self._starting
        # A caller that is cancelled does not take the server away from the others.
        await asyncio.wait({starting})
        if starting.cancelled():
            name = self._settings.name
            raise ToolError(ErrorCode.TOOL_FAILED, f"the MCP server {name!r} was closed")
        return starting.result()

    def succeeded(self) -> None:
        """Note that the server has answered: what failed before no longer counts."""
        self.failures, self.error = 0, None
        self._used_at = self._now()

    async def close(self) -> None:
        """End the server; the next need starts it again."""
        if self._loop is not asyncio.get_running_loop():
            return  # its loop is gone, and with it everything that ran there
        if self._starting is not None:
            self._starting.cancel()
        if self._requests is not None:
            await self._requests.connection.end()
        await self._tasks.cancel(within=_END_SECONDS)
        self._requests = None
        self.failures, self.error, self._not_before = 0, None, 0.0

    async def _start(self) -> "ServerRequests":
        settings = self._settings
        requests: ServerRequests = (await _load()).ServerRequests(settings, self._on_tools)
        connection = requests.connection
        connection.start(self._tasks)
        try:
            async with asyncio.timeout(settings.connect_timeout):
                # Shielded, because a timeout would cancel the future that the task of the
                # connection sets.
                await asyncio.shield(connection.opened)
                await requests.list_tools()
        except (ToolError, TimeoutError) as raised:
            error = (
                raised
                if isinstance(raised, ToolError)
                else self._too_slow(connection.stderr[-500:])
            )
            self._requests = requests
            await connection.end()
            self._count(error)
            raise error from raised.__cause__
        except BaseException:
            await connection.end()
            raise
        self._requests = requests
        self._used_at = self._now()
        return requests

    def _forget_start(self, starting: "asyncio.Task[ServerRequests]") -> None:
        self._starting = None
        if not starting.cancelled():
            starting.exception()  # those that wait for it have it

    async def check(self) -> None:
        """Ask the server, if it runs, for a sign of life; end it if there is none."""
        self._adopt_loop()
        if (running := self.running) is None:
            return
        connection = running.connection
        try:
            await connection.check(_CHECK_SECONDS)
        except ToolError as error:
            _logger.warning("%s; it is started again", error)
            await connection.end()

    def _note_end(self) -> None:
        """Count the end of a connection that nothing here has asked for."""
        if self._requests is not None and self.error is None:
            message = f"the MCP server {self._settings.name!r} ended by itself"
            self._count(ToolError(ErrorCode.TOOL_FAILED, message))

    def _count(self, error: ToolError) -> None:
        self.failures += 1
        self.error = error
        wait = 0.0 if self.failures == 1 else 2.0 ** (self.failures - 2)
        self._not_before = self._now() + min(wait, _LONGEST_WAIT)

    def _refuse_too_soon(self) -> None:
        left = self._not_before - self._now()
        if left > 0 and self.error is not None:
            message = f"{self.error.message}. It is started again in {left:.0f} s at the earliest"
            raise ToolError(ErrorCode.TOOL_FAILED, message)
        self.error = None

    def _too_slow(self, written: str) -> ToolError:
        name, seconds = self._settings.name, self._settings.connect_timeout
        tail = f"; it wrote last: {written}" if written else ""
        message = f"the MCP server {name!r} was not ready within {seconds:g} s{tail}"
        return ToolError(ErrorCode.TOOL_TIMEOUT, message)

    def _now(self) -> float:
        clock = self._settings.clock
        return asyncio.get_running_loop().time() if clock is None else clock.now()

    def _adopt_loop(self) -> None:
        """Begin anew in another event loop: what ran in the one before has ended with it."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._tasks = loop, OwnedTasks()
            self._requests, self._starting, self.error = None, None, None
            self.failures, self._not_before = 0, 0.0


async def _load() -> ModuleType:
    """Import the package, which takes a second, without holding up the event loop.

    Raises:
        ConfigError: CONFIG_MISSING when it is not installed.

    """
    try:
        return await asyncio.to_thread(late_module, "haptera.tools.mcp.requests")
    except ImportError as error:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING, "MCP servers need `pip install 'haptera[mcp]'`"
        ) from error
