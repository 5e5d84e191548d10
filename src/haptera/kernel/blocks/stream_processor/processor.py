"""StreamProcessor: stream parts become events and an answer, piece by piece."""

from collections.abc import AsyncIterable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from haptera.kernel.blocks.stream_processor.aggregators import (
    MANY_PIECES,
    GrowingText,
    finish_call,
    finish_text,
)
from haptera.model.errors import ErrorCode, ProviderError, SessionError
from haptera.model.events import (
    CompactionDelta,
    Delta,
    Event,
    ReasoningDelta,
    TextDelta,
    ToolInputDelta,
    check_handler,
)
from haptera.model.ids import CallId, PartId, new_id, new_part_id
from haptera.model.json_types import Json, JsonObject, is_too_deep, writable
from haptera.model.log.turns import PartCheckpoint, PartEnded, PartStarted
from haptera.model.parts import (
    CompactionPart,
    Part,
    PartKind,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
)
from haptera.model.settings import Limits
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.model.usage import Usage
from haptera.system.clock import Clock, Stamp

_DELTAS: dict[PartKind, type[Delta]] = {
    "text": TextDelta,
    "compaction": CompactionDelta,
    "reasoning": ReasoningDelta,
    "tool_call": ToolInputDelta,
}

_LIMITS = Limits()
_NO_BOUND = float("inf")


_encode = msgspec.json.Encoder().encode
_RECORDED_KINDS: tuple[type[StreamPart], ...] = (
    StreamOpened,
    PartOpened,
    PartClosed,
    PartOpaque,
    StreamFinished,
)
_READERS: dict[type, Callable[[bytes], StreamPart]] = {
    kind: msgspec.json.Decoder(kind).decode for kind in _RECORDED_KINDS
}


def _as_read_back(part: StreamPart) -> StreamPart:
    """Return a part as a log would give it back; raises PROTOCOL when it would not."""
    try:
        read = _READERS[type(part)](_encode(part))
    # KeyError: an object of any other class, also of a subclass, is no stream part that a log
    # knows.
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _unkeepable(part, str(error)) from error
    carried = read.payload if isinstance(read, PartOpaque) else getattr(read, "native", None)
    if carried is not None and is_too_deep(carried):
        raise _unkeepable(part, "it is nested too deeply")
    return read


def _plain_text(text: str) -> str:
    if not isinstance(text, str):
        raise _unkeepable(text, "a delta must be text")
    # `str` makes plain text of an instance of a subclass.
    return writable(str(text))


def _unkeepable(value: object, why: str) -> ProviderError:
    return ProviderError(
        ErrorCode.PROTOCOL,
        f"the provider sent a {type(value).__name__} that cannot be kept: {why}",
        basis="type",
    )


