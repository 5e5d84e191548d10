"""GitTrees: what the files of a folder are, as trees in a git repository of Haptera's own."""

import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from haptera.model.errors import StoreError
from haptera.model.file_snapshots import ChangeKind, FileChange, FileLeft, is_tree
from haptera.ports.snapshots import PlannedChanges, TakenTree, TreeDifference
from haptera.stores.file_trees.git_command import GitRepository, unavailable
from haptera.stores.file_trees.kept_files import (
    FORMER_STAGING,
    STAGING,
    Examined,
    KeptFiles,
    KeptLimits,
    Wanted,
)
from haptera.stores.file_trees.places import OF_CALLER, FileState, Places
from haptera.stores.file_trees.tree_facts import TreeFacts, decode_facts, folders_of, look_at
from haptera.system.private_files import FILE_MODE
from haptera.system.threads import run_in_thread

_DEPENDENCIES = (
    b"node_modules/\n.venv/\nvenv/\n__pycache__/\n.mypy_cache/\n.pytest_cache/\n.ruff_cache/\n"
    b".tox/\n.gradle/\n"
)
"""What tools make again; a `.gitignore` of the project can say `!node_modules/`."""
_LARGEST_EXCLUDES = 1 << 20
_LONGEST_PATCH = 1 << 20
_DAY = 86_400
_KINDS: dict[bytes, ChangeKind] = {b"A": "added", b"D": "deleted"}
_NO_FILE, _LINK, _PROGRAM = b"000000", b"120000", b"100755"
_NOT_RECORDED = "it was not recorded then"
_REWIND_INDEX = "index.rewind"
_HELD = b"H "
"""Stands before what the index holds; before what is new or changed stands another letter."""
_MOST_KNOWN = 8
_STORE_COMMIT = ("hash-object", "-t", "commit", "-w", "--stdin")


class TreeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds at most."""

    file_bytes: int = 2 << 20
    """A larger file is skipped."""
    new_files: int = 50_000
    """More new or changed files than this, and no snapshot is taken."""
    seconds: float = 30.0
    """For one git command."""
    kept_days: int = 30
    """Trees and copies that are older may be forgotten."""
    kept: KeptLimits = KeptLimits()
    """Of what is copied before a rewind."""


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
        self._known: dict[str, TreeFacts | None] = {}
        """The facts of snapshots that were read last. Used under the lock of the repository."""

    async def take(self) -> TakenTree:
        """Record what the files are now."""
        return await run_in_thread(self._take)

    async def difference(self, old: str, new: str) -> TreeDifference:
        """Return what differs between two trees."""
        return await run_in_thread(lambda: self._difference(old, new))

    async def patch(self, old: str, new: str) -> str:
        """Return the difference between two trees as a unified diff."""
        return await run_in_thread(lambda: self._patch(old, new))

    async def plan(
        self, now: str, target: str, paths: Collection[str], *, session: str | None = None
    ) -> PlannedChanges:
        """Say how files become what they are in `target`; with a session, make copies for it."""
        return await run_in_thread(lambda: self._plan((now, target), paths, session))

    async def plan_undo(self, kept: str, *, session: str, force: bool = False) -> PlannedChanges:
        """Plan what takes an exchange back, with copies, unless there are conflicts."""
        return await run_in_thread(lambda: self._plan_undo(kept, session, force=force))

    async def carry_out(self, kept: str, *, session: str) -> None:
        """Make the changes of a plan: all of them, or none."""

        def work() -> None:
            with self._repository.locked():
                self._kept(session).carry_out(kept)

        await run_in_thread(work)

    async def take_back(self, kept: str, *, session: str) -> tuple[FileLeft, ...]:
        """Take back an exchange that was cut off; returns what was changed since, and is left."""

        def work() -> tuple[FileLeft, ...]:
            with self._repository.locked():
                return self._kept(session).take_back(kept)

        return await run_in_thread(work)

    def _kept(self, session: str) -> KeptFiles:
        return KeptFiles(
            self._folder,
            self._repository.git_folder / "kept",
            session=session,
            limits=self._limits.kept,
        )

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
        recorded, changed = self._list_files()
        for path in changed:
            if self._is_apart(path):
                continue
            reason = self._reason_to_skip(path)
            if reason is not None:
                skipped.append(f"{os.fsdecode(path)}: {reason}")
                if path in recorded:  # what an earlier snapshot holds of it is its content no more
                    gone.append(path)
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
        recorded.update(wanted)
        recorded.difference_update(gone)
        facts, missing = look_at(os.fsencode(self._folder), recorded, self._is_apart)
        if missing:
            git("update-index", "-z", "--force-remove", "--stdin", given=_list_of(missing))
        return TakenTree(tree=self._with_facts(git("write-tree"), facts), skipped=tuple(skipped))

    def _with_facts(self, tree: bytes, facts: TreeFacts) -> str:
        """Store a tree with what it cannot say, as a commit: git takes it wherever it takes a tree.

        The same files have the same id.
        """
        who = b"haptera <> 0 +0000"
        commit = b"tree %sauthor %s\ncommitter %s\n\n%s" % (tree, who, who, facts.encoded())
        return _text(self._repository.run(*_STORE_COMMIT, given=commit))

    def _facts(self, tree: str) -> TreeFacts | None:
        """Return the facts of a snapshot; None of one that was taken before there were any."""
        if not is_tree(tree):
            raise unavailable("the id of a snapshot is not that of a tree")
        if tree not in self._known:
            while len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)), None)
            self._known[tree] = self._read_facts(tree)
        return self._known[tree]

    def _read_facts(self, tree: str) -> TreeFacts | None:
        output = self._repository.run("cat-file", "--batch", given=f"{tree}\n".encode())
        head, _, content = output.partition(b"\n")
        if head.endswith(b" missing"):
            raise unavailable(f"the snapshot {tree} is kept no longer")
        if head.split(b" ")[1] != b"commit":
            return None
        try:
            return decode_facts(content.partition(b"\n\n")[2])
        except msgspec.MsgspecError as error:
            raise unavailable(f"the snapshot {tree} is damaged") from error

    def _list_files(self) -> tuple[set[bytes], list[bytes]]:
        """List what the last snapshot holds, and what is new, changed or gone since then."""
        words = ("ls-files", "-z", "-t", "-c", "-o", "-m", "--exclude-standard")
        try:
            listed = self._repository.run(*words)
        except StoreError:
            index = self._repository.git_folder / "index"
            if not index.exists():
                raise
            index.unlink()  # it may be damaged, and all of it can be made again
            listed = self._repository.run(*words)
        held, changed = set[bytes](), dict[bytes, None]()
        for line in listed.split(b"\0"):
            if line.startswith(_HELD):
                held.add(line[2:])
            elif line:
                changed[line[2:]] = None
        return held, [*changed]

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
        return path.startswith((STAGING, FORMER_STAGING)) or any(
            path == name or path.startswith((name + b"/", name + b"-")) for name in self._apart
        )

    def _reason_to_skip(self, path: bytes) -> str | None:
        """Say why a file is not taken in; one that is gone is taken out instead."""
        # How `ls-files` lists a folder that has a `.git` of its own.
        if path.endswith(b"/"):
            return "a repository of its own"
        full = self._folder / os.fsdecode(path)
        try:
            state = full.lstat()
        except OSError:
            return None
        if stat.S_ISREG(state.st_mode):
            if state.st_size > self._limits.file_bytes:
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
            oldest = lock.stat().st_mtime - self._limits.kept_days * _DAY
            for copies in self._repository.git_folder.glob("kept/*/*"):
                if copies.stat().st_mtime < oldest:
                    shutil.rmtree(copies, ignore_errors=True)
        mark.touch(FILE_MODE)

    def _difference(self, old: str, new: str) -> TreeDifference:
        if old == new:
            return TreeDifference()
        with self._repository.locked():
            listed = self._repository.run(
                "diff-tree", "-r", "-z", "--no-renames", "--name-status", trees=(old, new)
            )
            before, after = self._facts(old), self._facts(new)
        # One iterator in both arguments of `zip` gives pairs. The empty text behind the last is
        # dropped.
        words = iter(listed.split(b"\0"))
        kinds = dict[str, ChangeKind]()
        for status, name in zip(words, words, strict=False):
            path, kind = os.fsdecode(name), _KINDS.get(status, "changed")
            # What is in one of the trees only may have been there both times.
            other = before if kind == "added" else after if kind == "deleted" else None
            kinds[path] = "changed" if other is not None and other.covers(path) else kind
        unseen: tuple[str, ...] = ()
        if before is not None and after is not None:
            for path in _changed_keys(before.modes, after.modes):
                if not path.endswith("/") and not (before.covers(path) or after.covers(path)):
                    kinds.setdefault(path, "changed")
            unseen = tuple(_unseen(before, after, kinds))
        changes = tuple(FileChange(path=path, kind=kinds[path]) for path in sorted(kinds))
        uncovered = tuple(path for path in kinds if before is not None and before.covers(path))
        return TreeDifference(changes=changes, uncovered=uncovered, unseen=unseen)

    def _patch(self, old: str, new: str) -> str:
        if old == new:
            return ""
        with self._repository.locked():
            output = self._repository.run(
                *("diff-tree", "-r", "-p", "-M", "--no-color", "--no-ext-diff", "--no-textconv"),
                trees=(old, new),
            )
        text = output[:_LONGEST_PATCH].decode("utf-8", "replace")
        return text if len(output) <= _LONGEST_PATCH else f"{text}\n[the rest was left out]\n"

    def _plan(
        self, trees: tuple[str, str], paths: Collection[str], session: str | None
    ) -> PlannedChanges:
        target, difference = trees[1], self._difference(*trees)
        unseen = frozenset(difference.unseen)
        with self._repository.locked():
            facts = self._facts(target)
            wanted, left = self._wanted(trees, frozenset(paths), facts)
            # A folder that is a repository by now, for one, holds what the session made.
            hidden = {
                name for path in paths for name in (path, *folders_of(path)) if name in unseen
            }
            # A former repository of the session's: it is not known who wrote what is in it.
            beside = {each.path for each in difference.changes}.difference(paths)
            hidden |= {name for path in beside for name in folders_of(path) if name in paths}
            left += [FileLeft(path=name, reason=_NOT_RECORDED) for name in sorted(hidden)]
            needed = _folders_above(
                self._repository.run("ls-tree", "-r", "-z", "--name-only", trees=(target,))
            )
            examined = self._kept(session or "").examine(
                wanted,
                is_needed=lambda folder: (
                    folder in needed or (facts is not None and facts.has_folder(folder))
                ),
                folder_mode=lambda folder: facts.folder_mode(folder) if facts else None,
            )
            copies = ""
            if session is not None and examined.wanted:
                copies = self._keep(examined, target, session)
        return PlannedChanges(
            changes=examined.changes(),
            left=tuple(sorted(left, key=lambda item: item.path)),
            refused=tuple(examined.refused),
            kept=copies,
        )

    def _wanted(
        self, trees: tuple[str, str], paths: Collection[str], facts: TreeFacts | None
    ) -> tuple[list[Wanted], list[FileLeft]]:
        """Return what files are to become, and which are left alone: their past is not known."""
        git = self._repository.run
        raw = git("diff-tree", "-r", "-z", "--no-renames", "--raw", trees=trees)
        changed = {os.fsdecode(path): mode for path, mode, _ in _raw_changes(raw)}
        # Of older snapshots it is only known what was ignored if the rules are still the same.
        is_unsure = facts is None and any(
            path.rpartition("/")[2] == ".gitignore" for path in changed
        )
        ignored = set(git("ls-files", "-z", "-c", "-i", "--exclude-standard").split(b"\0"))
        wanted, left = list[Wanted](), dict[str, FileLeft]()
        for path in sorted(set(changed).intersection(paths)):
            name, mode = os.fsencode(path), changed[path]
            if mode != _NO_FILE:
                wanted.append(Wanted(path=name, state=_state_of(path, mode, facts)))
            elif is_unsure or (facts is not None and facts.covers(path)):
                where = (facts.covering(path) if facts is not None else None) or path
                left[where] = FileLeft(path=where, reason=_NOT_RECORDED)
            elif name in ignored:
                left[path] = FileLeft(path=path, reason="it is ignored")
            else:
                wanted.append(Wanted(path=name, state=FileState()))
        if facts is not None:
            wanted += self._with_other_modes(trees, facts, set(paths) - set(changed))
        return wanted, list(left.values())

    def _with_other_modes(
        self, trees: tuple[str, str], facts: TreeFacts, paths: Collection[str]
    ) -> list[Wanted]:
        """Return the files of which only the mode is another."""
        present = self._facts(trees[0])
        if present is None:
            return []
        names = [path for path in _changed_keys(present.modes, facts.modes) if path in paths]
        if not names:
            return []
        listed = self._repository.run("ls-tree", "-r", "-z", trees=trees[1:]).split(b"\0")
        modes = {
            os.fsdecode(path): line.split(b" ")[0]
            for line, _, path in (entry.partition(b"\t") for entry in listed)
        }
        return [
            Wanted(path=os.fsencode(path), state=_state_of(path, modes[path], facts))
            for path in names
            if path in modes
        ]

    def _keep(self, examined: Examined, target: str, session: str) -> str:
        """Get the content of a tree out of git, and copy what it replaces."""
        paths_written = [item.path for item in examined.wanted if item.state.kind != "absent"]
        place = self._repository.git_folder / "checkout"
        shutil.rmtree(place, ignore_errors=True)
        try:
            git = self._repository.run
            git("read-tree", trees=(target,), index=_REWIND_INDEX)
            words = ("checkout-index", "-z", "--stdin", f"--prefix={place}/")
            git(*words, given=_list_of(paths_written), index=_REWIND_INDEX)
            examined.wanted = [
                msgspec.structs.replace(item, source=place / os.fsdecode(item.path))
                if item.state.kind != "absent"
                else item
                for item in examined.wanted
            ]
            return self._kept(session).keep(examined)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _plan_undo(self, name: str, session: str, *, force: bool) -> PlannedChanges:
        files = self._kept(session)
        with self._repository.locked():
            exchange = files.read(name)
            if exchange is None:
                raise unavailable("what the rewind replaced is kept no longer")
            problems = list(files.undoing(exchange, name))
            conflicts = tuple(os.fsdecode(item.path) for item, is_changed in problems if is_changed)
            examined = files.examine_undo(exchange, [item for item, _ in problems])
            copies = ""
            if examined.wanted and (force or not conflicts):
                copies = files.keep(examined)
        return PlannedChanges(
            changes=examined.changes(),
            refused=tuple(examined.refused),
            conflicts=conflicts,
            kept=copies,
        )


def _raw_changes(raw: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield path, new mode and new object of each change in `diff-tree --raw -z`."""
    words = iter(raw.split(b"\0"))
    for facts, path in zip(words, words, strict=False):
        _, mode, _, name, _ = facts.split(b" ")
        yield path, mode, name


