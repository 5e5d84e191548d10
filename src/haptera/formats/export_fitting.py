"""Export fitting: makes of the messages of a session what an API takes, before they are encoded.

Ids of calls become unique, tools get names that every API takes, and media that cannot be written
become a line of text.
"""

from collections.abc import Callable

from msgspec.structs import replace

from haptera.formats.forms import (
    UniqueCallIds,
    result_as_text,
    stand_in,
    tool_name,
    with_content,
)
from haptera.formats.values import SessionExport
from haptera.model.parts import (
    MediaPart,
    Part,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    reminder_text,
)


class ExportFitter:
    """Fits the parts of one export to an API. Owns the ids of calls across the conversation."""

    def __init__(
        self,
        export: SessionExport,
        *,
        takes_media: Callable[[MediaPart], bool],
        results_are_text: bool = False,
    ) -> None:
        """Begin an export; `takes_media` says which media the API takes where they have content."""
        self._export = export
        self._takes_media = takes_media
        self._results_are_text = results_are_text
        self._ids = UniqueCallIds()

    def fitted(self, part: Part) -> Part:
        """Return a part that the API takes; what only its own provider understands is gone."""
        match part:
            case TextPart():
                return part if part.native is None else TextPart(text=part.text)
            case ReminderPart(text=text):
                return TextPart(text=reminder_text(text))
            case MediaPart():
                return self._content(part)
            case ToolCallPart():
                return self.call(part)
            case ToolResultPart():
                return self.result(part)
            case _:
                return part

    def call(self, part: ToolCallPart) -> ToolCallPart:
        """Return a call with an id that no other has."""
        call_id = self._ids.of_call(part.call_id)
        return replace(part, call_id=call_id, name=tool_name(part.name), native=None)

    def result(self, part: ToolResultPart) -> ToolResultPart:
        """Return a result with the id of its call."""
        call_id = self._ids.of_result(part.call_id)
        if self._results_are_text:
            return as_text_alone(replace(part, call_id=call_id))
        return replace(part, call_id=call_id, content=tuple(map(self._content, part.content)))

    def _content(self, piece: ResultContent) -> ResultContent:
        if isinstance(piece, TextPart):
            return piece
        media = with_content(piece, self._export)
        has_content = bool(media.url) or (bool(media.data) and media.is_readable)
        return media if has_content and self._takes_media(media) else TextPart(text=stand_in(media))


def as_text_alone(part: ToolResultPart) -> ToolResultPart:
    """Return a result that is one text, for APIs that have no other field for how it ended."""
    return replace(part, outcome="ok", content=(TextPart(text=result_as_text(part)),))
