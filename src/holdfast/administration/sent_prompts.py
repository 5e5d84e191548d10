"""SentPrompts: where logs have the prompts that were sent, by the ids of their messages."""

from collections import OrderedDict

import msgspec

from holdfast.administration.descriptions import FoundPrompt
from holdfast.ports.session_store import SessionLog, SessionRecord
from holdfast.vocabulary.entries import Entry, InputQueued, QueryStarted
from holdfast.vocabulary.ids import MessageId, SessionId
from holdfast.vocabulary.messages import UserMessage

_MOST_SESSIONS = 32
"""How many logs are remembered, those that were asked for last."""


class _Read(msgspec.Struct, kw_only=True):
    """What was read of one log so far."""

    created: int
    head: int = 0
    places: dict[MessageId, int] = msgspec.field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        """Note an entry; of two with one message the first counts."""
        self.head = max(self.head, entry.seq)
        if (message := _prompt_of(entry)) is not None:
            self.places.setdefault(message.id, entry.seq)


class SentPrompts:
    """Finds prompts by the ids of their messages. Owns only what it remembers of the logs.

    A sender that gives its messages ids asks before each of them, so every entry is read once.
    """

    def __init__(self) -> None:
        self._logs: OrderedDict[SessionId, _Read] = OrderedDict()

    async def find(
        self, log: SessionLog, record: SessionRecord, message_id: str
    ) -> FoundPrompt | None:
        """Find the prompt with this id in the log of a session; None without one."""
        known = self._known(record)
        for entry in await log.read(record.id, after=known.head):
            known.take(entry)
        seq = known.places.get(MessageId(message_id))
        for entry in () if seq is None else await log.read(record.id, after=seq - 1, limit=1):
            message = _prompt_of(entry)
            if message is not None and message.id == message_id:
                query_id = message.query_id or entry.query_id
                return FoundPrompt(seq=entry.seq, query_id=query_id, parts=message.parts)
        return None

    def _known(self, record: SessionRecord) -> _Read:
        known = self._logs.get(record.id)
        # Another session may have been made with the id of one that was deleted.
        if known is None or known.created != record.created or known.head > record.head:
            known = self._logs[record.id] = _Read(created=record.created)
        self._logs.move_to_end(record.id)
        while len(self._logs) > _MOST_SESSIONS:
            self._logs.popitem(last=False)
        return known


def _prompt_of(entry: Entry) -> UserMessage | None:
    return entry.message if isinstance(entry, InputQueued | QueryStarted) else None
