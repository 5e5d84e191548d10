"""What logs say: a session folded with what it inherits, where a message is, what was left out."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.ids import MessageId, SessionId
from haptera.model.log.carried_state import fold_from_compaction
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.fold import fold_at, fold_entries
from haptera.model.log.fold_points import FoldPoint
from haptera.model.log.history import HistoryEdited
from haptera.model.log.paths import current_path
from haptera.model.log.queries import InputPromoted, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FORMAT_VERSION, SessionOpened
from haptera.model.log.tools import ToolEnded
from haptera.model.log.turns import TurnEnded
from haptera.model.messages import Message
from haptera.model.parts import CompactionPart
from haptera.ports.session_store import SessionLog

MAX_GENERATIONS = 10_000
"""How many parents, one above the other, a session may have: each is read when it is opened."""

_AT_ONCE = 1_000
"""How many entries are folded on an event loop: it takes a few milliseconds."""

ValueT = TypeVar("ValueT")

_ADDING = (QueryStarted, InputPromoted, TurnEnded, ToolEnded, HistoryEdited)
"""What can add to the last message, or complete it."""


def left_out_by(compaction: Compaction, before: Sequence[Entry]) -> tuple[Message, ...]:
    """Return what was sent before a compaction and is not sent after it."""
    fold = SessionFold()
    for entry in before:
        fold.apply(entry)
    if compaction.strategy == "server":
        return _before_own_summary(fold.messages())
    # `wire_view` has every result as it was, also those that an earlier compaction has pruned.
    view = fold.conversation.wire_view() if compaction.strategy == "prune" else fold.settled_view()
    indexes = [index for index, item in enumerate(view) if item.id == compaction.kept_from]
    return view[: indexes[-1]] if indexes else view


def _before_own_summary(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages between a provider's last summary and the one before it."""
    summaries = [
        index
        for index, message in enumerate(messages)
        if any(isinstance(part, CompactionPart) for part in message.parts)
    ]
    # With a single summary it begins at the first message.
    start, end = [0, *summaries][-2:] if summaries else (0, 0)
    return tuple(messages[start:end])


def seq_of_message(
    entries: Sequence[Entry], message_id: MessageId, *, inherited: Sequence[Entry] = ()
) -> int | None:
    """Return the `seq` after which a message is the last one; None when there is no such message.

    A message that the session began with is at its opening. What was rewound is found, too, unless
    the message is still there.
    """
    for path in (current_path(entries), entries):
        seq = _last_seq(path, message_id, inherited)
        if seq is not None:
            return seq
    return None


def seq_after_point(
    fold: SessionFold, point: FoldPoint, entries: Sequence[Entry], *, message_id: MessageId
) -> int | None:
    """Return the same by the entries after one of a session's points.

    None when there is no such message on the current path after it.
    """
    return last_seq_in(fold_at(fold, point), current_path(entries), message_id)


def _last_seq(
    entries: Sequence[Entry], message_id: MessageId, inherited: Sequence[Entry]
) -> int | None:
    fold = SessionFold()
    for entry in inherited:
        fold.apply(entry)
    return last_seq_in(fold, entries, message_id)


def last_seq_in(fold: SessionFold, entries: Sequence[Entry], message_id: MessageId) -> int | None:
    """Fold entries, and return the `seq` of the last one after which a message is the last."""
    found: int | None = None
    cut_off: int | None = None
    for entry in entries:
        fold.apply(entry)
        turn = fold.open_turn
        if turn and turn.started.message_id == message_id and entry.turn_id == turn.started.turn_id:
            cut_off = entry.seq or cut_off
        if isinstance(entry, SessionOpened):
            began_with = [item.id for item in fold.messages()]
            found = entry.seq if message_id in began_with else None
        # What `current_path` takes over from other paths has no `seq`: one cannot go back to it.
        elif entry.seq and isinstance(entry, _ADDING) and _ends_with(fold, message_id):
            found = entry.seq
    # An answer that was cut off has no end, also where its query was carried on behind it.
    if found is None and cut_off and any(item.id == message_id for item in fold.messages()):
        return cut_off
    return found


def _ends_with(fold: SessionFold, message_id: MessageId) -> bool:
    tip = fold.conversation.tip
    if tip is None:
        return False
    # The results of open calls are shown as a message before the conversation has it.
    return tip.id == message_id or (bool(fold.calls) and f"{tip.id}_results" == message_id)


async def beside_the_loop(held: Sequence[object] | int, work: Callable[[], ValueT]) -> ValueT:
    """Return what is computed of entries or messages; of many on a thread: no loop stops for it."""
    amount = held if isinstance(held, int) else _amount(held)
    return work() if amount <= _AT_ONCE else await asyncio.to_thread(work)


