"""StreamProcessor: puts answers together from stream parts, with handlers for their events."""

from collections.abc import AsyncIterable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from haptera.kernel.blocks.stream_processor.answer_assembler import AnswerAssembler
from haptera.model.errors import ErrorCode, ProviderError, SessionError
from haptera.model.events import Event, check_handler
from haptera.model.parts import CompactionPart, Part
from haptera.model.settings import Limits
from haptera.model.stream_parts import StreamFinished, StreamOpened, StreamPart
from haptera.model.usage import Usage
from haptera.system.clock import Clock, Stamp

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


class AnswerInterface(Protocol):
    """One answer while it comes; what `StreamProcessorInterface.begin` returns.

    - Events come out in the order of the stream parts. Text, reasoning and arguments are delivered
      as deltas with the offset at which they begin, then once as a whole part.
    - Arguments of a tool call are parsed once, when the part is closed. No text is no arguments.
    - Deltas of parts that were never opened, and parts that are opened twice, are dropped.
    - `failure` is set, and nothing more is taken in, when the answer cannot be kept or exceeds a
      bound. `feed` does not raise for that.
    - Its entries can be read back: nothing checks them again before they are stored.
    """

    failure: ProviderError | None
    opened: StreamOpened | None
    finished: StreamFinished | None
    unsaved_bytes: int
    """How much text no checkpoint or ended part has yet."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The complete parts, in the order in which they began."""
        ...

    def feed(self, batch: Sequence[StreamPart], out: list[Event]) -> None:
        """Take in the parts of one read, and append the events they make to `out`."""
        ...

    def checkpoint(self, out: list[Event]) -> None:
        """Append entries that save what came since the last checkpoint."""
        ...

    def close(self, out: list[Event]) -> None:
        """End what is still open: text as far as it came, tool calls not at all."""
        ...


class AnswerSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer comes from, and how much of it is taken."""

    stamp: Stamp
    provider: str = ""
    model: str = ""
    limits: Limits = Limits()
    checkpoint_bytes: float = float("inf")
    """So much text without a checkpoint makes one."""


class StreamProcessorInterface(Protocol):
    """Begins answers; a substitute for `StreamProcessor` in a turn runner has these members.

    - Any number of answers may be open at the same time. None knows of another, and nothing of an
      answer is left in the processor.
    """

    has_handlers: bool
    """Whether anything wants to be shown events."""

    def begin(self, source: AnswerSource) -> AnswerInterface:
        """Return a new answer."""
        ...

    def show(self, events: Sequence[Event]) -> None:
        """Give recorded events to the handlers."""
        ...


class StreamProcessor:
    """Puts answers together. Handlers are subscribed once and fire for every stream.

    A turn runner begins an answer, feeds it and shows its events once they are recorded. Programs
    that record nothing let `process` do all of it. Owns nothing of any stream between two of them:
    what belongs to one is in its answer.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._handlers: list[Callable[[Event], None]] = []
        self._busy = False
        self.has_handlers = False

    def begin(self, source: AnswerSource) -> AnswerAssembler:
        """Return a new answer, which knows nothing of any other."""
        return AnswerAssembler(
            stamp=source.stamp,
            provider=source.provider,
            model=source.model,
            limits=source.limits,
            checkpoint_bytes=source.checkpoint_bytes,
        )

    def on(self, kind: type[EventT], handler: Callable[[EventT], None]) -> Callable[[], None]:
        """Call `handler` for every event of a kind; returns a function that ends this.

        Raises:
            ConfigError: CONFIG_INVALID when the kind is no class of events, or the handler no
                function.

        """
        check_handler(kind, handler)

        def call(event: Event) -> None:
            if isinstance(event, kind):
                handler(event)

        self._handlers.append(call)
        self.has_handlers = True

        def remove() -> None:
            self._handlers.remove(call)
            self.has_handlers = bool(self._handlers)

        return remove

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
            ProviderError: PROTOCOL when the answer cannot be kept, or exceeds a bound of `Limits`.

        """
        if self._busy:
            raise SessionError(
                ErrorCode.STREAM_BUSY, "this processor is already processing another stream"
            )
        self._busy = True
        out: list[Event]
        source = AnswerSource(stamp=Stamp(self._clock), provider=provider, model=model)
        answer = self.begin(source)
        try:
            async for batch in stream:
                out = []
                answer.feed(batch, out)
                self.show(out)
                if answer.failure is not None:
                    raise answer.failure
        finally:
            self._busy = False
            out = []
            # Handlers get the ends of open parts also when the stream fails.
            answer.close(out)
            self.show(out)
        finished = answer.finished
        return ProcessedStream(
            parts=answer.parts,
            finished=finished,
            usage=finished.usage if finished else Usage(),
        )

    def show(self, events: Sequence[Event]) -> None:
        """Give events to the handlers, in order."""
        if self._handlers:
            for event in events:
                for handler in self._handlers:
                    handler(event)
