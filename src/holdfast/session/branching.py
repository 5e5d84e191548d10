"""Branching: going back in a conversation, and going on from any point of it in a new session."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.blocks.conversation.fold import SessionFold
from holdfast.blocks.conversation.paths import last_rewind
from holdfast.blocks.conversation.places import seq_of_message
from holdfast.ports.session_store import Store
from holdfast.session.lineage import fold_log, inherited_entries
from holdfast.session.requests import Fork
from holdfast.vocabulary.entries import Entry, Rewound
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import MessageId

if TYPE_CHECKING:
    from holdfast.session.live_session import LiveSession


async def rewind(live: "LiveSession", store: Store, to: str) -> None:
    """Make a message the last one of the conversation.

    Raises:
        SessionError: BUSY while a query runs, MESSAGE_NOT_FOUND when there is no such message,
            NOT_FOUND when the session was deleted.

    """
    live.check_open()
    async with live.queue.at_rest():
        place = await _place_of(store, await _entries_of(live, store), to)
        await _go_to(live, store, place, message_id=MessageId(to))


async def undo_rewind(live: "LiveSession", store: Store) -> None:
    """Take the last rewind back.

    Raises:
        SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound or the session was
            deleted.

    """
    live.check_open()
    async with live.queue.at_rest():
        last = last_rewind(await _entries_of(live, store))
        if last is None:
            raise SessionError(ErrorCode.NOT_FOUND, "there is no rewind to take back")
        await _go_to(live, store, last.seq - 1)


async def find_fork(live: "LiveSession", store: Store, after: str | None) -> Fork:
    """Say where a branch begins: after a message (itself included), or at the end.

    Raises:
        SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the session
            was deleted.

    """
    entries = await _entries_of(live, store)
    place = entries[-1].seq if after is None else await _place_of(store, entries, after)
    return Fork(
        parent=live.session_id,
        forked_at=place,
        forked_after=MessageId(after) if after is not None and place == entries[0].seq else None,
        settings=live.fold.settings,
    )


async def _entries_of(live: "LiveSession", store: Store) -> list[Entry]:
    entries = await store.log.read(live.session_id)
    if not entries:
        raise SessionError(ErrorCode.NOT_FOUND, f"session {live.session_id} was deleted")
    return entries


async def _place_of(store: Store, entries: Sequence[Entry], message_id: str) -> int:
    inherited = await inherited_entries(store.log, entries[0])
    seq = seq_of_message(entries, MessageId(message_id), inherited=inherited)
    if seq is None:
        raise SessionError(
            ErrorCode.MESSAGE_NOT_FOUND, f"this session has no message {message_id!r}"
        )
    return seq


async def _go_to(
    live: "LiveSession", store: Store, seq: int, *, message_id: MessageId | None = None
) -> None:
    await live.recorder.commit([Rewound(**live.stamp(), to_seq=seq, message_id=message_id)])

    async def fold_again() -> SessionFold:
        return await fold_log(store.log, await store.log.read(live.session_id))

    await live.recorder.refold(fold_again)
