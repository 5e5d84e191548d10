"""The port to snapshots of a workspace's files."""

from collections.abc import Collection
from typing import Protocol

import msgspec

from holdfast.vocabulary.file_snapshots import FileChange


class TakenTree(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that was taken."""

    tree: str
    skipped: tuple[str, ...] = ()
    """Files that it does not hold, each with the reason."""


class Snapshotter(Protocol):
    """Records what the files of one folder are, and brings them back.

    - Nothing in the folder is changed except by `restore`, not even in its own repository.
    - A file that is in an earlier snapshot is in every later one while it exists, also when it is
      ignored by then. A file that was ignored from the start is in none.
    - `restore` changes the named files only. It changes nothing if one of them is not as `now` has
      it any more.
    - What cannot be done raises a `StoreError` that says why.
    """

    async def take(self) -> TakenTree:
        """Record what the files are now."""
        ...

    async def changes(self, old: str, new: str) -> tuple[FileChange, ...]:
        """Return the files that differ between two trees."""
        ...

    async def patch(self, old: str, new: str) -> str:
        """Return the difference between two trees as a unified diff."""
        ...

    async def restore(self, now: str, target: str, paths: Collection[str]) -> str:
        """Make files what they are in `target`; `now` was just taken. Returns the new tree."""
        ...
