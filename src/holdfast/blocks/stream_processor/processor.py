"""StreamProcessor: puts the answers of whole streams together, with handlers for their events."""

from collections.abc import AsyncIterable, Callable, Sequence
from typing import TypeVar

import msgspec

from holdfast.blocks.stream_processor.answer_assembler import AnswerAssembler
from holdfast.ports.clock import Clock, Stamp
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.events import Event
from holdfast.vocabulary.parts import CompactionPart, Part
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

    For programs that use no session: it runs a stream to its end. Owns nothing of any stream
    between two of them: what belongs to one is in its `AnswerAssembler`, which a turn of a session
    uses directly.
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
            raise SessionError(ErrorCode.STREAM_BUSY, "this processor is at work on another stream")
        self._busy = True
        out: list[Event]
        answer = AnswerAssembler(stamp=Stamp(self._clock), provider=provider, model=model)
        try:
            async for batch in stream:
                out = []
                answer.feed(batch, out)
                self._emit(out)
                if answer.failure is not None:
                    raise answer.failure
        finally:
            self._busy = False
            out = []
            answer.close(out)
            self._emit(out)
        finished = answer.finished
        return ProcessedStream(
            parts=answer.parts,
            finished=finished,
            usage=finished.usage if finished else Usage(),
        )

    def _emit(self, events: Sequence[Event]) -> None:
        """Give events to the handlers, in order."""
        if self._handlers:
            for event in events:
                for handler in self._handlers:
                    handler(event)
