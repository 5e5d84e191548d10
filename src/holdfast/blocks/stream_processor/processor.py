"""StreamProcessor: runs a whole stream through an assembly, with handlers for its events."""

from collections.abc import AsyncIterable, Callable, Sequence
from typing import TypeVar

import msgspec

from holdfast.blocks.stream_processor.assembly import Assembly
from holdfast.ports.clock import Clock
from holdfast.ports.stamps import Stamp
from holdfast.vocabulary.errors import ErrorCode, ProviderError, SessionError
from holdfast.vocabulary.events import Event
from holdfast.vocabulary.parts import CompactionPart, Part
from holdfast.vocabulary.settings import Limits
from holdfast.vocabulary.stream_parts import StreamFinished, StreamPart
from holdfast.vocabulary.usage import Usage

EventT = TypeVar("EventT", bound=Event)


class ProcessedStream(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream came to."""

    parts: tuple[Part, ...]
    finished: StreamFinished | None
    usage: Usage = Usage()

    @property
    def compacted(self) -> bool:
        """Whether the provider compacted the conversation while it answered."""
        return any(isinstance(part, CompactionPart) for part in self.parts)


class StreamProcessor:
    """Puts answers together. Handlers are subscribed once and fire for every stream.

    Owns nothing of any stream between two of them: per-stream state is in the `Assembly`. Does not
    own the log (the recorder does) or what happens next (the query runner does).
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._handlers: list[Callable[[Event], None]] = []
        self._busy = False

    def on(self, kind: type[EventT], handler: Callable[[EventT], None]) -> Callable[[], None]:
        """Call `handler` for every event of a kind; returns a function that ends this."""

        def call(event: Event) -> None:
            if isinstance(event, kind):
                handler(event)

        self._handlers.append(call)
        return lambda: self._handlers.remove(call)

    def begin(
        self, *, stamp: Stamp, provider: str, model: str, limits: Limits | None = None
    ) -> Assembly:
        """Return the assembly for one answer; any number may be in progress."""
        return Assembly(stamp=stamp, provider=provider, model=model, limits=limits or Limits())

    async def process(
        self,
        stream: AsyncIterable[Sequence[StreamPart]],
        *,
        provider: str = "",
        model: str = "",
    ) -> ProcessedStream:
        """Run a stream to its end. One at a time, so that handlers never see two mixed.

        Raises:
            SessionError: STREAM_BUSY while another stream is being processed.
            ProviderError: PROTOCOL when the answer exceeds the bounds of `Limits`.

        """
        if self._busy:
            raise SessionError(ErrorCode.STREAM_BUSY, "this processor is at work on another stream")
        self._busy = True
        out: list[Event]
        assembly = self.begin(stamp=Stamp(self._clock), provider=provider, model=model)
        try:
            async for batch in stream:
                out = []
                assembly.feed(batch, out)
                self.emit(out)
                if assembly.excess is not None:
                    raise too_much(assembly.excess, provider)
        finally:
            self._busy = False
            out = []
            assembly.close(out)
            self.emit(out)
        finished = assembly.finished
        return ProcessedStream(
            parts=assembly.parts,
            finished=finished,
            usage=finished.usage if finished else Usage(),
        )

    def emit(self, events: Sequence[Event]) -> None:
        """Give events to the handlers, in order."""
        if self._handlers:
            for event in events:
                for handler in self._handlers:
                    handler(event)


def too_much(excess: str, provider: str) -> ProviderError:
    """Make the error for an answer that holds more than it may."""
    message = f"the answer holds {excess}; the rest of it was not read"
    return ProviderError(ErrorCode.PROTOCOL, message, provider=provider or None)
