"""Lineage: a session folded from its own log and the logs it was forked from."""

from collections.abc import Sequence

from holdfast.blocks.conversation.fold import SessionFold, fold_entries
from holdfast.blocks.conversation.paths import current_path
from holdfast.ports.session_store import SessionLog
from holdfast.vocabulary.entries import FORMAT_VERSION, Entry, SessionOpened
from holdfast.vocabulary.errors import ErrorCode, StoreError
from holdfast.vocabulary.ids import SessionId

MAX_GENERATIONS = 10_000
"""How many parents, one above the other, a session may have: each is read when it is opened."""


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


def _corrupt(message: str) -> StoreError:
    return StoreError(ErrorCode.CORRUPT, message)