def _weight_of(value: Json) -> int:
    """Return about how many characters a value takes that did not come in pieces."""
    if isinstance(value, str):
        return len(value)
    try:
        return len(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return len(repr(value))


class _OpenPart(GrowingText):
    """A part that is still growing."""

    __slots__ = ("call_id", "delta", "id", "kind", "name")

    def __init__(self, opened: PartOpened, call_id: CallId | None) -> None:
        super().__init__()
        self.id = new_part_id()
        self.kind = opened.kind
        self.delta = _DELTAS[opened.kind]
        self.call_id = call_id
        self.name = opened.name


class AnswerAssembler:
    """Turns the stream parts of one answer into events, and remembers what is still open.

    Owns part ids, offsets, what has been saved to the log and the bounds of an answer. Deltas of
    parts that were never opened are dropped, as are parts opened twice.

    Structs do not check what they are made of, and a log that cannot be read back is lost. So what
    a client hands over is checked here, once, for every client: each stream part but the deltas is
    taken as it would be read back; of a delta, which is frequent, the text must be one. What does
    not pass, or exceeds a bound, is the `failure` of the answer. It counts after the events that
    came before it, and nothing more is taken in then.
    """

    def __init__(
        self,
        *,
        stamp: Stamp,
        provider: str,
        model: str,
        limits: Limits = _LIMITS,
        checkpoint_bytes: float = _NO_BOUND,
    ) -> None:
        self._stamp = stamp
        self._provider = provider
        self._model = model
        self._open: dict[str, _OpenPart] = {}
        self._call_ids: set[str] = set()
        self._parts: dict[PartId, Part | None] = {}
        """All parts in the order in which they began; None while one grows."""
        self._limits = limits
        bounds = (limits.part_characters, limits.answer_characters)
        self._watch_from = min((each for each in bounds if each is not None), default=_NO_BOUND)
        """With fewer characters than this nothing can be too long."""
        self._characters = 0
        self._loose_pieces = 0
        """How many pieces there may be that were not joined, at most."""
        self._longest = 0
        """Characters of the longest part that is complete."""
        self._checkpoint_bytes = checkpoint_bytes
        """So much text that is not in the log yet is saved without being asked for."""
        self.failure: ProviderError | None = None
        """PROTOCOL, for an answer that cannot be kept or exceeds a bound."""
        self.unsaved_bytes = 0
        self.finished: StreamFinished | None = None
        self.opened: StreamOpened | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The complete parts, in the order in which they began."""
        return tuple(part for part in self._parts.values() if part is not None)

    def feed(self, batch: Sequence[StreamPart], out: list[Event]) -> None:
        """Take in the parts of one read and append the events they make."""
        if self.failure is not None:
            return
        opened = self._open
        characters = beyond_ascii = 0  # of the deltas that are not counted yet
        try:
            for part in batch:
                # Deltas are most of the parts. They are counted in local variables; other parts
                # need the sums, because they are compared with the bounds.
                if type(part) is not PartDelta:
                    self._characters += characters
                    self.unsaved_bytes += characters + beyond_ascii
                    characters = beyond_ascii = 0
                    self._take(part, out)
                    if self.failure is not None:
                        break
                    continue
                growing, text = opened.get(part.key), part.text
                if growing is not None and text:
                    # Plain ASCII, which is most text, needs no check for what a log cannot keep.
                    if type(text) is not str or not text.isascii():
                        text = _plain_text(text)
                        beyond_ascii += len(text.encode("utf-8", "replace")) - len(text)
                    size, offset = len(text), growing.length
                    characters += size
                    # As in `GrowingText.add`, without the call: this is the way of every delta.
                    growing.length = offset + size
                    growing.pieces.append(text)
                    out.append(growing.delta(growing.id, offset, text))
        except ProviderError as failure:
            self.failure = failure
        self._characters += characters
        self.unsaved_bytes += characters + beyond_ascii
        self._loose_pieces += len(batch)
        if (
            self._loose_pieces > MANY_PIECES
            or self._characters > self._watch_from
            or self.unsaved_bytes >= self._checkpoint_bytes
        ):
            self._check_size(out)

    def _check_size(self, out: list[Event]) -> None:
        """Do what the size of the answer calls for: join pieces, give up, save."""
        self._loose_pieces = 0
        for growing in self._open.values():
            growing.compact()
        if self._characters > self._watch_from:
            self._find_excess()
        if self.unsaved_bytes >= self._checkpoint_bytes:
            self.checkpoint(out)

    def checkpoint(self, out: list[Event]) -> None:
        """Append entries that save what streamed since the last checkpoint.

        Arguments of tool calls are not saved in pieces: half of them are of no use.
        """
        for growing in self._open.values():
            if growing.kind != "tool_call" and growing.length > growing.saved:
                out.append(
                    PartCheckpoint(
                        **self._stamp(),
                        part_id=growing.id,
                        offset=growing.saved,
                        text=growing.unsaved(),
                    )
                )
                growing.mark_saved()
        self.unsaved_bytes = 0

    def close(self, out: list[Event]) -> None:
        """End what is still open: text as far as it came, tool calls not at all."""
        # A copy, because ending a part removes it.
        for key, growing in list(self._open.items()):
            if growing.kind != "tool_call":
                self._end(PartClosed(key=key), out)
        self._open.clear()

    def _find_excess(self) -> None:
        """Compare what came with the bounds."""
        limits, count = self._limits, self._characters
        excess: str | None = None
        if limits.answer_characters is not None and count > limits.answer_characters:
            excess = f"more than {limits.answer_characters} characters"
        elif limits.answer_parts is not None and len(self._parts) > limits.answer_parts:
            excess = f"more than {limits.answer_parts} parts"
        elif limits.part_characters is not None and count > limits.part_characters:
            # No part is longer than the whole: most answers need no look at their parts.
            longest = max((self._longest, *(each.length for each in self._open.values())))
            if longest > limits.part_characters:
                excess = f"a part of more than {limits.part_characters} characters"
        if excess is not None and self.failure is None:
            message = f"the answer holds {excess}; the rest of it was not read"
            provider = self._provider or None
            self.failure = ProviderError(ErrorCode.PROTOCOL, message, provider=provider)

    def _weigh(self, growing: int, *beside: Json) -> None:
        """Count a complete part: the text that grew, and what came `beside` it in one piece."""
        weight = sum(_weight_of(value) for value in beside if value is not None)
        self._characters += weight
        self._longest = max(self._longest, growing + weight)
        self._find_excess()

    def _take(self, part: StreamPart, out: list[Event]) -> None:
        part = _as_read_back(part)
        match part:
            case PartOpened():
                self._start(part, out)
            case PartClosed():
                self._end(part, out)
            case PartOpaque(payload=payload):
                self._carry(payload, out)
            case StreamFinished():
                self.finished = part
                # Some providers name the model that answered only at the end.
                if part.model and self.opened is not None:
                    self.opened = msgspec.structs.replace(self.opened, model=part.model)
                if self._open:
                    self.close(out)
            case StreamOpened():
                self.opened = part

    def _start(self, opened: PartOpened, out: list[Event]) -> None:
        if opened.key in self._open:
            return
        call_id = self._unique_call_id(opened.call_id) if opened.kind == "tool_call" else None
        growing = self._open[opened.key] = _OpenPart(opened, call_id)
        self._parts[growing.id] = None
        # Counted, too: otherwise parts that hold nothing but long names would exceed no bound.
        self._weigh(0, opened.name, call_id)
        out.append(
            PartStarted(
                **self._stamp(),
                part_id=growing.id,
                part_kind=growing.kind,
                call_id=growing.call_id,
                name=growing.name,
            )
        )

    def _end(self, closed: PartClosed, out: list[Event]) -> None:
        growing = self._open.pop(closed.key, None)
        if growing is None:
            return
        self._weigh(growing.length, closed.signature, closed.native)
        rest = self._rest_of(growing, closed)
        # Checkpoints in the log hold the beginning, so the entry holds the rest. The answer itself
        # needs all of it.
        whole = rest
        if growing.saved and not isinstance(rest, ToolCallPart):
            whole = msgspec.structs.replace(rest, text=growing.whole())
        self._parts[growing.id] = whole
        out.append(PartEnded(**self._stamp(), part_id=growing.id, offset=growing.saved, part=rest))

    def _rest_of(
        self, growing: _OpenPart, closed: PartClosed
    ) -> TextPart | ReasoningPart | CompactionPart | ToolCallPart:
        """Return the part with what the log does not have yet; a tool call is always whole."""
        if growing.kind == "tool_call":
            return finish_call(
                growing.name or "",
                growing.whole(),
                call_id=growing.call_id,
                part_id=growing.id,
                native=closed.native,
            )
        return finish_text(
            growing.kind,
            growing.unsaved(),
            part_id=growing.id,
            signature=closed.signature,
            native=closed.native,
        )

    def _carry(self, payload: JsonObject, out: list[Event]) -> None:
        part_id = new_part_id()
        part = ProviderPart(
            id=part_id,
            provider=self._provider,
            model=self._model,
            payload=payload,
        )
        self._parts[part_id] = part
        self._weigh(0, part.payload)
        out.append(PartStarted(**self._stamp(), part_id=part_id, part_kind="provider"))
        out.append(PartEnded(**self._stamp(), part_id=part_id, part=part))

    def _unique_call_id(self, given: str | None) -> CallId:
        """Keep the provider's id unless it is missing or was used in this answer already."""
        call_id = given or new_id("call")
        while call_id in self._call_ids:
            call_id = f"{call_id}_{len(self._call_ids)}"
        self._call_ids.add(call_id)
        return CallId(call_id)


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
