"""What a power cut would leave on the disk, by the syncs that this process made; for tests.

A power cut keeps of a file what was synced of it, and only if the folder that lists it was synced
after the file got its name.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest


class SyncedDisk:
    """What a power cut would leave, by the syncs of this process."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._listed: dict[Path, dict[str, int]] = {}
        """The files of each folder at its last sync: names and inodes."""
        self._sizes: dict[int, int] = {}
        """The size of each file at its last sync, by inode."""
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._noting(getattr(os, name)))

    def _noting(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def sync_and_note(descriptor: int) -> None:
            sync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.is_dir():
                self._listed[path] = {item.name: item.inode() for item in os.scandir(path)}
            else:
                found = os.fstat(descriptor)
                self._sizes[found.st_ino] = found.st_size

        return sync_and_note

    def keeps_name(self, path: Path) -> bool:
        """Whether a file or folder is found under its name after a power cut."""
        if path == self._root:
            return True
        is_listed = self._listed.get(path.parent, {}).get(path.name) == path.stat().st_ino
        return is_listed and self.keeps_name(path.parent)

    def keeps_content(self, path: Path) -> bool:
        """Whether a file has all of its content after a power cut, if it has its name."""
        found = path.stat()
        return self._sizes.get(found.st_ino) == found.st_size

    def keeps(self, path: Path) -> bool:
        """Whether a file has its name and all of its content after a power cut."""
        return self.keeps_name(path) and self.keeps_content(path)

    def has_forgotten(self, path: Path) -> bool:
        """Whether a file that was removed does not come back after a power cut."""
        return not path.exists() and path.name not in self._listed.get(path.parent, {})
