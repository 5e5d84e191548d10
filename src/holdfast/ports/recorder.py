"""The port through which the engine makes things happen for everyone at once."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.vocabulary.events import Event, LiveEvent


class Recorder(Protocol):
    """Writes entries to the log and shows events to consumers, in one order.

    - Entries among `events` are durable, and folded into the conversation, before any of the
      events is shown.
    - Events are shown in the order they were recorded, whoever recorded them.
    - It returns once the consumer that pulls has room again; cancelling that wait loses nothing.
    - What was recorded first is in the log first, also when two callers record at the same time: a
      decision that is made before the first wait rests on everything recorded before it.
    - A store that fails raises a `StoreError`; nothing of the batch is shown.
    """

    async def record(self, events: Sequence[Event]) -> None:
        """Make `events` durable, then visible."""
        ...

    def show(self, events: Sequence[LiveEvent]) -> None:
        """Show live-only events at once, without waiting for anything."""
        ...
