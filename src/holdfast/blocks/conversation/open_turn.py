"""An answer that is still being written, as far as the log knows it."""

from collections.abc import Iterator

import msgspec

from holdfast.vocabulary.entries import PartCheckpoint, PartEnded, PartStarted, TurnStarted
from holdfast.vocabulary.ids import PartId
from holdfast.vocabulary.messages import AssistantMessage
from holdfast.vocabulary.parts import CompactionPart, Part, ReasoningPart, TextPart
from holdfast.vocabulary.usage import Usage

_GrowingPart = TextPart | ReasoningPart | CompactionPart


class OpenTurn:
    """Collects the parts of one answer from part entries.

    Owns composition: text in the log is in increments, and here it becomes whole again.
    """

    def __init__(self, started: TurnStarted) -> None:
        self.started = started
        self._parts: dict[PartId, Part | None] = {}
        self._kinds: dict[PartId, str] = {}
        self._pieces: dict[PartId, list[str]] = {}
        self._composed: tuple[PartEnded, PartEnded] | None = None
        """The last entry that was composed: it is shown first and applied next."""

    def apply(self, entry: PartStarted | PartCheckpoint | PartEnded) -> None:
        """Begin a part, add an increment to it, or complete it."""
        match entry:
            case PartStarted(part_id=part_id):
                self._parts[part_id] = None
                self._kinds[part_id] = entry.part_kind
            case PartCheckpoint(part_id=part_id):
                self._pieces.setdefault(part_id, []).append(entry.text)
            case PartEnded(part_id=part_id):
                self._parts[part_id] = self.compose(entry).part
                self._pieces.pop(part_id, None)
                self._composed = None

    def compose(self, entry: PartEnded) -> PartEnded:
        """Return the entry with the whole part, as consumers see it."""
        if not entry.offset or not isinstance(entry.part, _GrowingPart):
            return entry
        if self._composed is not None and self._composed[0] is entry:
            return self._composed[1]
        text = "".join((*self._pieces.get(entry.part_id, ()), entry.part.text))
        whole = msgspec.structs.replace(
            entry, offset=0, part=msgspec.structs.replace(entry.part, text=text)
        )
        self._composed = entry, whole
        return whole

    def message(
        self,
        *,
        usage: Usage | None = None,
        finish_reason: str | None = None,
        interrupted: bool = False,
    ) -> AssistantMessage | None:
        """Return the answer so far, or None when there is nothing worth keeping.

        A tool call counts only when it is complete. An interrupted answer that holds nothing but
        reasoning is nothing: no provider takes it back.
        """
        parts = tuple(self._kept_parts())
        if not parts or (interrupted and all(isinstance(part, ReasoningPart) for part in parts)):
            return None
        return AssistantMessage(
            id=self.started.message_id,
            parts=parts,
            query_id=self.started.query_id,
            turn_id=self.started.turn_id,
            provider=self.started.provider,
            model=self.started.model,
            usage=usage,
            finish_reason=finish_reason,
            interrupted=interrupted,
        )

    def _kept_parts(self) -> Iterator[Part]:
        for part_id, part in self._parts.items():
            kept = part if part is not None else self._unfinished(part_id)
            if kept is not None and not _is_empty(kept):
                yield kept

    def _unfinished(self, part_id: PartId) -> Part | None:
        text = "".join(self._pieces.get(part_id, ()))
        match self._kinds[part_id]:
            case "text":
                return TextPart(id=part_id, text=text)
            case "reasoning":
                return ReasoningPart(id=part_id, text=text)
            case _:
                return None


def _is_empty(part: Part) -> bool:
    match part:
        case TextPart(text="") | CompactionPart(text=""):
            return True
        case ReasoningPart(text="", signature=None, native=None):
            return True
        case _:
            return False
