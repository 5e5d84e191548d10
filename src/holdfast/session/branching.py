"""Branching: going back in a conversation, and where a fork of it begins and what it inherits."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from holdfast.blocks.conversation.carried_state import fold_from_compaction
from holdfast.blocks.conversation.fold import SessionFold, fold_entries
from holdfast.blocks.conversation.paths import current_path, last_rewind
from holdfast.ports.clock import Stamp
from holdfast.ports.session_store import SessionLog, Store
from holdfast.session.prompt_queue import PromptQueue
from holdfast.session.recorder import SessionRecorder
from holdfast.session.session_descriptions import Fork
from holdfast.vocabulary.compactions import Compaction
from holdfast.vocabulary.entries import (
    FORMAT_VERSION,
    EditAction,
    Entry,
    HistoryEdited,
    InputPromoted,
    QueryStarted,
    Rewound,
    SessionOpened,
    ToolEnded,
    TurnEnded,
)
from holdfast.vocabulary.errors import ErrorCode, SessionError, StoreError
from holdfast.vocabulary.ids import MessageId, SessionId
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.parts import CompactionPart

MAX_GENERATIONS = 10_000
"""How many parents, one above the other, a session may have: each is read when it is opened."""

Moving: TypeAlias = Callable[[Sequence[Entry], int], Awaitable[Sequence[Entry]]]
"""What is done besides when a conversation is moved, with its entries and the `seq` that it goes
back to; returns entries that are recorded with the move. If it raises, nothing is moved."""

_ADDING = (QueryStarted, InputPromoted, TurnEnded, ToolEnded, HistoryEdited)
"""What can add to the last message, or complete it."""


class Branches:
    """The points of one session's conversation that can be gone back to, or on from.

    Owns nothing: the log says where a message is. A conversation is moved only while no query
    runs in it.
    """

    def __init__(
        self,
        session_id: SessionId,
        *,
        store: Store,
        recorder: SessionRecorder,
        queue: PromptQueue,
        stamp: Stamp,
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._recorder = recorder
        self._queue = queue
        self._stamp = stamp

    async def rewind(self, to: str, *, moving: Moving | None = None) -> None:
        """Make a message the last one of the conversation.

        Raises:
            SessionError: BUSY while a query runs, MESSAGE_NOT_FOUND when there is no such message,
                NOT_FOUND when the session was deleted.

        """
        async with self._queue.at_rest():
            entries = await self.entries()
            place = await self.place_of(entries, to)
            also = await moving(entries, place) if moving is not None else ()
            await self._go_to(place, message_id=MessageId(to), also=also)

    async def undo_rewind(self, *, moving: Moving | None = None) -> None:
        """Take the last rewind back.

        Raises:
            SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound or the session
                was deleted.

        """
        async with self._queue.at_rest():
            entries = await self.entries()
            last = last_rewind(entries)
            if last is None:
                raise SessionError(ErrorCode.NOT_FOUND, "there is no rewind to undo")
            also = await moving(entries, last.seq - 1) if moving is not None else ()
            await self._go_to(last.seq - 1, also=also)

    async def fork(self, after: str | None) -> Fork:
        """Say where a branch begins: after a message (itself included), or at the end.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the
                session was deleted.

        """
        entries = await self.entries()
        place = entries[-1].seq if after is None else await self.place_of(entries, after)
        is_inherited = place == entries[0].seq
        return Fork(
            parent=self._session_id,
            forked_at=place,
            forked_after=MessageId(after) if after is not None and is_inherited else None,
            parent_head=entries[-1].seq,
            settings=self._recorder.fold.settings,
            native_parent=self._native_at(after),
            configured=tuple(sorted(self._recorder.fold.configured)),
        )

    def _native_at(self, after: str | None) -> str | None:
        """Return the native session if it ends where the branch begins."""
        fold, tip = self._recorder.fold, self._recorder.fold.conversation.tip
        at_the_end = fold.open_query is None and (after is None or (tip and tip.id == after))
        knows = fold.native.knows(fold.conversation.messages)
        return fold.native.session_id if at_the_end and knows else None

    async def whole_fold(self) -> SessionFold:
        """Return the session with all of its messages, also those before a compaction."""
        fold = self._recorder.fold
        if not fold.compacted.is_partial:
            return fold
        return await fold_log(self._store.log, await self.entries())

    async def _read_all(self) -> None:
        """Let the session have all of its messages, also those before a compaction."""
        if self._recorder.fold.compacted.is_partial:
            await self._recorder.refold(self.whole_fold)

    async def expand(self, compaction_id: str | None) -> tuple[Message, ...]:
        """Return the messages that a compaction left out; without an id those of the last one.

        Raises:
            SessionError: NOT_FOUND when there is no such compaction, or it left nothing out.

        """
        entries = await self.entries()
        last = self._recorder.fold.compacted.last
        wanted = compaction_id if compaction_id is not None else last.id if last else None
        inherited = await inherited_entries(self._store.log, entries[0])
        found = next((item for item in (*entries, *inherited) if item.id == wanted), None)
        if not isinstance(found, Compaction) or found.strategy in {"native", "none"}:
            told = f"there is no compaction {compaction_id!r} that left messages out"
            raise SessionError(ErrorCode.NOT_FOUND, told)
        if found in inherited:
            return left_out_by(found, inherited[: inherited.index(found)])
        path = current_path(entries, through=found.seq - 1)
        return left_out_by(found, (*inherited, *path))

    async def message(self, message_id: str) -> Message:
        """Return a message of the conversation.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message.

        """
        for message in (await self.whole_fold()).messages():
            if message.id == message_id:
                return message
        raise _no_message(message_id)

    async def edit(
        self, action: EditAction, target: str | None, message: Message | None = None
    ) -> None:
        """Remove, replace or add a message; what was there before stays in the log.

        Raises:
            SessionError: BUSY while a query runs or waits for an approval, MESSAGE_NOT_FOUND when
                there is no such message.

        """
        async with self._queue.at_rest():
            await self._read_all()
            fold = self._recorder.fold
            if fold.approvals:
                told = "a tool call waits for an approval; answer it before you edit the history"
                raise SessionError(ErrorCode.BUSY, told)
            if target is not None and all(item.id != target for item in fold.messages()):
                raise _no_message(target)
            edited = HistoryEdited(
                **self._stamp(),
                action=action,
                target=MessageId(target) if target is not None else None,
                message=message,
            )
            await self._recorder.commit([edited])

    async def entries(self) -> Sequence[Entry]:
        """Read the session's own log.

        Raises:
            SessionError: NOT_FOUND when the session was deleted.

        """
        entries = await self._store.log.read(self._session_id)
        if not entries:
            raise SessionError(ErrorCode.NOT_FOUND, f"session {self._session_id} was deleted")
        return entries

    async def inherited(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Read what the session has from those it was forked from."""
        return await inherited_entries(self._store.log, entries[0])

    async def place_of(self, entries: Sequence[Entry], message_id: str) -> int:
        """Return the `seq` after which a message is the last one.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message.

        """
        inherited = await self.inherited(entries)
        seq = seq_of_message(entries, MessageId(message_id), inherited=inherited)
        if seq is None:
            raise _no_message(message_id)
        return seq

    async def _go_to(
        self, seq: int, *, message_id: MessageId | None = None, also: Sequence[Entry] = ()
    ) -> None:
        rewound = Rewound(**self._stamp(), to_seq=seq, message_id=message_id)
        await self._recorder.commit([rewound, *also])

        async def fold_again() -> SessionFold:
            return await fold_log(self._store.log, await self.entries())

        await self._recorder.refold(fold_again)


