"""The port to snapshots of a workspace's files."""

from collections.abc import Collection
from typing import Protocol

import msgspec

from haptera.model.file_snapshots import FileChange, FileLeft


class TakenTree(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that was taken."""

    tree: str
    skipped: tuple[str, ...] = ()
    """Files that it does not hold, each with the reason."""


class TreeDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How the files of two snapshots differ."""

    changes: tuple[FileChange, ...] = ()
    """Of the files that at least one of them holds."""
    uncovered: tuple[str, ...] = ()
    """Those of the files that were there before, but were not recorded; they may be unchanged."""
    unseen: tuple[str, ...] = ()
    """Paths whose content neither holds, and that were written, made or removed in between."""


class PlannedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What bringing files back changes, and what it leaves alone."""

    changes: tuple[FileChange, ...] = ()
    left: tuple[FileLeft, ...] = ()
    refused: tuple[FileLeft, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Of an undo: files that were changed since."""
    kept: str = ""
    """The id of the copies that were made for it; without any, nothing is changed."""


class Snapshotter(Protocol):
    """Records what the files of one folder are, and brings them back.

    - Nothing in the folder is changed except by `carry_out` and `take_back`, not even in its own
      repository. They change all files of an exchange, or none.
    - A file that is in an earlier snapshot is in every later one while it exists and is not too
      large, also when it is ignored by then. A file that was ignored from the start is in none.
    - What stands at a path is copied before it is changed. The copies belong to a session.
    - What cannot be done raises a `StoreError` that says why.
    """

    async def take(self) -> TakenTree:
        """Record what the files are now."""
        ...

    async def difference(self, old: str, new: str) -> TreeDifference:
        """Return what differs between two trees."""
        ...

    async def patch(self, old: str, new: str) -> str:
        """Return the difference between two trees as a unified diff."""
        ...

    async def plan(
        self, now: str, target: str, paths: Collection[str], *, session: str | None = None
    ) -> PlannedChanges:
        """Say how files become what they are in `target`; `now` was just taken.

        With a `session`, copies are made for it, so that the plan can be carried out.
        """
        ...

    async def plan_undo(self, kept: str, *, session: str, force: bool = False) -> PlannedChanges:
        """Plan what takes an exchange back, with copies, unless there are conflicts."""
        ...

    async def carry_out(self, kept: str, *, session: str) -> None:
        """Make the changes of a plan."""
        ...

    async def take_back(self, kept: str, *, session: str) -> tuple[FileLeft, ...]:
        """Take back an exchange that was cut off; returns what was changed since, and is left."""
        ...
