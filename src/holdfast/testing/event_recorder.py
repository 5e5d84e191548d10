"""EventRecorder: collects events and puts together what a consumer would show."""

from collections import Counter

from holdfast.vocabulary.entries import PartEnded, QueryEnded, TurnDiscarded, TurnStarted
from holdfast.vocabulary.events import Event, TextDelta
from holdfast.vocabulary.parts import TextPart


class EventRecorder:
    """A consumer that remembers. It shows text as a careful consumer would: by part and offset."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._shown: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        self.events.append(event)
        match event:
            case TextDelta(part_id=part_id, offset=offset, text=text):
                self._shown[part_id] = self._shown.get(part_id, "")[:offset] + text
            case PartEnded(part_id=part_id, part=TextPart(text=text)):
                self._shown[part_id] = text
            case TurnStarted() | TurnDiscarded():
                self._shown.clear()

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events, in order."""
        return [event.kind for event in self.events]

    @property
    def counts(self) -> Counter[str]:
        """How often each kind came."""
        return Counter(self.kinds)

    @property
    def text(self) -> str:
        """The text that is on the screen now."""
        return "".join(self._shown.values())

    @property
    def ends(self) -> list[QueryEnded]:
        """The terminal events; a query has exactly one."""
        return [event for event in self.events if isinstance(event, QueryEnded)]
