"""Aggregators: text, reasoning and tool calls put together from deltas; each usable alone."""

import msgspec

from haptera.model.events import Event, ReasoningDelta, TextDelta, ToolInputDelta
from haptera.model.ids import CallId, PartId, new_id
from haptera.model.json_types import JsonObject, is_too_deep
from haptera.model.log.tools import ToolEnded
from haptera.model.log.turns import PartEnded, PartStarted, TurnDiscarded, TurnStarted
from haptera.model.parts import CompactionPart, ReasoningPart, TextPart, ToolCallPart

_PLAIN_ARGUMENTS = msgspec.json.Decoder()


MANY_PIECES = 512
"""How many pieces are kept apart; a short string takes ten times the space of its text."""


class GrowingText:
    """Text that arrives in pieces. Knows how much of it was handed to the log already.

    Pieces are joined now and then, each of them twice at most, so that the whole takes little more
    space than its text. What was handed to the log shares its memory with the log.
    """

    __slots__ = ("_blocks", "_saved_blocks", "length", "pieces", "saved")

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self.pieces: list[str] = []
        """The last pieces. What appends to it by itself adds to `length` and calls `compact`."""
        self._saved_blocks = 0
        self.length = 0
        self.saved = 0

    def add(self, text: str) -> int:
        """Append a piece; returns the offset at which it begins."""
        offset = self.length
        self.pieces.append(text)
        self.length = offset + len(text)
        if len(self.pieces) > MANY_PIECES:
            self.compact()
        return offset

    def compact(self) -> None:
        """Join the pieces."""
        if self.pieces:
            self._blocks.append("".join(self.pieces))
            self.pieces.clear()

    def whole(self) -> str:
        """Return all of the text."""
        return "".join((*self._blocks, *self.pieces))

    def unsaved(self) -> str:
        """Return the text from `saved` on."""
        text = "".join((*self._blocks[self._saved_blocks :], *self.pieces))
        # The joined text replaces its pieces, so that the log and the answer share one string.
        self._blocks[self._saved_blocks :] = [text]
        self.pieces.clear()
        return text

    def mark_saved(self) -> None:
        """Note that everything so far is in the log."""
        if self.pieces:
            self.unsaved()
        self._saved_blocks = len(self._blocks)
        self.saved = self.length


class TextAggregator:
    """Puts text parts together, each under its id."""

    def __init__(self) -> None:
        self._texts: dict[str, GrowingText] = {}

    def start(self, key: str) -> None:
        """Begin a part; beginning it twice changes nothing."""
        self._texts.setdefault(key, GrowingText())

    def add(self, key: str, text: str) -> int | None:
        """Append to a part; returns the offset, or None when no such part was begun."""
        growing = self._texts.get(key)
        return None if growing is None else growing.add(text)

    def get(self, key: str) -> str | None:
        """Return a part's text so far."""
        growing = self._texts.get(key)
        return None if growing is None else growing.whole()

    def all(self) -> dict[str, str]:
        """Return every part's text so far."""
        return {key: growing.whole() for key, growing in self._texts.items()}

    def complete(self, key: str) -> str | None:
        """End a part and return its text."""
        growing = self._texts.pop(key, None)
        return None if growing is None else growing.whole()


class ReasoningAggregator(TextAggregator):
    """Puts reasoning together, by id: several trains of thought may run side by side."""


class ToolCallAggregator:
    """Puts tool calls together: the JSON text in pieces, parsed once when it is complete."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._inputs: dict[str, GrowingText] = {}

    def start(self, call_id: str, name: str) -> None:
        """Begin a call; beginning it twice changes nothing."""
        self._names.setdefault(call_id, name)
        self._inputs.setdefault(call_id, GrowingText())

    def add(self, call_id: str, text: str) -> int | None:
        """Append argument text; returns the offset, or None when no such call was begun."""
        growing = self._inputs.get(call_id)
        return None if growing is None else growing.add(text)

    def pending(self) -> tuple[str, ...]:
        """Return the ids of calls that are not complete."""
        return tuple(self._inputs)

    def complete(self, call_id: str) -> ToolCallPart | None:
        """End a call and parse its arguments; the call is forgotten then."""
        growing = self._inputs.pop(call_id, None)
        if growing is None:
            return None
        return finish_call(self._names.pop(call_id), growing.whole(), call_id=CallId(call_id))


class AnswerAggregators:
    """All aggregators, fed by events: subscribe it once to a channel or a stream processor.

    Holds what the turn that runs, or ran last, has said so far, and the tool calls of the query
    that are complete and have no result yet. A new turn, and one that is discarded, clear what was
    said.
    """

    def __init__(self) -> None:
        self._clear()
        self.running_calls: dict[CallId, ToolCallPart] = {}
        """The calls whose arguments are complete, until they have a result or fail."""

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case TextDelta(part_id=key, text=text):
                self.text.add(key, text)
            case ReasoningDelta(part_id=key, text=text):
                self.reasoning.add(key, text)
            case ToolInputDelta(part_id=key, text=text):
                self.tool_inputs.add(key, text)
            case PartStarted():
                self._start(event)
            case PartEnded(part=ToolCallPart() as call, part_id=key):
                self.tool_inputs.complete(key)
                self.running_calls[call.call_id] = call
            case ToolEnded(call_id=call_id):
                self.running_calls.pop(call_id, None)
            case TurnStarted() | TurnDiscarded():
                self._clear()

    def _start(self, started: PartStarted) -> None:
        if started.part_kind == "text":
            self.text.start(started.part_id)
        elif started.part_kind == "reasoning":
            self.reasoning.start(started.part_id)
        elif started.part_kind == "tool_call":
            self.tool_inputs.start(started.part_id, started.name or "")

    def _clear(self) -> None:
        self.text = TextAggregator()
        self.reasoning = ReasoningAggregator()
        self.tool_inputs = ToolCallAggregator()


def finish_call(
    name: str,
    text: str,
    *,
    call_id: CallId | None = None,
    part_id: PartId | None = None,
    native: JsonObject | None = None,
) -> ToolCallPart:
    """Make a tool call from its complete argument text; no text means no arguments.

    Text that is not a JSON object, or one with too many levels, is kept as `invalid`: such a call
    is answered, never run.
    """
    invalid: str | None = None
    arguments: object = {}
    if text.strip():
        try:
            # `replace`, because a lone surrogate has no UTF-8. It must not fail the whole answer.
            arguments = _PLAIN_ARGUMENTS.decode(text.encode("utf-8", "replace"))
        # msgspec raises RecursionError for JSON that is nested too deeply for it.
        except (msgspec.DecodeError, RecursionError):
            invalid = text
    if not isinstance(arguments, dict) or is_too_deep(arguments):
        arguments, invalid = {}, text
    return ToolCallPart(
        id=part_id,
        call_id=call_id or CallId(new_id("call")),
        name=name,
        arguments=arguments,
        invalid=invalid,
        native=native,
    )


def finish_text(
    kind: str, text: str, *, part_id: PartId, signature: str | None, native: JsonObject | None
) -> TextPart | ReasoningPart | CompactionPart:
    """Make a text-like part from (the rest of) its text."""
    if kind == "reasoning":
        return ReasoningPart(id=part_id, text=text, signature=signature, native=native)
    if kind == "compaction":
        return CompactionPart(id=part_id, text=text, native=native)
    return TextPart(id=part_id, text=text, native=native)
