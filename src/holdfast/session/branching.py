"""Branching: going back in a conversation, and where a fork of it begins."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.conversation.paths import current_path, last_rewind
from holdfast.ports.clock import Stamp
from holdfast.ports.session_store import SessionLog, Store
from holdfast.session.log_reading import (
    fold_log,
    inherited_entries,
    left_out_by,
    seq_of_message,
)
from holdfast.session.prompt_queue import PromptQueue
from holdfast.session.recorder import SessionRecorder
from holdfast.session.session_descriptions import Fork
from holdfast.vocabulary.commands import CommandId
from holdfast.vocabulary.compactions import Compaction
from holdfast.vocabulary.entries import (
    EditAction,
    Entry,
    HistoryEdited,
    Rewound,
)
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import MessageId, SessionId
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.parts import ToolResultPart

Moving: TypeAlias = Callable[[Sequence[Entry], int], Awaitable[Sequence[Entry]]]
"""What is done besides when a conversation is moved, with its entries and the `seq` that it goes
back to; returns entries that are recorded with the move. If it raises, nothing is moved."""


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
            entries = await self.entries()
            seq = await self.seq_after(entries, to)
            also = await moving(entries, seq) if moving is not None else ()
            shown = self._as_shown(to)
            await self._go_to(seq, message_id=shown, also=also, consumed=consumed)

    async def left_by_rewind(self, entries: Sequence[Entry], to: str) -> tuple[MessageId, ...]:
        """Return the messages that a rewind would take out of the conversation.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message.

        """
        # Folded but never recorded: the preview is what the same entry would do in the log.
        rewound = Rewound(
            **self._stamp(),
            seq=entries[-1].seq + 1,
            to_seq=await self.seq_after(entries, to),
            message_id=self._as_shown(to),
        )
        after = (await fold_log(self._store.log, [*entries, rewound])).messages()
        kept = {message.id for message in after}
        before = (await fold_log(self._store.log, entries)).messages()
        return tuple(message.id for message in before if message.id not in kept)

    async def undo_rewind(
        self, *, moving: Moving | None = None, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Take the last rewind back; the commands that asked for it are consumed with that.

        Raises:
            SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound or the session
                was deleted.

        """
        async with self._queue.at_rest():
            entries = await self.entries()
            last = last_rewind(entries)
            if last is None:
                raise SessionError(ErrorCode.NOT_FOUND, "there is no rewind to undo")
            # The entry before a rewind is on the path that it left, so going there undoes it.
            also = await moving(entries, last.seq - 1) if moving is not None else ()
            await self._go_to(last.seq - 1, also=also, consumed=consumed)

    async def fork(self, after: str | None) -> Fork:
        """Say where a branch begins: after a message (itself included), or at the end.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the
                session was deleted.

        """
        entries = await self.entries()
        fold = self._recorder.fold
        return await _fork_of(self._store.log, self._session_id, after, entries=entries, fold=fold)

    def _as_shown(self, message_id: str) -> MessageId:
        return _as_shown(self._recorder.fold, message_id)

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
        # What is inherited is one path already; that of the session's own entries is cut where the
        # compaction stands.
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
            # The edit replaces the whole history, also what a compaction left out.
            await self._read_all()
            fold = self._recorder.fold
            # The edit settles open calls: an answer that came later would find no call.
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
            return await fold_log(self._store.log, await self.entries())

        await self._recorder.refold(fold_again)


async def read_fork(log: SessionLog, session_id: SessionId, after: str | None) -> Fork:
    """Say where a branch begins by the stored log alone, whichever process holds the session.

    Raises:
        SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the session
            was deleted.

    """
    entries = await log.read(session_id)
    if not entries:
        raise _was_deleted(session_id)
    fold = await fold_log(log, entries)
    return await _fork_of(log, session_id, after, entries=entries, fold=fold)


async def _fork_of(
    log: SessionLog,
    session_id: SessionId,
    after: str | None,
    *,
    entries: Sequence[Entry],
    fold: SessionFold,
) -> Fork:
    """Say where a branch of these entries begins; `fold` is what they come to."""
    seq = entries[-1].seq if after is None else await _seq_after(log, entries, after)
    # All messages that a session began with have the `seq` of its opening: the id says which one.
    is_inherited = seq == entries[0].seq
    return Fork(
        parent=session_id,
        forked_at=seq,
        forked_after=_as_shown(fold, after) if after is not None and is_inherited else None,
        # What the parent recorded of calls on other paths counts in the fork, as far as it is known
        # now.
        parent_head=entries[-1].seq,
        settings=fold.settings,
        native_parent=_native_at(fold, after),
        configured=tuple(sorted(fold.configured)),
    )


def _as_shown(fold: SessionFold, message_id: str) -> MessageId:
    """Return what to name so that the message ends a conversation as it ends this one.

    In what a session began with, a prompt may have joined the results of tools. After a rewind
    to the answer before them they are shown without it, under the same id: that answer is
    named then, which its results follow in any case.
    """
    for before, message in pairwise(fold.messages()):
        if message.id == message_id and all(
            isinstance(part, ToolResultPart) for part in message.parts
        ):
            return before.id
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
    seq = seq_of_message(entries, MessageId(message_id), inherited=inherited)
    if seq is None:
        raise _no_message(message_id)
    return seq


def _was_deleted(session_id: SessionId) -> SessionError:
    return SessionError(ErrorCode.NOT_FOUND, f"session {session_id} was deleted")


def _no_message(message_id: str) -> SessionError:
    told = f"this session has no message {message_id!r}"
    return SessionError(ErrorCode.MESSAGE_NOT_FOUND, told)
