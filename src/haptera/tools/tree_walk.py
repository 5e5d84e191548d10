"""A walk through a folder by descriptors: no link is followed, and nothing outside is reached.

Standard library only: the process that searches imports this without the rest of the package.
"""

import os
import stat
from collections.abc import Iterator

# One descriptor is open for each level.
_DEEPEST = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SKIPPED = (
    ".git", ".haptera", ".hg", ".holdfast", ".svn", ".venv", "__pycache__", "node_modules",
)  # fmt: skip
"""Folders that a search leaves out unless it begins inside."""


def walk_files(folder: int, skipped: frozenset[str]) -> Iterator[tuple[str, int, str]]:
    """Yield path, folder and name of every file, sorted; the folder is open until the next step."""
    yield from _walk(folder, "", skipped)


def _walk(
    folder: int, above: str, skipped: frozenset[str], *, deepest: int = _DEEPEST
) -> Iterator[tuple[str, int, str]]:
    folders: list[str] = []
    with os.scandir(folder) as entries:
        names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_folder in names:
        if not is_folder:
            yield f"{above}{name}", folder, name
        elif name not in skipped and deepest:
            folders.append(name)
    for name in folders:
        try:
            inner = os.open(name, _FOLDER, dir_fd=folder)
        except OSError:  # gone, closed to us, or a link by now
            continue
        try:
            yield from _walk(inner, f"{above}{name}/", skipped, deepest=deepest - 1)
        finally:
            os.close(inner)


def open_regular(folder: int, name: str) -> int | None:
    """Open a file for reading if it is a regular one; a pipe or a device is left alone."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
