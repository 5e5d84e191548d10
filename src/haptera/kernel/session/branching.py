"""Branching: going back in a conversation, and where a fork of it begins."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from haptera.kernel.session.log_reading import (
    beside_the_loop,
    fold_log,
    inherited_entries,
    left_out_by,
    let_go,
    read_for_opening,
    seq_after_point,
    seq_of_message,
)
from haptera.kernel.session.prompt_queue import PromptQueue
from haptera.kernel.session.recorder import SessionRecorder
from haptera.kernel.session.session_descriptions import Fork
from haptera.kernel.session.state_reading import (
    LONGEST_STRETCH,
    MessagePlace,
    StateReader,
    Stretch,
    read_to_look,
)
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.ids import MessageId, SessionId
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.fold import copy_fold, fold_from_point, fold_through, keep_fold
from haptera.model.log.fold_points import FoldPoint
from haptera.model.log.history import EditAction, HistoryEdited, Rewound
from haptera.model.log.paths import current_path, last_rewind
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.tools import waits_in
from haptera.model.messages import Message
from haptera.model.operations.operation import CommandId
from haptera.model.parts import Part, ToolResultPart
from haptera.ports.session_store import SessionLog, SessionRecord, Store
from haptera.system.clock import Stamp

ReadEntries: TypeAlias = Callable[[], Awaitable[Sequence[Entry]]]
"""Reads the entries from some place before the one that a conversation goes back to."""
Moving: TypeAlias = Callable[[ReadEntries, int], Awaitable[Sequence[Entry]]]
"""What is done besides when a conversation is moved, with its entries and the `seq` that it goes
back to; returns entries that are recorded with the move. If it raises, nothing is moved."""


_MOST_LEFT = 4
"""How many conversations that rewinds left are kept: they share their messages."""


class _Left(NamedTuple):
    """A session as it was before its last rewind, which is at `seq`."""

    seq: int
    fold: SessionFold


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
        self._left: list[_Left] = []
        """What the last rewinds left, for taking them back; others are read from the log."""

    async def rewind(
        self, to: str, *, moving: Moving | None = None, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Make a message the last one; the commands that asked for it are consumed with that.

        Raises:
            SessionError: BUSY while a query runs, MESSAGE_NOT_FOUND when there is no such message,
                NOT_FOUND when the session was deleted.

        """
        async with self._queue.at_rest():
            # Read while the queue is at rest: the log cannot grow before the move is in it.
            place = await self._place_of(to)
            if place is not None:
                seq, stretch = place.seq, place.stretch
                shown = _as_shown(place.messages, to)
            else:
                await self.read_texts()
                (_, seq, _), stretch = await self._up_to(to), None
                shown = await self._as_shown(to)

            async def entries() -> Sequence[Entry]:
                return (await self._up_to(to))[0]

            also = await moving(entries, seq) if moving is not None else ()
            before = None if self._recorder.fold.lacks_texts else keep_fold(self._recorder.fold)
            await self._go_to(seq, stretch, message_id=shown, also=also, consumed=consumed)
            await self._keep_left(before, seq)

    async def _keep_left(self, before: SessionFold | None, seq: int) -> None:
        """Keep what a rewind to a `seq` left, and forget what one long before did."""
        fold, forgotten = self._recorder.fold, list[_Left]()
        opened_at = fold.opened.seq if fold.opened is not None else 0
        # A rewind into what the session began with changes the conversation in place.
        # What was staged before the rewind came into the log with it.
        is_whole = before is not None and before.head + 1 == fold.rewound_at
        if before is None or fold.rewound_at is None or seq == opened_at or not is_whole:
            forgotten, self._left = self._left, []
        else:
            self._left.append(_Left(fold.rewound_at, before))
            if len(self._left) > _MOST_LEFT:
                forgotten.append(self._left.pop(0))
        for left in forgotten:
            messages = list(left.fold.conversation.messages)
            left.fold.conversation.set_history(())
            await let_go(messages)

    async def left_by_rewind(self, to: str) -> tuple[MessageId, ...]:
        """Return the messages that a rewind would take out of the conversation.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message.

        """
        await self.read_texts()
        # Folded but never recorded: the preview is what the same entry would do in the log.
        entries, seq, point = await self._up_to(to)
        rewound = Rewound(
            **self._stamp(),
            seq=entries[-1].seq + 1,
            to_seq=seq,
            message_id=await self._as_shown(to),
        )
        after = await self._folded(point, [*entries, rewound])
        kept = {message.id for message in after.messages()}
        before = await self._folded(point, entries)
        return tuple(message.id for message in before.messages() if message.id not in kept)

    async def undo_rewind(
        self, *, moving: Moving | None = None, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Take the last rewind back; the commands that asked for it are consumed with that.

        Raises:
            SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound or the session
                was deleted.

        """
        async with self._queue.at_rest():
            at = await self._last_rewind()
            if at is None:
                raise SessionError(ErrorCode.NOT_FOUND, "there is no rewind to undo")

            async def entries() -> Sequence[Entry]:
                return (await self._since(at))[1]

            # The entry before a rewind is on the path that it left, so going there undoes it.
            also = await moving(entries, at - 1) if moving is not None else ()
            await self._go_to(at - 1, await self._left_at(at), also=also, consumed=consumed)
            # The conversation is that of the last one now, or it is not known from there.
            del self._left[-1:]

    async def _last_rewind(self) -> int | None:
        """Return the `seq` of the rewind that brought the conversation where it is, if one did."""
        fold = self._recorder.fold
        if fold.rewound_at is not None or not fold.compacted.is_partial or fold.lacks_texts:
            return fold.rewound_at
        # What was not read may have one.
        entries = await self.entries()
        last = await beside_the_loop(entries, lambda: last_rewind(entries))
        return None if last is None else last.seq

    async def _left_at(self, rewound_at: int) -> Stretch | None:
        """Return what the session was before its last rewind, and what is needed of the log."""
        fold, left = self._recorder.fold, self._left[-1] if self._left else None
        if fold.landmarks is None:
            return None
        if fold.lacks_texts:
            reader = self._reader(fold)
            return await reader.before(fold.landmarks, rewound_at - 1, until=fold.head)
        if left is None or left.seq != rewound_at or fold.head - rewound_at > LONGEST_STRETCH:
            return None
        return Stretch(lambda: left.fold, (), takes_fates=False)

    async def _place_of(self, message_id: str) -> MessagePlace | None:
        """Find a message by a short stretch of the log; None where that does not suffice."""
        fold, wanted = self._recorder.fold, MessageId(message_id)
        if fold.landmarks is None:
            return None
        reader = self._reader(fold)
        if fold.lacks_texts:
            return await reader.find(fold, wanted)
        messages = fold.messages()
        index = await beside_the_loop(messages, lambda: _index_of(messages, message_id))
        return None if index is None else await reader.find_at(fold, index, wanted)

    def _reader(self, fold: SessionFold) -> StateReader:
        return StateReader(self._store.log, self._session_id, fold.opened)

    async def fork(self, after: str | None) -> Fork:
        """Say where a branch begins: after a message (itself included), or at the end.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the
                session was deleted.

        """
        await self.read_texts()
        fold, folds = self._recorder.fold, tuple[SessionFold, ...]()
        if after is None:
            if not await self._store.log.read(self._session_id, limit=1):
                raise _was_deleted(self._session_id)
            # Not beside the loop: the session may go on meanwhile.
            folds = () if fold.compacted.is_partial else (copy_fold(fold),)
            return _fork_at(self._session_id, fold, seq=fold.head, head=fold.head, known=folds)
        entries, seq, point = await self._up_to(after)
        shown: MessageId | None = None
        if point is not None:
            up_to = partial(fold_through, fold, point, entries, through=seq)
            folds = (await beside_the_loop(entries, up_to),)
        elif seq == entries[0].seq:
            shown = await self._as_shown(after)
        head = entries[-1].seq
        return _fork_at(
            self._session_id, fold, seq=seq, head=head, after=after, shown=shown, known=folds
        )

    async def _as_shown(self, message_id: str) -> MessageId:
        messages = self._recorder.fold.messages()
        return await beside_the_loop(messages, lambda: _as_shown(messages, message_id))

    async def _since(
        self, seq: int, point: FoldPoint | None = None
    ) -> tuple[FoldPoint | None, Sequence[Entry]]:
        """Read what follows the last point before an entry, or before whatever was gone back to.

        Without a point this is the whole log.
        """
        points = self._recorder.fold.points
        point = points.until(seq) if point is None else point
        while point is not None:
            entries = await self._store.log.read(self._session_id, after=point.seq)
            if not entries:
                raise _was_deleted(self._session_id)
            if await beside_the_loop(entries, partial(point.needs_only, entries)):
                return point, entries
            point = points.until(await beside_the_loop(entries, partial(_earliest, entries)))
        return None, await self.entries()

    async def _up_to(self, message_id: str) -> tuple[Sequence[Entry], int, FoldPoint | None]:
        """Read what is needed to go back to a message; returns also the `seq` after which it ends.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message.

        """
        fold = self._recorder.fold
        messages = fold.messages()
        index = await beside_the_loop(messages, lambda: _index_of(messages, message_id))
        first = None if index is None else fold.points.before_message(index)
        if first is not None:
            point, entries = await self._since(first.seq, first)
            if point is not None:
                wanted = MessageId(message_id)
                find = partial(seq_after_point, fold, point, entries, message_id=wanted)
                if (seq := await beside_the_loop(entries, find)) is not None:
                    return entries, seq, point
        entries = await self.entries()
        return entries, await self.seq_after(entries, message_id), None

    async def _folded(self, point: FoldPoint | None, entries: Sequence[Entry]) -> SessionFold:
        """Fold the session anew, from a point with what follows it, or from the whole log."""
        if point is None:
            return await fold_log(self._store.log, entries)
        again = partial(fold_from_point, self._recorder.fold, point, entries)
        return await beside_the_loop(entries, again)

    async def whole_fold(self) -> SessionFold:
        """Return the session with all of its messages, also those before a compaction."""
        fold = self._recorder.fold
        if not fold.compacted.is_partial:
            return fold
        return await fold_log(self._store.log, await self.entries())

    async def read_texts(self) -> None:
        """Let the session have the messages that it is asked with, if it was opened without.

        Raises:
            SessionError: NOT_FOUND when the session was deleted.

        """
        if self._recorder.fold.lacks_texts:
            await self._recorder.refold(self._with_texts)

    async def _with_texts(self) -> SessionFold:
        fold = self._recorder.fold
        if not fold.lacks_texts or (opened := fold.opened) is None:
            return fold
        record = await self._store.index.find(opened.owner, None, session_id=self._session_id)
        compacted = None if record is None else record.compacted
        entries, again = await read_for_opening(self._store.log, self._session_id, compacted)
        if not entries:
            raise _was_deleted(self._session_id)
        again = again or await fold_log(self._store.log, entries)
        await let_go(entries)
        return again

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
            reason = f"there is no compaction {compaction_id!r} that left messages out"
            raise SessionError(ErrorCode.NOT_FOUND, reason)
        # What is inherited is one path already; that of the session's own entries is cut where the
        # compaction stands.
        if found in inherited:
            return left_out_by(found, inherited[: inherited.index(found)])
        compaction = found

        def left_out() -> tuple[Message, ...]:
            path = current_path(entries, through=compaction.seq - 1)
            return left_out_by(compaction, (*inherited, *path))

        return await beside_the_loop(entries, left_out)

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
            # The edit replaces the whole history, also what a compaction left out.
            await self._read_all()
            fold = self._recorder.fold
            # The edit settles open calls: an answer that came later would find no call.
            if fold.approvals or waits_in(fold):
                reason = "a tool call waits for an answer; give it before you edit the history"
                raise SessionError(ErrorCode.BUSY, reason)
            if target is not None and all(item.id != target for item in fold.messages()):
                raise _no_message(target)
            edited = HistoryEdited(
                **self._stamp(),
                action=action,
                target=MessageId(target) if target is not None else None,
                message=message,
            )
            await self._recorder.commit([edited])

    async def replace_part(self, message_id: str, place: int, parts: tuple[Part, ...]) -> None:
        """Put other parts in the place of one; a message that then has none is taken out.

        Raises:
            SessionError: as `edit`; NOT_FOUND when the message has no such place.

        """
        message = await self.message(message_id)
        if not 0 <= place < len(message.parts):
            reason = f"message {message_id!r} has {len(message.parts)} parts, and no place {place}"
            raise SessionError(ErrorCode.NOT_FOUND, reason)
        kept = (*message.parts[:place], *parts, *message.parts[place + 1 :])
        if kept:
            await self.edit("replace", message_id, replace(message, parts=kept))
        else:
            await self.edit("remove", message_id)

    async def entries(self) -> Sequence[Entry]:
        """Read the session's own log.

        Raises:
            SessionError: NOT_FOUND when the session was deleted.

        """
        entries = await self._store.log.read(self._session_id)
        if not entries:
            raise _was_deleted(self._session_id)
        return entries

    async def inherited(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Read what the session has from those it was forked from."""
        return await inherited_entries(self._store.log, entries[0])

    async def seq_after(self, entries: Sequence[Entry], message_id: str) -> int:
        """Return the `seq` after which a message is the last one.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message.

        """
        return await _seq_after(self._store.log, entries, message_id)

    async def _go_to(
        self,
        seq: int,
        stretch: Stretch | None,
        *,
        message_id: MessageId | None = None,
        also: Sequence[Entry] = (),
        consumed: Sequence[CommandId] = (),
    ) -> None:
        # First in its append: an undo looks for the snapshot of the files at the `seq` after it.
        rewound = Rewound(**self._stamp(), to_seq=seq, message_id=message_id)
        await self._recorder.commit([rewound, *also], consumed=consumed)

        # A fold only goes forward: what is left of the conversation is derived again from the log.
        async def fold_again() -> SessionFold:
            fold = self._recorder.fold
            rewinds = fold.landmarks.rewinds if fold.landmarks is not None else ()
            if stretch is not None and rewinds:
                # Without anything near, there is no gap: what was left since is read, too. Answers
                # to approvals may have been staged while the stretch was read.
                after = min(rewinds[-1].seq - 1, stretch.until) if stretch.near else seq
                later = await self._store.log.read(self._session_id, after=after)
                again = await stretch.folded(later, between=fold)
                if again is not None:
                    return again
            return await self._folded(*await self._since(seq))

        await self._recorder.refold(fold_again)


async def read_fork(
    log: SessionLog,
    session_id: SessionId,
    after: str | None,
    *,
    record: SessionRecord | None = None,
) -> Fork:
    """Say where a branch begins by the stored log alone, whichever process holds the session.

    Raises:
        SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the session
            was deleted.

    """
    if after is None and record is not None:
        seen = await read_to_look(log, session_id, record.folded)
        # Whether a native session ends there is told by messages.
        if seen is not None and seen.native.session_id is None:
            return _fork_at(session_id, seen, seq=seen.head, head=seen.head)
    compacted = None if record is None else record.compacted
    # The end of a conversation is known by what follows its last compaction.
    entries, fold = await read_for_opening(log, session_id, compacted if after is None else None)
    if not entries:
        raise _was_deleted(session_id)
    fold = fold or await fold_log(log, entries)
    head = entries[-1].seq
    seq = head if after is None else await _seq_after(log, entries, after)
    shown = None
    if after is not None and seq == entries[0].seq:
        shown = _as_shown(fold.messages(), after)
    return _fork_at(session_id, fold, seq=seq, head=head, after=after, shown=shown)


def _fork_at(
    session_id: SessionId,
    fold: SessionFold,
    *,
    seq: int,
    head: int,
    after: str | None = None,
    shown: MessageId | None = None,
    known: Sequence[SessionFold] = (),
) -> Fork:
    """Describe a branch that begins after a `seq`; `fold` is what the session has come to.

    All messages that a session began with have the `seq` of its opening: `shown` says which one.
    """
    return Fork(
        parent=session_id,
        forked_at=seq,
        forked_after=shown,
        # What the parent recorded of calls on other paths counts in the fork, as far as it is known
        # now.
        parent_head=head,
        settings=fold.settings,
        native_parent=_native_at(fold, after),
        configured=tuple(sorted(fold.configured)),
        known=list(known),
    )


def _earliest(entries: Sequence[Entry]) -> int:
    """Return the earliest `seq` that rewinds among the entries go back to."""
    return min(entry.to_seq for entry in entries if isinstance(entry, Rewound))


def _index_of(messages: Sequence[Message], message_id: str) -> int | None:
    """Return the index of a message; most are looked for near the end."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].id == message_id:
            return index
    return None


def _as_shown(messages: Sequence[Message], message_id: str) -> MessageId:
    """Return what to name so that the message ends a conversation as it ends this one.

    In what a session began with, a prompt may have joined the results of tools. After a rewind
    to the answer before them they are shown without it, under the same id: that answer is
    named then, which its results follow in any case.
    """
    index = _index_of(messages, message_id)
    if index and all(isinstance(part, ToolResultPart) for part in messages[index].parts):
        return messages[index - 1].id
    return MessageId(message_id)


def _native_at(fold: SessionFold, after: str | None) -> str | None:
    """Return the native session if it ends where the branch begins."""
    # A native session can only be copied as a whole.
    tip = fold.conversation.tip
    at_the_end = fold.open_query is None and (after is None or (tip and tip.id == after))
    knows = fold.native.knows(fold.conversation.messages)
    return fold.native.session_id if at_the_end and knows else None


async def _seq_after(log: SessionLog, entries: Sequence[Entry], message_id: str) -> int:
    inherited = await inherited_entries(log, entries[0])
    find = partial(seq_of_message, entries, MessageId(message_id), inherited=inherited)
    seq = await beside_the_loop(entries, find)
    if seq is None:
        raise _no_message(message_id)
    return seq


def _was_deleted(session_id: SessionId) -> SessionError:
    return SessionError(ErrorCode.NOT_FOUND, f"session {session_id} was deleted")


def _no_message(message_id: str) -> SessionError:
    reason = f"this session has no message {message_id!r}"
    return SessionError(ErrorCode.MESSAGE_NOT_FOUND, reason)
