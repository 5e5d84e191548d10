"""Snapshots of the files of a workspace, and what is derived from them."""

import re
from typing import Literal, TypeAlias

import msgspec

from haptera.model.ids import MessageId
from haptera.model.json_types import writable

SnapshotMoment: TypeAlias = Literal["before", "after", "before_rewind", "after_rewind"]
"""Before or after the tools of a turn, or a rewind, could change files."""
ChangeKind: TypeAlias = Literal["added", "changed", "deleted"]

_TREE = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_tree(name: object) -> bool:
    """Return whether a value has the form of the id that git gives to a tree."""
    return isinstance(name, str) and _TREE.fullmatch(name) is not None


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs between two snapshots."""

    path: str
    """Relative to the workspace; bytes that are no UTF-8 as `os.fsdecode` gives them."""
    kind: ChangeKind


class FileLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A path that a rewind leaves as it is, and why."""

    path: str
    """Relative to the workspace; a folder, with everything in it, ends with a `/`."""
    reason: str


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn or a query changed in the workspace."""

    changes: tuple[FileChange, ...] = ()
    patch: str = ""
    """The changes as a unified diff; binary files are only named."""
    is_complete: bool = True
    """Whether a snapshot was taken afterwards. Without one, later changes by others are in it."""


class RewindReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rewind did to files, or would do to them and to the conversation."""

    changes: tuple[FileChange, ...] = ()
    """What happens to each file: one that is `deleted` was made after the message."""
    restored: tuple[str, ...] = ()
    """The files that are now what they were; none of a dry run."""
    left: tuple[FileLeft, ...] = ()
    """What is not as it was and is left alone: it was never recorded, or is ignored."""
    refused: tuple[FileLeft, ...] = ()
    """Files that should be brought back and cannot be."""
    conflicts: tuple[str, ...] = ()
    """Those of the files that were also changed by others than this session since then."""
    is_done: bool = True
    """Whether it was done; False for a dry run."""
    messages: tuple[MessageId, ...] = ()
    """Of a dry run: the messages that would leave the conversation."""

    def writable(self) -> "RewindReport":
        """Return it with paths that JSON can hold."""
        changes = [msgspec.structs.replace(each, path=writable(each.path)) for each in self.changes]
        return msgspec.structs.replace(
            self,
            changes=tuple(changes),
            restored=tuple(map(writable, self.restored)),
            left=_writable(self.left),
            refused=_writable(self.refused),
            conflicts=tuple(map(writable, self.conflicts)),
        )


def _writable(left: tuple[FileLeft, ...]) -> tuple[FileLeft, ...]:
    return tuple(FileLeft(path=writable(each.path), reason=each.reason) for each in left)
