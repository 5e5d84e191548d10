"""ClaudeSession: one live session of the Claude Code CLI; implements `NativeSession`."""

import asyncio
import math
import os
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import PurePath
from typing import IO, Literal
from uuid import uuid4

import msgspec

from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    RequestError,
    SessionError,
)
from haptera.model.json_types import JsonObject
from haptera.model.native_messages import NativeMessage, NativeResult
from haptera.model.parts import MediaPart, Part, ReminderPart, TextPart, reminder_text
from haptera.model.vendors import CLAUDE_AGENT
from haptera.providers.claude_agent.connection import ClaudeConnection
from haptera.providers.claude_agent.frames import Head, decode_line, read_head
from haptera.providers.claude_agent.messages import MessageDecoder
from haptera.providers.claude_agent.transcript_copies import ConversationPlace
from haptera.providers.claude_agent.transcripts import is_native_id
from haptera.system.owned_tasks import OwnedTasks

_DEFAULT_BYTES = 4 * 1024 * 1024
_LENGTH_BYTES = 8
_BATCH = 256
"""Lines that one step of a stream hands on at most."""
_ENDS_OF_PROMPTS = frozenset({"completed", "cancelled", "discarded"})
_IDLE_SECONDS = 0.5
"""How long a prompt waits until the agent is at rest after a result."""


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a session holds back, and how long it takes to close."""

    input_queue: int = 16
    """Sends that may wait for each other."""
    buffer_bytes: int = _DEFAULT_BYTES
    """Bytes of unread messages in memory; more wait in a file."""
    drain_seconds: float = 15.0
    """How long a close lets sends and the stream end by themselves."""


class ClaudeSession:
    """One live session. Owns what was read and not seen yet, its id, and the order of its ends."""

    def __init__(
        self,
        connect: Callable[["ClaudeSession"], ClaudeConnection],
        *,
        known_id: str | None = None,
        turn_ended: Callable[[], None] = lambda: None,
        limits: SessionLimits | None = None,
        place: ConversationPlace | None = None,
    ) -> None:
        self._turn_ended = turn_ended
        self._place = place or ConversationPlace()
        self._limits = limits or SessionLimits()
        self._phase: Literal["open", "closing", "closed"] = "open"
        self._closing: asyncio.Task[None] | None = None
        self._id: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if known_id is not None:
            self._id.set_result(known_id)
        self._named = asyncio.Event()
        """Set when the agent has named its session, or will never do so."""
        self._buffer = _SpillBuffer(self._limits.buffer_bytes)
        self._arrived = asyncio.Event()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._decoder = MessageDecoder()
        self._sending = asyncio.Lock()
        self._waiting_sends = 0
        self._streaming = asyncio.Lock()
        self._outstanding = 0
        """Prompts whose result was not seen yet."""
        self._unfinished: set[str] = set()
        """The ids of prompts that the agent has not said to be done with."""
        self._discarding = False
        """Whether what arrives belongs to a turn whose stream was left."""
        self._results_seen = 0
        self._results_released = 0
        self._over: AgentError | None = None
        """Why nothing more will come, once the agent has ended."""
        self.connection = connect(self)

    async def start(self) -> None:
        """Connect to the agent."""
        await self.connection.open()

    # The id.

    async def session_id(self) -> str:
        """Return the agent's id of the session, when it is known."""
        # A caller that gives up must not cancel it for the others.
        return await asyncio.shield(self._id)

    async def ensure_session_id(self, *, within: float) -> str:
        """Return the id; wait for it at most so many seconds.

        Raises:
            RequestError: TIMEOUT when the agent has not named its session by then.

        """
        try:
            async with asyncio.timeout(within):
                return await self.session_id()
        except TimeoutError:
            message = f"the agent did not name its session within {within:g} s"
            raise RequestError(ErrorCode.TIMEOUT, message, provider=CLAUDE_AGENT) from None

    def _name(self, session_id: str) -> None:
        failed = self._id.done() and self._id.exception() is not None
        if self._id.done() and not failed and self._id.result() != session_id:
            # After a reset the agent works under another id: callers that wait from now on get
            # that.
            self._id = asyncio.get_running_loop().create_future()
        if not self._id.done():
            self._id.set_result(session_id)
        self._named.set()

    # What arrives.

    def take(self, line: bytes, head: Head) -> None:
        """Keep a line that the agent printed, unless it belongs to a turn that was left."""
        if head.type == "transcript_mirror":
            self._note_transcript(decode_line(line))
            return
        if head.type == "command_lifecycle":
            self._note_prompt(decode_line(line))
            return
        if head.subtype == "session_state_changed":
            self._note_state(head.state)
            return
        if head.session_id and (head.subtype == "init" or self._named.is_set()):
            self._name(head.session_id)
        if head.type == "result":
            self._turn_ended()
        if self._discarding:
            if head.type == "result":
                self._discarding = False
                self._leave_result(line)
            return
        self._buffer.put(line)
        self._arrived.set()

    def _note_transcript(self, frame: JsonObject) -> None:
        """Follow what was said into the transcript; those of sub-agents have files of their own."""
        lines = frame.get("entries")
        if is_native_id(PurePath(str(frame.get("filePath", ""))).stem) and isinstance(lines, list):
            entries = [each for each in lines if isinstance(each, dict)]
            self._place = self._place.after(entries)

    def _note_prompt(self, frame: JsonObject) -> None:
        """Follow a prompt to its end: one that came in a turn is answered with the one before."""
        if frame.get("state") in _ENDS_OF_PROMPTS:
            self._unfinished.discard(str(frame.get("command_uuid")))
            self._arrived.set()

    def released(self) -> None:
        """Let one more result be seen."""
        # Counted, because a result comes by two ways, of which either may be the faster one.
        self._results_released += 1
        self._arrived.set()

    def ended(self, failure: AgentError | None) -> None:
        """Take note that nothing more will come."""
        self._over = failure or self.connection.process.ended_error()
        self._at_rest.set()
        self._wake()

    def _note_state(self, state: str | None) -> None:
        if state == "idle":
            self._at_rest.set()
            if self._discarding:
                self._discarding = False  # it ended without a result
                self._outstanding = 0
        elif state is not None:
            self._at_rest.clear()

    def _wake(self) -> None:
        self._arrived.set()
        self._named.set()
        if self._over is not None and not self._id.done():
            self._id.set_exception(self._over)
            self._id.exception()  # nothing may wait for it

    def _pass_result(self) -> None:
        self._results_seen += 1
        self._outstanding = max(0, self._outstanding - 1)

    # Prompts.

    @property
    def is_alive(self) -> bool:
        """Whether the agent's process runs."""
        return self._over is None and self.connection.process.running

    async def send(self, parts: Sequence[Part], *, prompt_id: str | None = None) -> None:
        """Hand over a prompt, after those that were sent before it.

        Raises:
            SessionError: CLOSED, or BUSY when too many sends wait already.

        """
        self._refuse_sending()
        if self._waiting_sends >= self._limits.input_queue:
            raise SessionError(ErrorCode.BUSY, "too many prompts are waiting to be sent")
        self._waiting_sends += 1
        try:
            async with self._sending:
                self._refuse_sending()
                # Checked again after each wait: the session may have been closed, or the agent have
                # ended.
                await self._until_at_rest()
                self._refuse_sending()
                # Before the prompt is written: its result may arrive before `send` returns.
                self._outstanding += 1
                named = prompt_id or str(uuid4())
                self._unfinished.add(named)
                await self.connection.send(_user_message(parts, named))
        finally:
            self._waiting_sends -= 1

    async def _until_at_rest(self) -> None:
        """Wait for the end of the turn before, so that its last words are not the next one's."""
        if self._outstanding or self._streaming.locked() or self._at_rest.is_set():
            return
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._at_rest.wait()
        except TimeoutError:
            pass  # something of it goes on in the background; that is no reason not to send

    async def interrupt(self) -> None:
        """End the turn that runs; before the agent has named its session it waits for that."""
        self._refuse_closed()
        await self._named.wait()
        self._refuse_closed()
        if self._over is not None:
            raise self._over
        await self.connection.interrupt()

    # What is read.

    async def stream(self, *, wait: bool = False) -> AsyncGenerator[Sequence[NativeMessage], None]:
        """Yield messages in batches until and including the next result.

        Raises:
            SessionError: CLOSED; STREAM_BUSY when it has a consumer already.

        """
        self._refuse_closed()
        if self._streaming.locked() and not wait:
            raise SessionError(
                ErrorCode.STREAM_BUSY, "the stream of the session already has a consumer"
            )
        async with self._streaming:
            self._refuse_closed()
            finished = False
            try:
                while not finished:
                    if (batch := await self._next_batch()) is None:
                        finished = True  # its prompt was answered with the one before
                        break
                    finished = any(isinstance(message, NativeResult) for message in batch)
                    if batch:
                        yield batch
            finally:
                if not finished:
                    self._leave_turn()

    async def _next_batch(self) -> list[NativeMessage] | None:
        """Wait for a line; return what it and those behind it say, up to the next result.

        None when no line will come, because the agent is done with every prompt.
        """
        while not self._buffer:
            if self._outstanding and not self._unfinished:
                self._outstanding = 0
                return None
            if self._over is not None:
                raise self._over
            if self._phase == "closed":
                raise _closed()
            self._arrived.clear()
            await self._arrived.wait()
        batch: list[NativeMessage] = []
        for _ in range(_BATCH):
            if not self._buffer:
                break
            line = self._buffer.get()
            batch += self._decoder.feed(line)
            if batch and isinstance(batch[-1], NativeResult):
                await self._until_released()
                place = self._place
                batch[-1] = msgspec.structs.replace(
                    batch[-1], entry=place.entry, entries=place.count
                )
                self._pass_result()
                break
        return batch

    async def _until_released(self) -> None:
        """Wait until the transcript of the turn is stored, or nothing will store it any more."""
        while self._results_released <= self._results_seen:
            if self._over is not None or self._phase == "closed":
                return
            self._arrived.clear()
            await self._arrived.wait()

    def _leave_turn(self) -> None:
        """Let nothing of the turn that runs be seen by the next stream."""
        # Without a prompt that waits for its result, nothing more of a turn will come.
        if not self._outstanding:
            return
        while self._buffer:
            line = self._buffer.get()
            if read_head(line).type == "result":
                self._leave_result(line)
                return
        self._discarding = True

    def _leave_result(self, line: bytes) -> None:
        """Keep of the result of a turn that was left only what it has cost."""
        self._pass_result()
        # The decoder may be inside an answer of the turn that was left.
        self._decoder = MessageDecoder()
        total = decode_line(line).get("total_cost_usd")
        notice = {"type": "system", "subtype": "turn_left", "total_cost_usd": total}
        # The notice is put before the lines that wait, which belong to the next turn.
        waiting, self._buffer = self._buffer, _SpillBuffer(self._limits.buffer_bytes)
        self._buffer.put(msgspec.json.encode(notice))
        while waiting:
            self._buffer.put(waiting.get())
        waiting.close()

    # The end.

    async def close(self, *, within: float | None = None) -> None:
        """Close the session; callers that close it at the same time share the outcome."""
        seconds = self._limits.drain_seconds if within is None else within
        if not math.isfinite(seconds) or seconds < 0:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"within must be seconds, not {within!r}")
        if self._closing is None:
            self._phase = "closing"
            self._fail_id()
            self._closing = OwnedTasks().start(self._close(seconds), name="haptera-agent-close")
        # A caller that is cancelled does not stop the close that others wait for.
        await asyncio.shield(self._closing)

    async def _close(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                # Sends and streams hold these locks, so taking them is waiting for the last ones.
                async with self._sending, self._streaming:
                    pass
        except TimeoutError:
            pass
        self._phase = "closed"
        self._wake()
        try:
            # An agent at rest gets time to write its transcript. One in a turn would use that time
            # to go on.
            resting = self._at_rest.is_set() and not self._outstanding
            await self.connection.close(grace=None if resting else 0)
        finally:
            self._buffer.close()

    def _fail_id(self) -> None:
        if not self._id.done():
            self._id.set_exception(_closed())
            self._id.exception()  # nothing may wait for it
        self._named.set()

    def _refuse_closed(self) -> None:
        if self._phase != "open":
            raise _closed()

    def _refuse_sending(self) -> None:
        self._refuse_closed()
        if self._over is not None:
            raise self._over


class _SpillBuffer:
    """A queue of byte strings. From `limit` bytes on they wait in an unnamed temporary file.

    Nothing is dropped. The file has no name, is readable for this process alone, and is gone when
    the buffer is closed or its process has ended. It is emptied whenever the consumer has caught
    up.
    """

    def __init__(self, limit: int = _DEFAULT_BYTES) -> None:
        self._limit = limit
        self._memory: deque[bytes] = deque()
        self.memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._spilled = 0
        self._read_at = 0

    def __len__(self) -> int:
        return len(self._memory) + self._spilled

    def put(self, line: bytes) -> None:
        """Add a line; order is kept, so nothing goes to memory while the file holds any."""
        if not self._spilled and self.memory_bytes + len(line) <= self._limit:
            self._memory.append(line)
            self.memory_bytes += len(line)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="haptera-")  # noqa: SIM115 - `close` does
        # Reading has moved the position.
        self._file.seek(0, os.SEEK_END)
        self._file.write(len(line).to_bytes(_LENGTH_BYTES, "big"))
        self._file.write(line)
        self._spilled += 1

    def get(self) -> bytes:
        """Take the first line out; raises IndexError when there is none."""
        if self._memory:
            line = self._memory.popleft()
            self.memory_bytes -= len(line)
            return line
        if self._file is None or not self._spilled:
            raise IndexError("nothing waits")
        self._file.seek(self._read_at)
        length = int.from_bytes(self._file.read(_LENGTH_BYTES), "big")
        line = self._file.read(length)
        self._read_at += _LENGTH_BYTES + length
        self._spilled -= 1
        if not self._spilled:
            self._read_at = 0
            self._file.truncate(0)
        return line

    def close(self) -> None:
        """Drop what waits, and the file."""
        self._memory.clear()
        self.memory_bytes = self._spilled = self._read_at = 0
        if self._file is not None:
            self._file.close()
            self._file = None


def _closed() -> SessionError:
    return SessionError(ErrorCode.CLOSED, "the native session is closed", provider=CLAUDE_AGENT)


def _user_message(parts: Sequence[Part], prompt_id: str) -> JsonObject:
    """Return the frame of one prompt; text alone stays text, so that slash commands work."""
    blocks = [block for part in parts if (block := _block(part)) is not None]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    content = "\n\n".join(texts) if len(texts) == len(blocks) else blocks
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "uuid": prompt_id,  # the CLI keeps the prompt in its transcript under this id
    }


def _block(part: Part) -> JsonObject | None:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ReminderPart(text=text):
            return {"type": "text", "text": reminder_text(text)}
        case MediaPart():
            return _media(part)
        case _:
            return None


def _media(part: MediaPart) -> JsonObject:
    kind = "image" if part.mime.startswith("image/") else "document"
    if part.url is not None:
        return {"type": kind, "source": {"type": "url", "url": part.url}}
    if part.data is None:
        return {"type": "text", "text": f"[{part.filename or part.mime} is not available]"}
    source = {"type": "base64", "media_type": part.mime, "data": part.data}
    return {"type": kind, "source": source}