def left_out_by(compaction: Compaction, before: Sequence[Entry]) -> tuple[Message, ...]:
    """Return what was sent before a compaction and is not sent after it."""
    fold = SessionFold()
    for entry in before:
        fold.apply(entry)
    if compaction.strategy == "server":
        return _before_own_summary(fold.messages())
    view = fold.conversation.wire_view() if compaction.strategy == "prune" else fold.settled_view()
    places = [place for place, item in enumerate(view) if item.id == compaction.kept_from]
    return view[: places[-1]] if places else view


def _before_own_summary(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages between a provider's last summary and the one before it."""
    summaries = [
        place
        for place, message in enumerate(messages)
        if any(isinstance(part, CompactionPart) for part in message.parts)
    ]
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
        seq = _last_place(path, message_id, inherited)
        if seq is not None:
            return seq
    return None


def _last_place(
    entries: Sequence[Entry], message_id: MessageId, inherited: Sequence[Entry]
) -> int | None:
    fold = SessionFold()
    for entry in inherited:
        fold.apply(entry)
    found: int | None = None
    for entry in entries:
        fold.apply(entry)
        if isinstance(entry, SessionOpened):
            began_with = [item.id for item in fold.messages()]
            found = entry.seq if message_id in began_with else None
        elif entry.seq and isinstance(entry, _ADDING) and _ends_with(fold, message_id):
            found = entry.seq
    return found


def _ends_with(fold: SessionFold, message_id: MessageId) -> bool:
    tip = fold.conversation.tip
    if tip is None:
        return False
    return tip.id == message_id or (bool(fold.calls) and f"{tip.id}_results" == message_id)


async def fold_log(log: SessionLog, entries: Sequence[Entry]) -> SessionFold:
    """Fold a session's entries on top of what it inherits.

    Raises:
        StoreError: VERSION_UNSUPPORTED when a newer version wrote the session.

    """
    opened = entries[0] if entries else None
    _refuse_newer(opened)
    return fold_entries(entries, inherited=await inherited_entries(log, opened))


def _refuse_newer(opened: Entry | None) -> None:
    if isinstance(opened, SessionOpened) and opened.format > FORMAT_VERSION:
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"this session was written in format {opened.format}; "
            f"this version reads up to {FORMAT_VERSION}",
        )


