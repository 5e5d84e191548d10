"""Lineage: a session folded from its own log and the logs it was forked from."""

from collections.abc import Sequence

from holdfast.blocks.conversation.fold import SessionFold, fold_entries
from holdfast.blocks.conversation.paths import current_path
from holdfast.ports.session_store import SessionLog
from holdfast.vocabulary.entries import FORMAT_VERSION, Entry, SessionOpened
from holdfast.vocabulary.errors import ErrorCode, StoreError


async def fold_log(log: SessionLog, entries: Sequence[Entry]) -> SessionFold:
    """Fold a session's entries on top of what it inherits.

    Raises:
        StoreError: VERSION_UNSUPPORTED when a newer version wrote the session.

    """
    opened = entries[0] if entries else None
    if isinstance(opened, SessionOpened) and opened.format > FORMAT_VERSION:
        raise StoreError(
            ErrorCode.VERSION_UNSUPPORTED,
            f"this session was written in format {opened.format}; "
            f"this version reads up to {FORMAT_VERSION}",
        )
    return fold_entries(entries, inherited=await inherited_entries(log, opened))


async def inherited_entries(log: SessionLog, opened: Entry | None) -> list[Entry]:
    """Read what a fork has from its parent, which may be a fork itself, and so on."""
    generations: list[Sequence[Entry]] = []
    while isinstance(opened, SessionOpened) and opened.parent is not None:
        through = opened.forked_at or 0
        entries = [
            entry for entry in await log.read(opened.parent, limit=through) if entry.seq <= through
        ]
        if not entries:
            raise StoreError(
                ErrorCode.CORRUPT,
                f"session {opened.session_id} was forked from {opened.parent}, which is gone",
            )
        generations.append(current_path(entries))
        opened = entries[0]
    return [entry for own in reversed(generations) for entry in own]