def _beneath(folder: Path, paths: Collection[Path]) -> Iterator[bytes]:
    """Yield paths relative to the folder, as git writes them; those elsewhere are left out."""
    places = Places(folder)
    for path in paths:
        real = path.resolve()
        if real.is_relative_to(folder):
            yield places.as_listed(os.fsencode(real.relative_to(folder)))


def _state_of(path: str, mode: bytes, facts: TreeFacts | None) -> FileState:
    """Return what a recorded file is to become."""
    if mode == _LINK:
        return FileState(kind="link")
    is_run = mode == _PROGRAM
    mode_of_file = OF_CALLER if facts is None else facts.mode(path, is_run=is_run)
    return FileState(kind="file", mode=mode_of_file, is_run=is_run)


def _changed_keys(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _unseen(before: TreeFacts, after: TreeFacts, seen: Collection[str]) -> Iterator[str]:
    """Yield what neither tree holds and differs; of folders whose content is not known, nothing."""
    above = {folder for path in seen for folder in folders_of(path)}
    for path in _changed_keys(before.unrecorded, after.unrecorded):
        if path in seen or path in above:
            continue
        if path not in before.unrecorded or path not in after.unrecorded:
            if before.covers(path) and after.covers(path):
                continue
            holder, other = (before, after) if path in before.unrecorded else (after, before)
            if holder.is_empty(path) or (path.endswith("/") and other.has_folder(path[:-1])):
                continue
        yield path


def _folders_above(listed: bytes) -> frozenset[str]:
    """Return all folders of the paths that git listed."""
    return frozenset(
        str(parent)
        for path in listed.split(b"\0")
        for parent in PurePosixPath(os.fsdecode(path)).parents
    )


def _list_of(paths: Collection[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _text(output: bytes) -> str:
    return output.decode().strip()
