"""TreeFacts: what a git tree cannot say of a folder: modes, and what is there but not recorded.

Without the second, a file that is not in a tree would be taken for one that was not there.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet

import msgspec

_USUAL = frozenset({0o644, 0o755})
_USUAL_OF_FOLDERS = 0o755
_MOST_NAMED = 2000
"""Files that are named one by one in folders without a recorded file; the rest is their folder."""
_NEVER_ENTERED = frozenset(
    {b".git", b"node_modules", b".venv", b"venv", b"__pycache__", b".tox", b".gradle"}
    | {b".mypy_cache", b".pytest_cache", b".ruff_cache"}
)
_EMPTY = "empty"
"""Stands beside a folder with nothing in it."""
_BYTES = "latin-1"
"""Names in JSON: each byte is one character, so that any name can be written."""


class TreeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What stood in a folder beside the content of the recorded files."""

    modes: dict[str, int] = {}
    """Of recorded files and of folders, where it is not the usual one; folders end with a `/`."""
    unrecorded: dict[str, str] = {}
    """What is in no tree, each with what changes when it is written. With a `/` at its end it is a
    folder: an empty one, or one whose content is not named."""

    def covers(self, path: str) -> bool:
        """Whether something may have stood at a path whose content is not known."""
        return self.covering(path) is not None

    def covering(self, path: str) -> str | None:
        """Return what was there at a path and not recorded: the path, or a folder above it."""
        if path in self.unrecorded:
            return path
        above = (name for name in folders_of(path) if name in self.unrecorded)
        return next((name for name in above if not self.is_empty(name)), None)

    def is_empty(self, folder: str) -> bool:
        """Whether a folder (with a `/`) had nothing in it."""
        return self.unrecorded.get(folder) == _EMPTY

    def has_folder(self, folder: str) -> bool:
        """Whether a folder (without `/`) held something that was not recorded, or was empty."""
        name = f"{folder}/"
        return self.covers(name) or any(path.startswith(name) for path in self.unrecorded)

    def mode(self, path: str, *, is_run: bool) -> int:
        """Return the mode of a recorded file."""
        return self.modes.get(path, 0o755 if is_run else 0o644)

    def folder_mode(self, folder: str) -> int:
        """Return the mode of a folder."""
        return self.modes.get(f"{folder}/", _USUAL_OF_FOLDERS)

    def encoded(self) -> bytes:
        """Return it as JSON."""
        return msgspec.json.encode(
            {"modes": _renamed(self.modes, _written), "unrecorded": _renamed_texts(self)}
        )


def decode_facts(content: bytes) -> TreeFacts:
    """Read what `encoded` wrote.

    Raises:
        msgspec.MsgspecError: when it is something else.

    """
    facts = msgspec.json.decode(content, type=TreeFacts)
    unrecorded = {_read(name): stamp for name, stamp in facts.unrecorded.items()}
    return TreeFacts(modes=_renamed(facts.modes, _read), unrecorded=unrecorded)


def folders_of(path: str) -> Iterator[str]:
    """Yield the folders above a path, each with a `/` at its end."""
    end = path.find("/")
    while end >= 0:
        yield path[: end + 1]
        end = path.find("/", end + 1)


def look_at(
    folder: bytes, recorded: AbstractSet[bytes], is_apart: Callable[[bytes], bool]
) -> tuple[TreeFacts, set[bytes]]:
    """Look at everything beneath a folder whose recorded files are known.

    Returns also the recorded files that no folder lists. The file system may know them still, if
    it takes other spellings for the same name: `a.txt` that was renamed to `A.TXT`, for one.
    """
    look = _Look(folder, recorded)
    pending, unlisted = [b""], list[bytes]()
    while pending:
        prefix = pending.pop()
        entries = _entries(folder + b"/" + prefix)
        if entries is None:
            unlisted.append(prefix)
        if prefix and not entries:
            look.unrecorded[os.fsdecode(prefix)] = "" if entries is None else _EMPTY
        for name, facts in entries or ():
            path = prefix + name
            look.missing.discard(path)
            if is_apart(path):
                continue
            if not stat.S_ISDIR(facts.st_mode):
                look.see_file(path, facts)
            elif look.enters(path + b"/", name, facts):
                pending.append(path + b"/")
    missing = {path for path in look.missing if not path.startswith(tuple(unlisted))}
    return TreeFacts(modes=look.modes, unrecorded=look.unrecorded), missing


class _Look:
    """What was seen of a folder so far."""

    def __init__(self, folder: bytes, recorded: AbstractSet[bytes]) -> None:
        self._folder = folder
        self._recorded = recorded
        self._above = _folders_above({path.rpartition(b"/")[0] for path in recorded})
        self.modes = dict[str, int]()
        self.unrecorded = dict[str, str]()
        self.missing = set(recorded)
        """Recorded files that were in no list so far."""

    def see_file(self, path: bytes, facts: os.stat_result) -> None:
        mode = stat.S_IMODE(facts.st_mode)
        if path not in self._recorded:
            stamp = f"{facts.st_size}:{facts.st_mtime_ns}:{mode:o}"
            self.unrecorded[os.fsdecode(path)] = stamp
        elif mode not in _USUAL and stat.S_ISREG(facts.st_mode):
            self.modes[os.fsdecode(path)] = mode

    def enters(self, path: bytes, name: bytes, facts: os.stat_result) -> bool:
        """Whether what is in a folder is looked at, too; otherwise it is not recorded."""
        if (mode := stat.S_IMODE(facts.st_mode)) != _USUAL_OF_FOLDERS:
            self.modes[os.fsdecode(path)] = mode
        is_named = len(self.unrecorded) < _MOST_NAMED and name not in _NEVER_ENTERED
        is_own = os.path.lexists(self._folder + b"/" + path + b".git")
        if path in self._above or (is_named and not is_own):
            return True
        self.unrecorded[os.fsdecode(path)] = ""
        return False


def _entries(folder: bytes) -> list[tuple[bytes, os.stat_result]] | None:
    """Return what is in a folder; None of one that cannot be read."""
    listed = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    listed.append((entry.name, entry.stat(follow_symlinks=False)))
                except FileNotFoundError:  # it has gone since
                    continue
    except OSError:
        return None
    return listed


def _folders_above(folders: Collection[bytes]) -> set[bytes]:
    """Return folders with all that are above them, each with a `/` at its end."""
    above = set[bytes]()
    for each in folders:
        folder = each
        while folder and folder + b"/" not in above:
            above.add(folder + b"/")
            folder = folder.rpartition(b"/")[0]
    return above


def _written(name: str) -> str:
    return os.fsencode(name).decode(_BYTES)


def _read(name: str) -> str:
    return os.fsdecode(name.encode(_BYTES))


def _renamed(modes: dict[str, int], rename: Callable[[str], str]) -> dict[str, int]:
    return {rename(name): mode for name, mode in sorted(modes.items())}


def _renamed_texts(facts: TreeFacts) -> dict[str, str]:
    return {_written(name): stamp for name, stamp in sorted(facts.unrecorded.items())}
