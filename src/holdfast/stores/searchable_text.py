"""The text of a log that people search for: what users said and what models answered."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.vocabulary.entries import (
    Entry,
    InputQueued,
    PartCheckpoint,
    PartEnded,
    PartStarted,
    QueryStarted,
    SessionOpened,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)
from holdfast.vocabulary.ids import PartId
from holdfast.vocabulary.parts import TextPart


@dataclass(slots=True)
class SearchableText:
    """Texts by the `seq` they are found under, and how far the log has been dealt with."""

    texts: list[tuple[int, str]] = field(default_factory=list)
    through: int = 0


def searchable_text_of(entries: Iterable[Entry], *, after: int) -> SearchableText:
    """Collect the texts of entries that follow `after`.

    A streamed answer is in pieces; its words are whole only once its turn has ended, so the log
    is dealt with up to the last turn that has.
    """
    found = SearchableText(through=after)
    answers = _Answers()
    for entry in entries:
        match entry:
            case TurnStarted():
                answers = _Answers(is_open=True)
            case TurnDiscarded():
                answers = _Answers()
            case PartStarted(part_kind="text"):
                answers.pieces[entry.part_id] = (entry.seq, "")
            case PartCheckpoint() | PartEnded():
                answers.take(entry)
            case TurnEnded():
                found.texts.extend(answers.texts())
                answers = _Answers()
            case _ if text := _whole_text_of(entry):
                found.texts.append((entry.seq, text))
        if not answers.is_open:
            found.through = entry.seq
    return found


def _whole_text_of(entry: Entry) -> str:
    """Return what an entry holds in one piece: a prompt, or the history that was restored."""
    match entry:
        case QueryStarted(message=message) | InputQueued(message=message):
            return message.text if message is not None else ""
        case SessionOpened(history=history):
            return "\n".join(message.text for message in history)
    return ""


@dataclass(slots=True)
class _Answers:
    """The text parts of one turn, put together."""

    is_open: bool = False
    pieces: dict[PartId, tuple[int, str]] = field(default_factory=dict)

    def take(self, entry: PartCheckpoint | PartEnded) -> None:
        """Add what an entry holds of a part."""
        added = entry.text if isinstance(entry, PartCheckpoint) else _text_of(entry)
        if entry.part_id in self.pieces:
            seq, text = self.pieces[entry.part_id]
            self.pieces[entry.part_id] = (seq, text[: entry.offset] + added)

    def texts(self) -> list[tuple[int, str]]:
        """Return what there is to find."""
        return [(seq, text) for seq, text in self.pieces.values() if text]


def _text_of(entry: PartEnded) -> str:
    return entry.part.text if isinstance(entry.part, TextPart) else ""