def _amount(entries: Sequence[object]) -> int:
    """Return how many entries or messages there are."""
    first = entries[0] if entries else None
    # A session of another program is one entry, with all that was said.
    history = len(first.history) if isinstance(first, SessionOpened) else 0
    return len(entries) + history


async def let_go(items: list[ValueT]) -> None:
    """Forget entries or messages, a few at a time.

    Freeing a list is one step of the interpreter, for which all threads wait: of a million entries
    it takes a tenth of a second.
    """

    def clear() -> None:
        while items:
            del items[-_AT_ONCE:]

    await beside_the_loop(items, clear)


async def fold_log(log: SessionLog, entries: Sequence[Entry]) -> SessionFold:
    """Fold a session's entries on top of what it inherits.

    Raises:
        StoreError: VERSION_UNSUPPORTED when a newer version wrote the session.

    """
    opened = entries[0] if entries else None
    refuse_newer(opened)
    inherited = await inherited_entries(log, opened)
    longer = max(entries, inherited, key=_amount)
    return await beside_the_loop(longer, lambda: fold_entries(entries, inherited=inherited))


def refuse_newer(opened: Entry | None) -> None:
    """Refuse a session that a newer version wrote; raises VERSION_UNSUPPORTED."""
    if isinstance(opened, SessionOpened) and opened.format > FORMAT_VERSION:
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"this session was written in format {opened.format}; "
            f"this version reads up to {FORMAT_VERSION}",
        )


async def read_for_opening(
    log: SessionLog, session_id: SessionId, compacted: tuple[int, int] | None
) -> tuple[list[Entry], SessionFold | None]:
    """Read what is needed to open a session: its opening and, after a compaction, what follows.

    Returns the entries, and the session if they were not all read; without the entries before the
    compaction it cannot be made from them as usual.

    Raises:
        StoreError: VERSION_UNSUPPORTED when a newer version wrote the session.

    """
    if compacted is not None:
        seq, reads_from = compacted
        opening = await log.read(session_id, limit=1)
        # `read` leaves a damaged opening out: then all entries are folded as usual.
        if opening and isinstance(opening[0], SessionOpened) and reads_from > opening[0].seq:
            refuse_newer(opening[0])
            entries = [*opening, *await log.read(session_id, after=reads_from - 1)]
            fold = await beside_the_loop(entries, partial(fold_from_compaction, entries, seq))
            if fold is not None:
                return entries, fold
    return await log.read(session_id), None


async def inherited_entries(log: SessionLog, opened: Entry | None) -> list[Entry]:
    """Read what a fork has from its parent, which may be a fork itself, and so on.

    Raises:
        StoreError: CORRUPT when a parent is gone or shorter than what was forked from it, when
            parents go in a circle, or when there are more of them than `MAX_GENERATIONS`.

    """
    generations: list[Sequence[Entry]] = []
    # A dictionary as an ordered set: the error shows the circle in its order.
    line: dict[SessionId, None] = {}
    while isinstance(opened, SessionOpened) and opened.parent is not None:
        line[opened.session_id] = None
        _refuse_endless(line, opened.parent)
        line[opened.parent] = None
        entries = await _recorded_by_then(log, opened)
        path = partial(current_path, entries, through=opened.forked_at)
        generations.append(await beside_the_loop(entries, path))
        opened = entries[0]
    return [entry for own in reversed(generations) for entry in own]


async def _recorded_by_then(log: SessionLog, child: SessionOpened) -> list[Entry]:
    """Read what the parent of a fork had recorded when it was forked."""
    parent, at, head = child.parent or SessionId(""), child.forked_at or 0, child.parent_head
    # Logs of earlier versions do not name the head of the parent: all that it has counts then.
    entries = await log.read(parent, limit=None if head is None else max(at, head))
    if not entries:
        raise _corrupt(f"session {child.session_id} was forked from {parent}, which is gone")
    if not 0 < at <= entries[-1].seq:
        raise _corrupt(
            f"session {child.session_id} was forked from {parent} after entry {at}, "
            f"and that session has {entries[-1].seq}"
        )
    if head is None or entries[-1].seq <= max(at, head):
        return entries
    # `limit` counts readable entries, and so reaches past that `seq` where some are damaged.
    return [entry for entry in entries if entry.seq <= max(at, head)]


def _refuse_endless(line: dict[SessionId, None], parent: SessionId) -> None:
    """Refuse a line of parents that comes back to itself, or is too long to be meant."""
    if parent in line:
        names = list(line)
        circle = " -> ".join([*names[names.index(parent) :], parent])
        raise _corrupt(f"sessions were forked from each other in a circle: {circle}")
    if len(line) > MAX_GENERATIONS:
        raise _corrupt(f"more than {MAX_GENERATIONS:,} sessions were forked one from the other")


def _corrupt(message: str) -> StoreError:
    return StoreError(ErrorCode.CORRUPT, message)
