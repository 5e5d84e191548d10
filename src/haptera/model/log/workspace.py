"""Entries about the workspace: what its files looked like, and what of them a model is told."""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from haptera.model.context_files import ContextFile, Skill, context_sections
from haptera.model.file_snapshots import SnapshotMoment, is_tree
from haptera.model.log.entry import DROPPED, Entry, ImportRule

if TYPE_CHECKING:
    from haptera.model.log.session_fold import SessionFold

_NO_TREE = "what is recorded as the id of its tree is none"


class ContextLoaded(Entry, frozen=True, kw_only=True, tag="context.loaded"):
    """A query found other context files or skills than the one before."""

    survives_rewind: ClassVar[bool] = True
    imported: ClassVar[ImportRule] = DROPPED
    is_checked: ClassVar[bool] = True
    files: tuple[ContextFile, ...] = ()
    skills: tuple[Skill, ...] = ()

    def apply(self, fold: "SessionFold") -> None:
        """Tell the model these from now on."""
        fold.context = self

    def sections(self) -> tuple[str, ...]:
        """Return what follows the system prompt; the same as long as no file changes."""
        return context_sections(self.files, self.skills)


class Snapshot(Entry, frozen=True, kw_only=True, tag="snapshot"):
    """What the files of the workspace looked like, or why that could not be recorded."""

    survives_rewind: ClassVar[bool] = False
    imported: ClassVar[ImportRule] = DROPPED
    is_checked: ClassVar[bool] = True
    tree: str
    """The id of the tree; empty when no snapshot could be taken."""
    moment: SnapshotMoment = "before"
    skipped: tuple[str, ...] = ()
    """Files that it does not hold, with the reason: the first ones."""
    skipped_count: int = 0
    error: str | None = None
    """Why no snapshot could be taken."""
    kept: str = ""
    """Before a rewind: the id of the copies of what stood at the paths that it changes."""

    def __post_init__(self) -> None:
        # Here, so that it holds however an entry was read: the id becomes an argument of git.
        if self.tree and not is_tree(self.tree):
            msgspec.structs.force_setattr(self, "tree", "")
            msgspec.structs.force_setattr(self, "error", self.error or _NO_TREE)

    def apply(self, fold: "SessionFold") -> None:
        """Keep why it could not be taken."""
        fold.snapshot_error = self.error
