"""ClaudeConnection: the agent's process, and claude-agent-sdk's control protocol over its pipes.

The package's own reader hands control replies on only as long as its buffer of 100 messages has
space, so a slow consumer would block an interrupt. Here the pipe is always drained: control lines
go to the package, and all other lines go to the session that keeps them. A result travels both
ways, because the package stores the transcript of a turn before it gives the result back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from haptera.model.errors import AgentError, ErrorCode, ProviderError, RequestError
from haptera.model.json_types import JsonObject
from haptera.model.vendors import CLAUDE_AGENT
from haptera.providers.claude_agent.agent_process import AgentProcess
from haptera.providers.claude_agent.frames import Head, decode_line, read_head
from haptera.providers.claude_agent.sdk import package as sdk
from haptera.system.logs import scrubbed_logger
from haptera.system.owned_tasks import OwnedTasks

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

_logger = scrubbed_logger(__name__)

_CONTROL = frozenset(
    {"control_request", "control_response", "control_cancel_request", "transcript_mirror"}
)
CONNECT_SECONDS = 20.0
"""How long an agent may take until it speaks the protocol."""
_INTERRUPT_SECONDS = 10.0
_GRACE_SECONDS = 5.0
"""How long an agent whose input ended may take: it writes its transcript then."""


class PipeTransport:
    """What the package reads from and writes to; it has the methods of its `Transport`."""

    def __init__(self, process: AgentProcess, take: Callable[[bytes, Head], None]) -> None:
        self._process = process
        self._take = take
        self.grace = _GRACE_SECONDS
        self.failure: AgentError | None = None
        """What was wrong with the output."""

    async def connect(self) -> None:
        """Start the process."""
        await self._process.start()

    async def write(self, data: str) -> None:
        """Hand over one line."""
        await self._process.write(data.encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what is the package's, and hand everything else to the session."""
        try:
            while (line := await self._process.read_line()) is not None:
                line = line.strip()
                if not line.startswith(b"{"):
                    continue  # some builds print notes for people
                head = read_head(line)
                if head.type not in _CONTROL or head.type == "transcript_mirror":
                    self._take(line, head)
                if head.type in _CONTROL or head.type == "result":
                    yield decode_line(line)
        except ProviderError as error:
            self.failure = error
            raise
        if await self._process.wait():
            raise self._process.ended_error()

    async def close(self) -> None:
        """End the process."""
        await self._process.stop(grace=self.grace)

    def is_ready(self) -> bool:
        """Whether the process runs."""
        return self._process.running

    async def end_input(self) -> None:
        """Close the input."""
        self._process.end_input()


class ClaudeConnection:
    """Opens, uses and closes one process of the agent. Does not know what its lines mean."""

    def __init__(
        self,
        process: AgentProcess,
        options: "ClaudeAgentOptions",
        *,
        take: Callable[[bytes, Head], None],
        released: Callable[[], None],
        ended: Callable[[AgentError | None], None],
    ) -> None:
        self.process = process
        self._options = options
        self._transport = PipeTransport(process, take)
        self._released = released
        self._ended = ended
        self._client: ClaudeSDKClient | None = None
        self._tasks = OwnedTasks()

    async def open(self) -> None:
        """Start the process and agree on the protocol.

        Raises:
            AgentError: what the agent said, or why it could not be started.

        """
        transport: Any = self._transport
        self._client = client = sdk.ClaudeSDKClient(self._options, transport=transport)
        try:
            with self._translated():
                await self._connect(client)
        except BaseException:
            await self._stop_process()
            raise
        self._tasks.start(self._pump(client), name="haptera-agent-results")

    async def _connect(self, client: "ClaudeSDKClient") -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect()
        except TimeoutError:
            detail = f"; it printed: {self.process.said}" if self.process.said else ""
            raise RequestError(
                ErrorCode.TIMEOUT,
                f"the agent did not answer within {CONNECT_SECONDS:g} s{detail}",
                provider=CLAUDE_AGENT,
            ) from None

    async def _stop_process(self) -> None:
        stopping = OwnedTasks().start(self.process.stop(grace=0), name="haptera-agent-stop")
        while not stopping.done():
            with suppress(asyncio.CancelledError):  # nothing may be left behind
                await asyncio.wait({stopping})

    async def _pump(self, client: "ClaudeSDKClient") -> None:
        """Take back the results whose transcripts are stored by now."""
        failure: AgentError | None = None
        try:
            with self._translated():
                await self._receive(client)
        except AgentError as error:  # whatever it is, the session ends with it
            failure = error
        self._ended(failure)

    async def _receive(self, client: "ClaudeSDKClient") -> None:
        async for message in client.receive_messages():
            if isinstance(message, sdk.ResultMessage):
                self._released()
            elif isinstance(message, sdk.SystemMessage) and message.subtype == "mirror_error":
                # The local transcript has it all; what is in the store is only the copy.
                _logger.warning("a transcript was not stored: %s", message.data.get("error"))

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        """Raise what the package raises as an error of ours."""
        try:
            yield
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 - the package raises all kinds
            raise self._error_of(error) from None

    async def send(self, message: JsonObject) -> None:
        """Hand over a user message."""

        # As a stream of one message: the package takes messages with media in this form only.
        async def only() -> AsyncIterator[JsonObject]:
            yield message

        await self._connected().query(only())

    async def interrupt(self) -> None:
        """Ask the agent to end the turn that runs.

        Raises:
            RequestError: TIMEOUT when it does not answer.

        """
        with self._translated():
            try:
                async with asyncio.timeout(_INTERRUPT_SECONDS):
                    await self._connected().interrupt()
            except TimeoutError as error:
                raise RequestError(
                    ErrorCode.TIMEOUT,
                    "the agent did not answer an interrupt",
                    provider=CLAUDE_AGENT,
                ) from error

    async def close(self, *, grace: float | None = None) -> None:
        """End the process and everything that waits for it."""
        self._transport.grace = _GRACE_SECONDS if grace is None else grace
        try:
            if self._client is not None:
                await self._client.disconnect()
        finally:
            # The package may have failed before it ended the process.
            await self.process.stop(grace=0)
            await self._tasks.cancel(within=None)

    def _connected(self) -> "ClaudeSDKClient":
        if self._client is None:
            raise self.process.ended_error()
        return self._client

    def _error_of(self, error: Exception) -> AgentError:
        """Return the error of ours that stands for one of the package's."""
        if isinstance(error, AgentError):
            return error
        if self._transport.failure is not None:
            return self._transport.failure
        if not self.process.running:
            return self.process.ended_error()
        return ProviderError(
            ErrorCode.PROTOCOL, f"the agent failed: {error}", provider=CLAUDE_AGENT
        )
