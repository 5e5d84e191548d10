"""GitTrees: what the files of a folder are, as trees in a git repository of Holdfast's own."""

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.ports.snapshots import TakenTree
from holdfast.ports.threads import run_in_thread
from holdfast.stores.file_trees.git_command import GitRepository, unavailable
from holdfast.stores.private_files import FILE_MODE
from holdfast.vocabulary.errors import StoreError
from holdfast.vocabulary.file_snapshots import ChangeKind, FileChange

_DEPENDENCIES = (
    b"node_modules/\n.venv/\nvenv/\n__pycache__/\n.mypy_cache/\n.pytest_cache/\n.ruff_cache/\n"
    b".tox/\n.gradle/\n"
)
"""What tools make again; a `.gitignore` of the project can say `!node_modules/`."""
_LARGEST_EXCLUDES = 1 << 20
_LONGEST_PATCH = 1 << 20
_DAY = 86_400
_KINDS: dict[bytes, ChangeKind] = {b"A": "added", b"D": "deleted"}
_GONE = f"0 {'0' * 40}".encode()
_REWIND_INDEX = "index.rewind"


class TreeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds at most."""

    file_bytes: int = 2 << 20
    """A larger file is skipped."""
    new_files: int = 50_000
    """More new or changed files than this, and no snapshot is taken."""
    seconds: float = 30.0
    """For one git command."""
    kept_days: int = 30
    """Trees that are older may be forgotten."""


USUAL_LIMITS = TreeLimits()


class GitTrees:
    """The `Snapshotter` of one folder. Owns the repository that keeps the trees.

    The repository is keyed by the folder: sessions of all agents and processes share it, and with
    it git's record of which files are unchanged. Everything runs in threads.
    """

    def __init__(
        self,
        folder: Path,
        *,
        data: Path,
        environment: Mapping[str, str],
        apart: Collection[Path] = (),
        limits: TreeLimits = USUAL_LIMITS,
    ) -> None:
        real = folder.resolve()
        digest = hashlib.sha256(os.fsencode(real)).hexdigest()
        git_folder = data.resolve() / "snapshots" / digest[:32]
        self._repository = GitRepository(
            real, git_folder, environment=environment, seconds=limits.seconds
        )
        self._folder = real
        self._limits = limits
        self._apart = tuple(_beneath(real, [git_folder, *apart]))
        """Paths that are in no snapshot: the store of the sessions must never be rewound."""

    async def take(self) -> TakenTree:
        """Record what the files are now."""
        return await run_in_thread(self._take)

    async def changes(self, old: str, new: str) -> tuple[FileChange, ...]:
        """Return the files that differ between two trees."""
        return await run_in_thread(lambda: self._changes(old, new))

    async def patch(self, old: str, new: str) -> str:
        """Return the difference between two trees as a unified diff."""
        return await run_in_thread(lambda: self._patch(old, new))

    async def restore(self, now: str, target: str, paths: Collection[str]) -> str:
        """Make files what they are in `target`; returns the new tree."""
        return await run_in_thread(lambda: self._restore(now, target, paths))

    def _take(self) -> TakenTree:
        home = Path.home()
        if self._folder in {home, *home.parents}:
            raise unavailable(f"{self._folder} is a home folder or holds one; no snapshots of it")
        with self._repository.locked():
            taken = self._take_locked()
            self._forget_old()
        return taken

    def _take_locked(self) -> TakenTree:
        git = self._repository.run
        self._repository.exclude(_DEPENDENCIES + self._own_excludes())
        wanted, gone, skipped = list[bytes](), list[bytes](), list[str]()
        links: dict[Path, bool] = {}
        for path in dict.fromkeys(self._list_changed()):
            if not path or self._is_apart(path):
                continue
            reason = self._reason_to_skip(path)
            if reason is not None:
                skipped.append(f"{os.fsdecode(path)}: {reason}")
            elif self._is_gone(self._folder / os.fsdecode(path), links):
                gone.append(path)
            else:
                wanted.append(path)
        if len(wanted) > self._limits.new_files:
            raise unavailable(
                f"{len(wanted):,} new files are more than the {self._limits.new_files:,} "
                "that a snapshot takes in"
            )
        # Git refuses a path behind a symbolic link or in the place of a folder, and with it the
        # whole list.
        if gone:
            git("update-index", "-z", "--force-remove", "--stdin", given=_list_of(gone))
        if wanted:
            words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
            git(*words, given=_list_of(wanted))
        return TakenTree(tree=_text(git("write-tree")), skipped=tuple(skipped))

    def _list_changed(self) -> list[bytes]:
        """List the files that are new, changed or gone since the last snapshot."""
        words = ("ls-files", "-z", "--others", "--modified", "--exclude-standard")
        try:
            listed = self._repository.run(*words)
        except StoreError:
            index = self._repository.git_folder / "index"
            if not index.exists():
                raise
            index.unlink()  # it may be damaged, and all of it can be made again
            listed = self._repository.run(*words)
        return listed.split(b"\0")

    def _is_gone(self, path: Path, links: dict[Path, bool]) -> bool:
        """Whether a path is no file of the folder any more: git refuses to look at some of these.

        A folder is in its place, or a link in the place of a folder above it.
        """
        if not path.is_symlink() and (path.is_dir() or not path.exists()):
            return True
        above = [folder for folder in path.parents if folder.is_relative_to(self._folder)]
        for folder in above[:-1]:
            if folder not in links:
                links[folder] = folder.is_symlink()
        return any(links[folder] for folder in above[:-1])

    def _is_apart(self, path: bytes) -> bool:
        """Whether a path is one that is kept apart, inside it, or a file of SQLite's beside it."""
        return any(
            path == name or path.startswith((name + b"/", name + b"-")) for name in self._apart
        )

    def _reason_to_skip(self, path: bytes) -> str | None:
        """Say why a file is not taken in; one that is gone is taken out instead."""
        # How `ls-files` lists a folder that has a `.git` of its own.
        if path.endswith(b"/"):
            return "a repository of its own"
        full = self._folder / os.fsdecode(path)
        try:
            found = full.lstat()
        except OSError:
            return None
        if stat.S_ISREG(found.st_mode):
            if found.st_size > self._limits.file_bytes:
                return f"larger than {self._limits.file_bytes:,} bytes"
            # One such file would make git refuse the whole list.
            if not os.access(full, os.R_OK):
                return "not readable"
        return None

    def _own_excludes(self) -> bytes:
        """Read what the project ignores beside its `.gitignore` files; it is only text."""
        path = self._folder / ".git" / "info" / "exclude"
        try:
            if stat.S_ISREG(path.lstat().st_mode):
                with path.open("rb") as file:
                    return file.read(_LARGEST_EXCLUDES)
        except OSError:
            pass
        return b""

    def _forget_old(self) -> None:
        """Remove trees that are older than is kept, once a day."""
        mark, lock = self._repository.git_folder / "pruned", self._repository.git_folder / "lock"
        # The file system's clock is asked by touching a file, so that both times come from one
        # clock.
        os.utime(lock)
        if mark.exists() and lock.stat().st_mtime - mark.stat().st_mtime < _DAY:
            return
        if mark.exists():
            self._repository.run("prune", f"--expire={self._limits.kept_days}.days.ago")
        mark.touch(FILE_MODE)

    def _changes(self, old: str, new: str) -> tuple[FileChange, ...]:
        if old == new:
            return ()
        with self._repository.locked():
            listed = self._repository.run(
                "diff-tree", "-r", "-z", "--no-renames", "--name-status", trees=(old, new)
            )
        # One iterator in both arguments of `zip` gives pairs. The empty text behind the last is
        # dropped.
        words = iter(listed.split(b"\0"))
        return tuple(
            FileChange(path=os.fsdecode(path), kind=_KINDS.get(status, "changed"))
            for status, path in zip(words, words, strict=False)
        )

    def _patch(self, old: str, new: str) -> str:
        if old == new:
            return ""
        with self._repository.locked():
            said = self._repository.run(
                *("diff-tree", "-r", "-p", "-M", "--no-color", "--no-ext-diff", "--no-textconv"),
                trees=(old, new),
            )
        text = said[:_LONGEST_PATCH].decode("utf-8", "replace")
        return text if len(said) <= _LONGEST_PATCH else f"{text}\n[the rest was left out]\n"

    def _restore(self, now: str, target: str, paths: Collection[str]) -> str:
        wanted = {os.fsencode(path) for path in paths}
        with self._repository.locked():
            git = self._repository.run
            raw = git("diff-tree", "-r", "-z", "--no-renames", "--raw", trees=(now, target))
            gone, made = list[bytes](), list[bytes]()
            for path, mode, name in _raw_changes(raw):
                if path not in wanted:
                    continue
                if mode == b"000000":
                    gone.append(_GONE + b"\t" + path + b"\0")
                else:
                    made.append(mode + b" " + name + b"\t" + path + b"\0")
            # The new tree is put together in an index of its own. The usual one has to stay as it
            # is: it says which files are unchanged since `now`.
            git("read-tree", trees=(now,), index=_REWIND_INDEX)
            # Removals come first: where a file becomes a folder, git adds nothing below it before
            # the file is out of the index.
            lines = b"".join((*gone, *made))
            git("update-index", "-z", "--index-info", given=lines, index=_REWIND_INDEX)
            made_tree = _text(git("write-tree", index=_REWIND_INDEX))
            # A file that was written again with the same content is not a changed one.
            git("update-index", "-q", "--refresh")
            # Refuses, before it changes anything, if a file is not what it is in `now`.
            git("read-tree", "-m", "-u", trees=(now, made_tree), writes_files=True)
        return made_tree


def _raw_changes(raw: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield path, new mode and new object of each change in `diff-tree --raw -z`."""
    words = iter(raw.split(b"\0"))
    for facts, path in zip(words, words, strict=False):
        _, mode, _, name, _ = facts.split(b" ")
        yield path, mode, name


def _beneath(folder: Path, paths: Collection[Path]) -> Iterator[bytes]:
    """Yield paths relative to the folder, as git writes them; those elsewhere are left out."""
    for path in paths:
        real = path.resolve()
        if real.is_relative_to(folder):
            yield os.fsencode(real.relative_to(folder))


def _list_of(paths: Collection[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _text(output: bytes) -> str:
    return output.decode().strip()
