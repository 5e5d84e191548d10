"""What a log says of its messages and of the session as a whole: times, costs, sums."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Literal

from msgspec.structs import replace

from haptera.access.descriptions import MessageDescription, PartTimes, SessionStats
from haptera.model.believed_values import moment_of, summable_cost
from haptera.model.errors import ErrorReport
from haptera.model.ids import CallId, InputId, MessageId, PartId, QueryId
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputPromoted, InputQueued, QueryEnded, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.model.log.turns import PartEnded, PartStarted, TurnEnded, TurnStarted
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import CompactionPart, ReminderPart, ToolResultPart
from haptera.model.usage import add_costs

_SYNTHETIC = (ReminderPart, CompactionPart, ToolResultPart)
_NOTHING = SessionStats()


def stats_of(fold: SessionFold, entries: Sequence[Entry]) -> SessionStats:
    """Add up what a session has come to; `entries` are its own."""
    # A log without entries says nothing of a cost, and 0 would say that it is known.
    stats = SessionStats(cost=Decimal(0) if entries else None)
    for entry in _once(entries):
        stats += _counted(entry)
    return replace(stats, messages=len(fold.messages()))


def usage_of(
    entries: Sequence[Entry], by: Literal["day", "model"], *, model: str
) -> dict[str, SessionStats]:
    """Add up what a session used, for each day (UTC) or each model; without messages.

    `model` is that of what was used before the first turn.
    """
    groups: dict[str, SessionStats] = {}
    for entry in _once(entries):
        if isinstance(entry, TurnStarted):
            model = f"{entry.provider}/{entry.model}"
        counted = _counted(entry)
        if counted != _NOTHING:
            # Most entries count for nothing; a key for them would list days and models without
            # numbers.
            key = model if by == "model" else _day_of(entry)
            groups[key] = groups.get(key, _NOTHING) + counted
    return groups


def _once(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries, but of a call that was run again when its query was resumed only one start."""
    begun: set[CallId] = set()
    for entry in entries:
        if isinstance(entry, TurnStarted):
            begun.clear()  # the calls of another answer
        elif isinstance(entry, ToolStarted):
            if entry.call_id in begun:
                continue
            begun.add(entry.call_id)
        yield entry


def _counted(entry: Entry) -> SessionStats:
    """Return what an entry adds."""
    match entry:
        case TurnEnded():
            return SessionStats(turns=1, usage=entry.usage, cost=summable_cost(entry.cost))
        case Compaction():  # its summary was asked for beside the turns
            return SessionStats(usage=entry.usage, cost=summable_cost(entry.cost))
        case ToolStarted():
            return SessionStats(tool_calls=1)
        case QueryEnded():
            return SessionStats(queries=1, duration_ms=entry.duration_ms)
    return _NOTHING


def _day_of(entry: Entry) -> str:
    return moment_of(entry.time).date().isoformat()


def described_messages(
    messages: Sequence[Message], entries: Sequence[Entry], *, folder: str
) -> list[MessageDescription]:
    """Describe messages by the entries that made them, also those of a fork's parents."""
    facts = _Facts(entries)
    described: list[MessageDescription] = []
    for message in messages:
        described.append(
            MessageDescription(
                message=message,
                time=facts.time_of(message),
                parent=described[-1].message.id if described else None,
                query_id=message.query_id,
                folder=folder,
                cost=facts.costs.get(message.id),
                usage=message.usage if isinstance(message, AssistantMessage) else None,
                error=facts.errors.get(message.query_id) if message.query_id else None,
                parts=tuple(facts.parts.get(message.id, {}).values()),
                synthetic=bool(message.parts)
                and all(isinstance(part, _SYNTHETIC) for part in message.parts),
            )
        )
    return described


class _Facts:
    """What the entries of a log say of messages, by message."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.costs: dict[MessageId, Decimal | None] = {}
        self.errors: dict[QueryId, ErrorReport] = {}
        self.parts: dict[MessageId, dict[PartId, PartTimes]] = {}
        self._times: dict[MessageId, int] = {}
        self._by_query: dict[QueryId, int] = {}
        self._queued: dict[InputId, Message] = {}
        self._open: MessageId | None = None
        for entry in entries:
            self._take(entry)

    def time_of(self, message: Message) -> int:
        """Return when a message was complete; 0 when the log does not say."""
        time = self._times.get(message.id)
        if time is None and message.query_id is not None:
            time = self._by_query.get(message.query_id)
        return time or 0

    def _take(self, entry: Entry) -> None:
        match entry:
            case InputQueued(input_id=input_id, message=message):
                self._queued[input_id] = message
            case InputPromoted(input_id=input_id):
                self._begin_query(entry, self._queued.get(input_id))
            case QueryStarted(message=message):
                self._begin_query(entry, message)
            case TurnStarted(message_id=message_id):
                self._open = message_id
            case PartStarted() | PartEnded():
                self._time_part(entry)
            case TurnEnded(message_id=message_id, cost=cost):
                self._times[message_id] = entry.time
                self.costs[message_id] = add_costs(self.costs.get(message_id, Decimal(0)), cost)
            case ToolEnded():
                # The id that a conversation gives the message of an answer's results.
                self._times[MessageId(f"{self._open}_results")] = entry.time
            case QueryEnded(error=ErrorReport() as error, query_id=str() as query_id):
                self.errors[query_id] = error
            case _:
                pass

    def _time_part(self, entry: PartStarted | PartEnded) -> None:
        times = self.parts.setdefault(self._open or MessageId(""), {})
        if isinstance(entry, PartStarted):
            times[entry.part_id] = PartTimes(part_id=entry.part_id, started=entry.time)
        elif entry.part_id in times:
            times[entry.part_id] = replace(times[entry.part_id], ended=entry.time)

    def _begin_query(self, entry: Entry, message: Message | None) -> None:
        if message is not None:
            self._times[message.id] = entry.time
        if entry.query_id is not None:
            # The first time stays: a prompt that joins a running query is promoted with the id of
            # that query.
            self._by_query.setdefault(entry.query_id, entry.time)
