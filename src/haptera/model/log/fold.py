"""The fold: everything a session is, derived from its entries one by one.

The same code runs live and on reopening; what an entry changes is the `apply` of its kind.
"""

from collections.abc import Sequence

from haptera.model.log.entry import Entry
from haptera.model.log.fold_points import FoldPoint, copied_fold, kept_fold
from haptera.model.log.landmarks import Landmarks
from haptera.model.log.paths import current_path, landmarks_after
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import SessionOpened


def fold_entries(entries: Sequence[Entry], *, inherited: Sequence[Entry] = ()) -> SessionFold:
    """Fold a log into a session, on top of what it inherits from the one it was forked from."""
    fold = SessionFold()
    for path in (inherited, current_path(entries)):
        fold.apply_all(path)
    fold.head = entries[-1].seq if entries else 0
    # Not from the path alone: a query that was rewound may have ended, or still be without an end.
    fold.unended.clear()
    for entry in entries:
        entry.note_query(fold.unended)
    fold.landmarks = landmarks_after(Landmarks(), entries)
    # The next request counts what it sends, on an event loop: of a long log it is done here.
    fold.conversation.counts.update()
    return fold


def copy_fold(fold: SessionFold) -> SessionFold:
    """Return a session as it is at this moment, with no points to go back to."""
    copied = SessionFold()
    vars(copied).update(copied_fold(vars(fold)))
    return copied


def keep_fold(fold: SessionFold) -> SessionFold:
    """Return a session as it is, before it becomes another one."""
    kept = SessionFold()
    vars(kept).update(kept_fold(vars(fold)))
    return kept


def fold_of_fork(parent: SessionFold, opened: SessionOpened) -> SessionFold:
    """Let a copy of another session become the fork of that."""
    parent.apply(opened)
    parent.unended.clear()
    return parent


def fold_at(fold: SessionFold, point: FoldPoint) -> SessionFold:
    """Return a session as it was at one of its points."""
    earlier = SessionFold()
    vars(earlier).update(fold.points.restored(point, vars(fold)))
    return earlier


def fold_through(
    fold: SessionFold, point: FoldPoint, entries: Sequence[Entry], *, through: int | None = None
) -> SessionFold:
    """Fold a session from one of its points up to an entry; `entries` are all after the point."""
    again = fold_at(fold, point)
    again.apply_all(current_path(entries, through=through))
    return again


def fold_from_point(fold: SessionFold, point: FoldPoint, entries: Sequence[Entry]) -> SessionFold:
    """Fold a session anew from one of its points; `entries` are all that follow the point.

    `fold` is the session as it is: the same entries were applied to it, one by one.
    """
    again = fold_through(fold, point, entries)
    again.head = fold.head
    again.unended, again.landmarks = dict(fold.unended), fold.landmarks
    return again