async def read_session(
    log: SessionLog, session_id: SessionId, compacted: tuple[int, int] | None
) -> tuple[Sequence[Entry], SessionFold | None]:
    """Read what is needed to open a session: its opening and, after a compaction, what follows.

    Returns the entries, and the session if they were not all read; without the entries before the
    compaction it cannot be made from them as usual.

    Raises:
        StoreError: VERSION_UNSUPPORTED when a newer version wrote the session.

    """
    if compacted is not None:
        seq, reads_from = compacted
        opening = await log.read(session_id, limit=1)
        if opening and isinstance(opening[0], SessionOpened) and reads_from > opening[0].seq:
            _refuse_newer(opening[0])
            entries = [*opening, *await log.read(session_id, after=reads_from - 1)]
            fold = fold_from_compaction(entries, seq)
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
    line: dict[SessionId, None] = {}
    while isinstance(opened, SessionOpened) and opened.parent is not None:
        line[opened.session_id] = None
        _refuse_endless(line, opened.parent)
        line[opened.parent] = None
        entries = await _recorded_by_then(log, opened)
        generations.append(current_path(entries, through=opened.forked_at))
        opened = entries[0]
    return [entry for own in reversed(generations) for entry in own]


async def _recorded_by_then(log: SessionLog, child: SessionOpened) -> list[Entry]:
    """Read what the parent of a fork had recorded when it was forked."""
    parent, at, head = child.parent or SessionId(""), child.forked_at or 0, child.parent_head
    entries = await log.read(parent, limit=None if head is None else max(at, head))
    if not entries:
        raise _corrupt(f"session {child.session_id} was forked from {parent}, which is gone")
    if not 0 < at <= entries[-1].seq:
        raise _corrupt(
            f"session {child.session_id} was forked from {parent} after entry {at}, "
            f"and that session has {entries[-1].seq}"
        )
    return [entry for entry in entries if head is None or entry.seq <= max(at, head)]


def _refuse_endless(line: dict[SessionId, None], parent: SessionId) -> None:
    """Refuse a line of parents that comes back to itself, or is too long to be meant."""
    if parent in line:
        names = list(line)
        circle = " -> ".join([*names[names.index(parent) :], parent])
        raise _corrupt(f"sessions were forked from each other in a circle: {circle}")
    if len(line) > MAX_GENERATIONS:
        raise _corrupt(f"more than {MAX_GENERATIONS:,} sessions were forked one from the other")


def _no_message(message_id: str) -> SessionError:
    told = f"this session has no message {message_id!r}"
    return SessionError(ErrorCode.MESSAGE_NOT_FOUND, told)


def _corrupt(message: str) -> StoreError:
    return StoreError(ErrorCode.CORRUPT, message)
