"""Branching: going back in a conversation, and going on from any point of it in a new session."""

from collections.abc import Sequence

from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.conversation.paths import last_rewind
from holdfast.blocks.conversation.places import seq_of_message
from holdfast.ports.session_store import Store
from holdfast.ports.stamps import Stamp
from holdfast.session.lineage import fold_log, inherited_entries
from holdfast.session.prompt_queue import PromptQueue
from holdfast.session.recorder import SessionRecorder
from holdfast.session.requests import Fork
from holdfast.vocabulary.entries import Entry, Rewound
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import MessageId, SessionId


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

    async def rewind(self, to: str) -> None:
        """Make a message the last one of the conversation.

        Raises:
            SessionError: BUSY while a query runs, MESSAGE_NOT_FOUND when there is no such message,
                NOT_FOUND when the session was deleted.

        """
        async with self._queue.at_rest():
            place = await self._place_of(await self._entries(), to)
            await self._go_to(place, message_id=MessageId(to))

    async def undo_rewind(self) -> None:
        """Take the last rewind back.

        Raises:
            SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound or the session
                was deleted.

        """
        async with self._queue.at_rest():
            last = last_rewind(await self._entries())
            if last is None:
                raise SessionError(ErrorCode.NOT_FOUND, "there is no rewind to take back")
            await self._go_to(last.seq - 1)

    async def fork(self, after: str | None) -> Fork:
        """Say where a branch begins: after a message (itself included), or at the end.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the
                session was deleted.

        """
        entries = await self._entries()
        place = entries[-1].seq if after is None else await self._place_of(entries, after)
        is_inherited = place == entries[0].seq
        return Fork(
            parent=self._session_id,
            forked_at=place,
            forked_after=MessageId(after) if after is not None and is_inherited else None,
            parent_head=entries[-1].seq,
            settings=self._recorder.fold.settings,
        )

    async def _entries(self) -> Sequence[Entry]:
        entries = await self._store.log.read(self._session_id)
        if not entries:
            raise SessionError(ErrorCode.NOT_FOUND, f"session {self._session_id} was deleted")
        return entries

    async def _place_of(self, entries: Sequence[Entry], message_id: str) -> int:
        inherited = await inherited_entries(self._store.log, entries[0])
        seq = seq_of_message(entries, MessageId(message_id), inherited=inherited)
        if seq is None:
            raise SessionError(
                ErrorCode.MESSAGE_NOT_FOUND, f"this session has no message {message_id!r}"
            )
        return seq

    async def _go_to(self, seq: int, *, message_id: MessageId | None = None) -> None:
        await self._recorder.commit([Rewound(**self._stamp(), to_seq=seq, message_id=message_id)])

        async def fold_again() -> SessionFold:
            return await fold_log(self._store.log, await self._entries())

        await self._recorder.refold(fold_again)
