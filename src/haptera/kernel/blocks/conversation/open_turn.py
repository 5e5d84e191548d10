"""An answer that is still being written, as far as the log knows it."""

from haptera.model.entries import (
    PartCheckpoint,
    PartEnded,
    PartStarted,
    TurnEnded,
    TurnStarted,
)
from haptera.model.ids import PartId
from haptera.model.messages import AnswerStop, AssistantMessage
from haptera.model.part_texts import PartTexts
from haptera.model.parts import CompactionPart, Part, ReasoningPart, TextPart
from haptera.model.stream_parts import FinishKind

_STOPS: dict[FinishKind, AnswerStop] = {
    "stop": "complete",
    "tool_calls": "tool_calls",
    "length": "max_tokens",
    "context_window": "max_tokens",
    "refusal": "refusal",
    "pause": "pause",
    "compaction": "compaction",
    "other": "complete",
}


class OpenTurn:
    """Collects the parts of one answer from part entries.

    Owns the order and the kinds of the parts; `PartTexts` puts their text together.
    """

    __slots__ = ("_composed", "_parts", "_texts", "started")

    def __init__(self, started: TurnStarted) -> None:
        self.started = started
        self._parts: dict[PartId, Part | PartStarted] = {}
        """In their order; a part that has not ended is the entry that began it."""
        self._texts = PartTexts()
        self._composed: tuple[PartEnded, PartEnded] | None = None
        """The last entry that was composed: it is shown first and applied next."""

    def apply(self, entry: PartStarted | PartCheckpoint | PartEnded) -> None:
        """Begin a part, add an increment to it, or complete it."""
        if isinstance(entry, PartStarted):
            self._parts[entry.part_id] = entry
        elif isinstance(entry, PartEnded):
            self._parts[entry.part_id] = self.compose(entry).part
            self._texts.drop(entry.part_id)
            self._composed = None
        else:
            self._texts.add(entry)

    def compose(self, entry: PartEnded) -> PartEnded:
        """Return the entry with the whole part, as consumers see it."""
        if not entry.offset:
            return entry
        if self._composed is None or self._composed[0] is not entry:
            self._composed = entry, self._texts.compose(entry)
        return self._composed[1]

    def message(self, ended: TurnEnded | None = None) -> AssistantMessage | None:
        """Return the answer so far, or None when there is nothing worth keeping.

        Without the entry that ends it, the answer was cut off.

        A tool call counts only when it is complete. An interrupted answer that holds nothing but
        reasoning is nothing: no provider takes it back.
        """
        parts = self._kept_parts()
        interrupted = ended is None or ended.interrupted
        if not parts or (interrupted and all(isinstance(part, ReasoningPart) for part in parts)):
            return None
        return AssistantMessage(
            id=self.started.message_id,
            parts=parts,
            query_id=self.started.query_id,
            turn_id=self.started.turn_id,
            provider=self.started.provider,
            model=self.started.model,
            time=self.started.time if ended is None else ended.time,
            usage=None if ended is None else ended.usage,
            cost=None if ended is None else ended.cost,
            stop_reason=_stop_of(ended),
            finish_reason=None if ended is None else ended.finish_reason,
            interrupted=interrupted,
        )

    def _kept_parts(self) -> tuple[Part, ...]:
        kept: list[Part] = []
        for item in self._parts.values():
            part = self._unfinished(item) if isinstance(item, PartStarted) else item
            if part is not None and not _is_empty(part):
                kept.append(part)
        return tuple(kept)

    def _unfinished(self, started: PartStarted) -> Part | None:
        text = self._texts.text_of(started.part_id)
        match started.part_kind:
            case "text":
                return TextPart(id=started.part_id, text=text)
            case "reasoning":
                return ReasoningPart(id=started.part_id, text=text)
            # Half a summary would be sent instead of all that came before it, and half a call is
            # none.
            case _:
                return None


def _stop_of(ended: TurnEnded | None) -> AnswerStop:
    if ended is None or ended.finish is None:
        return "interrupted"
    return _STOPS[ended.finish]


def _is_empty(part: Part) -> bool:
    if isinstance(part, ReasoningPart):
        # Providers that hide their reasoning send no text, but want the signature or their own form
        # back.
        return not part.text and part.signature is None and part.native is None
    return isinstance(part, (TextPart, CompactionPart)) and not part.text
