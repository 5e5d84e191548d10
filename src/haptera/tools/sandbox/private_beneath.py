"""What is private beneath one root, as a value that the process that searches is told, too.

Standard library only: that process imports this without the rest of the package.
"""

import os
import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

_LONGEST_NAME = 255


class PrivateBeneath(NamedTuple):
    """Paths relative to the root; travels as JSON, which makes lists of the collections."""

    closed: Collection[str] = ()
    """Files and folders."""
    databases: Collection[str] = ()
    """Files of SQLite; what is beside one and begins with its name and `-` belongs to it."""
    homes: Collection[str] = ()
    """Home folders in the root, in which names count."""
    names: str = ""
    """A regular expression for the names of keys, credentials and tokens."""
    files: Collection[tuple[int, int]] = ()
    """Device and inode of files that are private under whatever name."""

    def holds(self, path: str) -> bool:
        """Whether a path is private, or is in a private folder."""
        if any(path == name or path.startswith(f"{name}-") for name in self.databases):
            return True
        if self.closed and any(above in self.closed for above in _and_above(path)):
            return True
        return any(self._is_named(path, home) for home in self.homes)

    def holds_file(self, state: os.stat_result) -> bool:
        """Whether a file is private under another name, such as a hard link."""
        return any((state.st_dev, state.st_ino) == (each[0], each[1]) for each in self.files)

    def _is_named(self, path: str, home: str) -> bool:
        if home != "." and not path.startswith(f"{home}/"):
            return False
        names = path if home == "." else path[len(home) + 1 :]
        # No file has a longer name.
        possible = (name for name in names.split("/") if len(name) <= _LONGEST_NAME)
        return any(_compiled(self.names).fullmatch(name) for name in possible)


@lru_cache(maxsize=1)
def _compiled(names: str) -> "re.Pattern[str]":
    return re.compile(names, re.IGNORECASE | re.DOTALL)


def _and_above(path: str) -> list[str]:
    paths = [path]
    while path := path.rpartition("/")[0]:
        paths.append(path)
    return paths
