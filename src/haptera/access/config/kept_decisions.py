"""What the user decided about projects: which files are trusted, and which calls are approved.

Kept in one file in the user's own data folder, never in a project: a workspace must not be able to
trust itself.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from haptera.model.approvals import Grant
from haptera.model.errors import ErrorCode, StoreError
from haptera.system.atomic_files import file_lock, replace_file
from haptera.system.logs import scrubbed_logger

DECISIONS_FILE = "permissions.json"

_LARGEST = 8 << 20
_MOST_GRANTS = 10_000
_logger = scrubbed_logger(__name__)


class _Decisions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the file."""

    trusted: dict[str, str] = {}
    """By folder, the digest of the project file that was trusted."""
    grants: tuple[Grant, ...] = ()


class KeptDecisions:
    """Reads and writes the file. Owns its lock; other processes of the user write it, too.

    A file that is damaged, or that others could have written, decides nothing: what it says is
    asked again.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / DECISIONS_FILE

    def for_owner(self, owner: str) -> "OwnerGrants":
        """Return the approvals that the file keeps for the sessions of an owner."""
        return OwnerGrants(self, owner)

    def trusted_digest(self, folder: Path) -> str | None:
        """Return the digest of the project file that was trusted in a folder."""
        return self._read().trusted.get(_name(folder))

    def trust(self, folder: Path, digest: str | None) -> None:
        """Trust a project file by its digest, and no other one in that folder; None: none at all.

        Raises:
            StoreError: UNAVAILABLE when it cannot be written down.

        """
        name = _name(folder)

        def change(before: _Decisions) -> _Decisions:
            others = {key: grant for key, grant in before.trusted.items() if key != name}
            trusted = others if digest is None else {**others, name: digest}
            return msgspec.structs.replace(before, trusted=trusted)

        self._change(change)

    def grants(self, folder: str, *, owner: str) -> tuple[Grant, ...]:
        """Return the approvals that an owner has given for a folder."""
        grants = (grant for grant in self._read().grants if grant.owner == owner)
        return tuple(grant for grant in grants if grant.folder == folder)

    def grant(self, new: Grant) -> None:
        """Keep an approval; the oldest are dropped when there are too many.

        Raises:
            StoreError: UNAVAILABLE when it cannot be written down.

        """

        def change(before: _Decisions) -> _Decisions:
            same = (new.key, new.owner)
            # One that is given again moves to the end, where the newest are.
            others = [grant for grant in before.grants if (grant.key, grant.owner) != same]
            return msgspec.structs.replace(before, grants=(*others, new)[-_MOST_GRANTS:])

        self._change(change)

    def grants_beneath(self, folder: Path) -> tuple[Grant, ...]:
        """Return the approvals that were given for a folder, and for folders beneath it."""
        return _beneath(folder, self._read())

    def revoke(self, folder: Path) -> int:
        """Take back every approval for a folder, and for those beneath it; returns how many."""
        taken: tuple[Grant, ...] = ()

        def change(before: _Decisions) -> _Decisions:
            nonlocal taken
            taken = _beneath(folder, before)
            remaining = tuple(grant for grant in before.grants if grant not in taken)
            return msgspec.structs.replace(before, grants=remaining)

        self._change(change)
        return len(taken)

    def _read(self) -> _Decisions:
        try:
            with self.path.open("rb") as file:
                if _is_of_others(os.fstat(file.fileno())):
                    _logger.warning("%s can be written by others and is not used", self.path)
                    return _Decisions()
                return msgspec.json.decode(file.read(_LARGEST), type=_Decisions)
        except FileNotFoundError:
            return _Decisions()
        except (OSError, ValueError) as error:
            _logger.warning("%s is not used: %s", self.path, type(error).__name__)
            return _Decisions()

    def _change(self, change: Callable[[_Decisions], _Decisions]) -> None:
        """Replace the file by a changed one, in one step and for one process at a time."""
        try:
            with file_lock(self.path):
                before = self._read()
                after = change(before)
                if after != before:
                    replace_file(self.path, msgspec.json.encode(after))
        except OSError as error:
            message = f"the decision could not be kept in {self.path}: {error.strerror}"
            raise StoreError(ErrorCode.UNAVAILABLE, message) from error


class OwnerGrants:
    """The `ProjectGrants` of an agent: what the file keeps for the sessions of its owner."""

    def __init__(self, decisions: KeptDecisions, owner: str) -> None:
        self._decisions = decisions
        self._owner = owner

    async def find(self, folder: str) -> Sequence[Grant]:
        """Return the approvals for a folder, without holding up the event loop."""
        # Most users have none, and a look at the folder is faster than a thread.
        if not self._decisions.path.exists():
            return ()
        return await asyncio.to_thread(self._decisions.grants, folder, owner=self._owner)

    async def add(self, grant: Grant) -> None:
        """Keep an approval; the oldest are dropped when there are too many."""
        new = msgspec.structs.replace(grant, owner=self._owner)
        await asyncio.to_thread(self._decisions.grant, new)


def _beneath(folder: Path, decisions: _Decisions) -> tuple[Grant, ...]:
    name = _name(folder)
    inside = name.rstrip("/") + "/"
    return tuple(
        grant
        for grant in decisions.grants
        if grant.folder == name or grant.folder.startswith(inside)
    )


def _name(folder: Path) -> str:
    return os.path.realpath(folder)


def _is_of_others(facts: os.stat_result) -> bool:
    if os.name != "posix":
        return False
    return bool(facts.st_mode & 0o022) or facts.st_uid not in {os.geteuid(), 0}
