"""A model client that plays a script, and a consumer that remembers events: both for tests."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from haptera.model.errors import AgentError, ErrorCode, RequestError, SessionError
from haptera.model.events import Event, TextDelta
from haptera.model.json_types import Json
from haptera.model.log.queries import QueryEnded
from haptera.model.log.turns import PartEnded, TurnDiscarded, TurnStarted
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import (
    FinishKind,
    PartClosed,
    PartDelta,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.model.usage import Usage


class Gate:
    """A point in a script that a test opens: the provider is silent until then."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self.reached = asyncio.Event()
        """Set when the script got here."""

    def open(self) -> None:
        """Let the script go on."""
        self._open.set()

    async def wait(self) -> None:
        """Say that the script got here, and wait for the test."""
        self.reached.set()
        await self._open.wait()


Beat: TypeAlias = (
    StreamPart | Sequence[StreamPart] | Gate | Callable[[], Awaitable[None]] | Exception
)
"""One thing that happens: parts arrive in one read, a gate or a wait holds the stream, an error
breaks it."""

Step: TypeAlias = Sequence[Beat] | Exception
"""The answer to one request, or the error it fails with."""


class UnexpectedRequestError(AssertionError):
    """The script has no answer to this request."""


class UnplayedStepsError(AssertionError):
    """The script has answers that were not asked for."""


class ScriptedProvider:
    """Answers the n-th request with the n-th step of its script.

    Keeps every request for a test to look at. `check` fails when steps were left, and every
    stream that was opened must have been closed. With a `window` it refuses, with CONTEXT_LENGTH
    and without playing a step, every request that holds more tokens by `count_tokens`.
    """

    def __init__(
        self,
        steps: Sequence[Step] = (),
        *,
        provider: str = "scripted",
        window: int | None = None,
    ) -> None:
        self._steps: deque[Step] = deque(steps)
        self._provider = provider
        self._window = window
        self.refused = 0
        """How many requests were longer than the window."""
        self._played = 0
        self.requests: list[ModelRequest] = []
        self.open_streams = 0
        self.closed = False

    @property
    def provider(self) -> str:
        """The name that models of this provider begin with."""
        return self._provider

    def add(self, *steps: Step) -> None:
        """Write more of the script."""
        self._steps.extend(steps)

    def replace_rest(self, *steps: Step) -> None:
        """Forget what was not played and go on with something else."""
        self._steps = deque(steps)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Play the next step."""
        if self.closed:
            raise SessionError(ErrorCode.CLOSED, "the provider was closed")
        self.requests.append(request)
        await self._refuse_longer(request)
        self._played += 1
        if not self._steps:
            raise UnexpectedRequestError(f"request {self._played} is not in the script")
        step = self._steps.popleft()
        self.open_streams += 1
        try:
            if isinstance(step, Exception):
                raise _fresh(step)
            for beat in step:
                if isinstance(beat, Exception):
                    raise _fresh(beat)
                if isinstance(beat, Gate):
                    await beat.wait()
                elif isinstance(beat, Sequence):
                    yield beat
                elif isinstance(beat, msgspec.Struct):
                    yield (beat,)
                else:
                    await beat()
        finally:
            self.open_streams -= 1

    async def _refuse_longer(self, request: ModelRequest) -> None:
        if self._window is None:
            return
        tokens = (await self.count_tokens(request)).tokens
        if tokens > self._window:
            self.refused += 1
            raise RequestError(
                ErrorCode.CONTEXT_LENGTH,
                f"the prompt has {tokens} tokens, and the window {self._window}",
                provider=self._provider,
            )

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Estimate: a script has no tokenizer."""
        return TokenCount(tokens=len(msgspec.json.encode(request.messages)) // 4, exact=False)

    async def close(self) -> None:
        """Take no more requests."""
        self.closed = True

    def check(self) -> None:
        """Fail unless the whole script was played and every stream closed."""
        if self._steps:
            raise UnplayedStepsError(
                f"{len(self._steps)} steps were not played after {self._played} requests"
            )
        if self.open_streams:
            raise UnplayedStepsError(f"{self.open_streams} streams were left open")


def _fresh(error: Exception) -> Exception:
    """Return an error that carries nothing from an earlier use."""
    if isinstance(error, AgentError):
        return AgentError.from_dict(error.to_dict())
    return error


def says(
    *texts: str,
    finish: FinishKind = "stop",
    reason: str = "end_turn",
    usage: Usage | None = None,
) -> list[StreamPart]:
    """Script an answer of text, each piece a delta."""
    parts: list[StreamPart] = [StreamOpened(model="scripted"), PartOpened(key="0", kind="text")]
    parts += [PartDelta(key="0", text=text) for text in texts]
    parts += [PartClosed(key="0"), finished(finish, reason, usage)]
    return parts


def reasoning(*texts: str, signature: str | None = "sealed") -> list[StreamPart]:
    """Script a train of thought, to be put before something else."""
    parts: list[StreamPart] = [PartOpened(key="thought", kind="reasoning")]
    parts += [PartDelta(key="thought", text=text) for text in texts]
    parts.append(PartClosed(key="thought", signature=signature))
    return parts


def calls(*wishes: tuple[str, Json], ids: Sequence[str] = (), text: str = "") -> list[StreamPart]:
    """Script tool calls, given as names and arguments (a string is sent as it is)."""
    parts: list[StreamPart] = [StreamOpened(model="scripted")]
    if text:
        parts += [PartOpened(key="t", kind="text"), PartDelta(key="t", text=text)]
        parts.append(PartClosed(key="t"))
    for index, (name, arguments) in enumerate(wishes):
        call_id = ids[index] if index < len(ids) else None
        raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        # In two deltas, as providers send arguments: no consumer may take the first for all of
        # them.
        middle = len(raw) // 2
        parts += [
            PartOpened(key=f"c{index}", kind="tool_call", call_id=call_id, name=name),
            PartDelta(key=f"c{index}", text=raw[:middle]),
            PartDelta(key=f"c{index}", text=raw[middle:]),
            PartClosed(key=f"c{index}"),
        ]
    parts.append(finished("tool_calls", "tool_use", None))
    return parts


def finished(kind: FinishKind, reason: str, usage: Usage | None = None) -> StreamFinished:
    """Script the end of an answer."""
    return StreamFinished(kind=kind, reason=reason, usage=usage or Usage(input=10, output=5))


class EventRecorder:
    """A consumer that remembers. It shows text as a careful consumer would: by part and offset."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._shown: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        self.events.append(event)
        match event:
            case TextDelta(part_id=part_id, offset=offset, text=text):
                self._shown[part_id] = self._shown.get(part_id, "")[:offset] + text
            case PartEnded(part_id=part_id, part=TextPart(text=text)):
                self._shown[part_id] = text
            case TurnStarted() | TurnDiscarded():
                self._shown.clear()

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events, in order."""
        return [event.kind for event in self.events]

    @property
    def counts(self) -> Counter[str]:
        """How often each kind came."""
        return Counter(self.kinds)

    @property
    def text(self) -> str:
        """The text that is on the screen now."""
        return "".join(self._shown.values())

    @property
    def ends(self) -> list[QueryEnded]:
        """The terminal events; a query has exactly one."""
        return [event for event in self.events if isinstance(event, QueryEnded)]
