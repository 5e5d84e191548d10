"""One connection to an MCP server, from its start to its end, over the `mcp` package.

The package wants a connection to be entered and left in one task, which is started here. Requests
are made from any task.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import Context
from typing import Any

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from haptera.model.errors import ConfigError, ErrorCode, ToolError
from haptera.model.own_name import OWN_VERSION
from haptera.ports.tools import ToolContext
from haptera.system.child_processes import KeptTail
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks
from haptera.tools.mcp.elicitation import answer_of_person
from haptera.tools.mcp.http import http_transport
from haptera.tools.mcp.offered_tools import clean
from haptera.tools.mcp.server_process import ServerProcess
from haptera.tools.mcp.server_settings import ResolvedServer

_REFRESH_PAUSE = 1.0
"""Seconds between two listings: a server may say all the time that its list has changed."""
_MOST_SAID = 2_000
_END_SECONDS = 10.0
_SERVER_CLOSED = types.CONNECTION_CLOSED

_logger = scrubbed_logger(__name__)


class McpConnection:
    """A running server. Owns its process or its HTTP client, and the calls under way.

    Does not own when it is started again (`supervision`), or what is asked of it (`requests`).
    `list_again` is called when the server says that its tools have changed.
    """

    def __init__(self, settings: ResolvedServer, list_again: Callable[[], Awaitable[None]]) -> None:
        self._settings = settings
        self._list_again = list_again
        self._client: Client | None = None
        self._process: ServerProcess | None = None
        self._kept = KeptTail()
        self.calls: list[ToolContext[Any]] = []
        """The calls under way."""
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_stale = False
        self._failure: str | None = None
        self.is_doubtful = False
        """Whether a request failed in a way that the server may be the cause of: its session may be
        gone, for example."""
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server is ready; fails when it is not going to be."""

    @property
    def is_alive(self) -> bool:
        """Whether requests can be made."""
        return self._client is not None and not self._stopping.is_set()

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to its standard error."""
        return clean(str(self._kept)).strip()

    @property
    def client(self) -> Client:
        """The package's client.

        Raises:
            ToolError: TOOL_FAILED when the connection has ended.

        """
        if self._client is None or self._stopping.is_set():
            raise self._error("has ended")
        return self._client

    def start(self, tasks: OwnedTasks) -> None:
        """Start the task that holds the connection; it belongs to no query."""
        self._task = tasks.start(self._run(), name=f"haptera-mcp-{self.name}", context=Context())

    async def _run(self) -> None:
        """Hold the connection until it is stopped, or ends by itself."""
        try:
            async with self._open() as client:
                self._client = client
                if not self.opened.done():
                    self.opened.set_result(None)
                await self._listen(client)
        except Exception as error:
            _logger.debug("the connection to MCP server %r failed", self.name, exc_info=True)
            self._failure = self._failure or _first_text(error)
        finally:
            self._client = None
            self._stopping.set()
            self._ended.set()
            if not self.opened.done():
                self.opened.set_exception(self._error("did not start"))
                self.opened.exception()  # what waits for it may have gone

    def stop(self) -> None:
        """Let the connection end."""
        self._stopping.set()
        self._wake.set()

    async def end(self) -> None:
        """End the connection, also one that is not ready yet; returns when it has ended."""
        self.stop()
        if self._task is not None and not self._ended.is_set():
            if not self.opened.done():
                # It may wait for the server for ever. One that was opened ends by itself once it is
                # told to.
                self._task.cancel()
            await asyncio.wait({self._task}, timeout=_END_SECONDS)

    @property
    def name(self) -> str:
        """The name of the server."""
        return self._settings.name

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncGenerator[Client]:
        if self._settings.command is not None:
            self._process = ServerProcess(self._settings, self._kept, self.stop)
            transport: Any = self._process
        else:
            transport = http_transport(self._settings, self._kept)
        client = Client(
            transport,
            message_handler=self._notice,
            elicitation_callback=self._elicit,
            client_info=types.Implementation(name="haptera", version=OWN_VERSION),
            cache=None,
        )
        async with client:
            # The package runs a server's own output schema, patterns included, on the event loop,
            # where one bad pattern stops everything. A structured value is data for a model.
            vars(client.session).update(validate_tool_result=_accept)
            yield client

    async def _listen(self, client: Client) -> None:
        """List the tools again whenever the server says so, until the connection is stopped."""
        async with contextlib.AsyncExitStack() as stack:
            tools = client.server_capabilities.tools
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools and tools.list_changed:
                await stack.enter_async_context(client.listen(tools_list_changed=True))
            while not self._stopping.is_set():
                await self._wake.wait()
                self._wake.clear()
                if self._is_stale and not self._stopping.is_set():
                    self._is_stale = False
                    await self._refresh()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_REFRESH_PAUSE):
                            await self._stopping.wait()

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                await self._list_again()
        except (ToolError, TimeoutError) as error:
            _logger.warning("MCP server %r: its tools could not be listed: %s", self.name, error)

    async def _notice(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._is_stale = True
            self._wake.set()

    async def _elicit(
        self,
        context: ClientRequestContext,
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult:
        _logger.debug("MCP server %r asks a person: request %s", self.name, context.request_id)
        # A server does not say for which call it asks. Several sessions may share it, so it is
        # asked on behalf of a call only where there is no other.
        call = self.calls[0] if len(self.calls) == 1 else None
        return await answer_of_person(self.name, call, params)

    async def check(self, seconds: float) -> None:
        """Ask for a sign of life.

        Raises:
            ToolError: TOOL_FAILED when there is none.

        """
        client = self.client
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        try:
            async with asyncio.timeout(seconds):
                await (client.session.discover() if is_modern else client.session.send_ping())
        except Exception as error:
            raise self._error(f"gives no sign of life: {_first_text(error)}") from error
        self.is_doubtful = False

    @contextlib.asynccontextmanager
    async def reported(self) -> AsyncGenerator[None]:
        """Turn what the package raises into an error that says what is known of the server."""
        try:
            yield
        except (ToolError, ConfigError):
            raise
        except MCPError as error:
            if error.code == _SERVER_CLOSED:
                await self.end()  # then it is known how it ended
                raise self._error("has ended") from error
            self.is_doubtful = True
            message = clean(error.message)[:_MOST_SAID]
            raise self._error(f"answered with an error: {message}", told=False) from error
        except Exception as error:
            raise self._error(f"sent an invalid answer: {_first_text(error)}") from error

    def _error(self, what: str, *, told: bool = True) -> ToolError:
        """Make an error that names the server, how it ended, and what it wrote last."""
        process = self._process
        fault = process.fault if process is not None else None
        status = process.exit_status if process is not None else None
        ending = f" (exit status {status})" if status is not None else ""
        reasons = [reason for reason in (fault, self._failure) if reason]
        written = self.stderr[-_MOST_SAID:] if told else ""
        tail = f"; it wrote last: {written}" if written else ""
        message = f"the MCP server {self.name!r} {what}{ending}"
        return ToolError(ErrorCode.TOOL_FAILED, ": ".join([message, *reasons]) + tail)


async def _accept(name: str, result: object) -> None:
    """Take a structured value as it is."""


def _first_text(error: BaseException) -> str:
    """Return what the first exception of a group says."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return clean(str(error) or type(error).__name__)[:_MOST_SAID]
