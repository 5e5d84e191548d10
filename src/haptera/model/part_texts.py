"""Puts the text of streamed parts together from the increments that a log holds.

A module of its own because rooms on different levels need the same composition: the fold of a
session, its observers, and the search of stores.
"""

import msgspec

from haptera.model.entries import PartCheckpoint, PartEnded
from haptera.model.ids import PartId
from haptera.model.parts import CompactionPart, ReasoningPart, TextPart

GrowingPart = TextPart | ReasoningPart | CompactionPart
"""Parts whose text a log holds in increments."""


class PartTexts:
    """The text so far of the parts that are still growing.

    Owns composition only: does not know the order or the kind of parts.
    """

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[PartId, list[str]] = {}

    def add(self, entry: PartCheckpoint) -> None:
        """Add an increment."""
        # Joined when it is asked for: to join at each increment would copy all text before it each
        # time.
        self._pieces.setdefault(entry.part_id, []).append(entry.text)

    def __contains__(self, part_id: PartId) -> bool:
        return part_id in self._pieces

    def text_of(self, part_id: PartId) -> str:
        """Return the text of a part so far."""
        return "".join(self._pieces.get(part_id, ()))

    def compose(self, entry: PartEnded) -> PartEnded:
        """Return the entry of an ended part with the whole part, as consumers see it."""
        if not entry.offset or not isinstance(entry.part, GrowingPart):
            return entry
        text = "".join((*self._pieces.get(entry.part_id, ()), entry.part.text))
        part = msgspec.structs.replace(entry.part, text=text)
        raw = None if entry.raw is None else _whole(entry.raw, text)
        return msgspec.structs.replace(entry, offset=0, part=part, raw=raw)

    def drop(self, part_id: PartId) -> None:
        """Forget a part that has ended."""
        self._pieces.pop(part_id, None)


def _whole(raw: msgspec.Raw, text: str) -> msgspec.Raw:
    """Put the whole text into a stored entry, and keep what else it holds."""
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    part: dict[str, object] = {**msgspec.json.decode(fields["part"], type=dict[str, msgspec.Raw])}
    fields.pop("offset", None)
    return msgspec.Raw(msgspec.json.encode({**fields, "part": {**part, "text": text}}))
