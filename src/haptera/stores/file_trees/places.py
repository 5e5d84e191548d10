"""Places: what stands at the paths of a folder, seen and changed without following links in it."""

import errno
import fcntl
import hashlib
import os
import signal
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

_PIECE = 1 << 20
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
OF_CALLER = -1
"""A mode: the one that any program of the user gives a new file."""
NEW_TIME = -1
"""A time: that of writing."""


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """What stands at a path: a file, a symbolic link, a folder or something else, or nothing."""

    kind: Literal["absent", "file", "link", "folder", "other"] = "absent"
    mode: int = OF_CALLER
    size: int = 0
    mtime_ns: int = NEW_TIME
    owner: tuple[int, int] | None = None
    inode: int = 0
    digest: str = ""
    """Of the content of a file, or of where a link leads."""
    is_run: bool = False
    """With the mode of the caller: whether a file is executable."""

    def is_as(self, other: "FileState") -> bool:
        """Whether content and mode are the same; a mode of the caller's is any."""
        modes = {self.mode, other.mode} - {OF_CALLER}
        is_alike = (self.kind, self.digest) == (other.kind, other.digest)
        return is_alike and (self.kind != "file" or len(modes) <= 1)

    def is_untouched(self, now: "FileState") -> bool:
        """Whether it is still the same file, not written since."""
        return self == msgspec.structs.replace(now, digest=self.digest)


class RefusedError(Exception):
    """Why a path is left as it is."""


class ChangedError(Exception):
    """A path was changed while the files of a rewind were exchanged."""


class Places:
    """The paths beneath one folder. Every folder on the way is opened without following a link.

    A path is only what its folders list. Where other spellings lead to the same file (`A.TXT` to
    `a.txt`, as on most disks of macOS and Windows), nothing stands at them.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listed: dict[tuple[int, int], tuple[int, Mapping[bytes, list[bytes]]]] = {}
        """What is in folders, by folded names, with the times of the folders."""

    @contextmanager
    def parent(self, path: bytes, make: Mapping[bytes, int] | None = None) -> Iterator[int]:
        """Open the folder of a path; with `make`, missing folders are made, with its modes.

        Raises:
            OSError: when there is no such folder, or a link or file is in its place.

        """
        descriptor = os.open(self.root, _FOLDER)
        try:
            names = path.split(b"/")[:-1]
            for count, name in enumerate(names, 1):
                if make is not None:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                        if (mode := make.get(b"/".join(names[:count]))) is not None:
                            os.chmod(name, mode, dir_fd=descriptor)
                if self._other_name(descriptor, name) is not None:
                    raise FileNotFoundError(errno.ENOENT, "it has another name", path)
                below = os.open(name, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def full(self, path: bytes) -> bytes:
        """Return the whole path of something in the folder."""
        return os.fsencode(self.root) + b"/" + path

    def _other_name(self, folder: int, name: bytes) -> bytes | None:
        """Return the name of what stands in the place of a name in an open folder."""
        if not any(_is_in(folder, other) for other in _spellings(name)):
            return None
        facts = os.stat(folder)
        key = (facts.st_dev, facts.st_ino)
        time, listed = self._listed.get(key, (None, {}))
        if time != facts.st_mtime_ns:
            listed = dict[bytes, list[bytes]]()
            for each in os.listdir(folder):
                listed.setdefault(folded(os.fsencode(each)), []).append(os.fsencode(each))
            self._listed[key] = (facts.st_mtime_ns, listed)
        names = listed.get(folded(name), [name])
        return None if name in names or not _is_in(folder, name) else names[0]

    def taken_by(self, path: bytes) -> bytes | None:
        """Return what has another name and the place of a path, or of a folder above it."""
        above = b""
        for name in path.split(b"/"):
            try:
                with self.parent(above + name) as folder:
                    other = self._other_name(folder, name)
            except OSError:
                return None
            if other is not None:
                return above + other
            above += name + b"/"
        return None

    def as_listed(self, path: bytes) -> bytes:
        """Return a path with the names that its folders list."""
        while (other := self.taken_by(path)) is not None and not path.startswith(other):
            path = b"/".join((other, *path.split(b"/")[other.count(b"/") + 1 :]))
        return path

    def state(self, path: bytes) -> FileState:
        """Return what stands at a path, without its content."""
        try:
            with self.parent(path) as folder:
                if self._other_name(folder, name_in(path)) is not None:
                    return FileState()
                return state_in(folder, name_in(path))
        except OSError as error:
            if error.errno in _NOT_THERE:
                return FileState()
            raise

    def whole_state(self, path: bytes) -> FileState:
        """Return what stands at a path, with its content; without it what cannot be read."""
        state = self.state(path)
        if state.kind != "file":
            return state
        digest = hashlib.sha256()
        try:
            with self.parent(path) as folder:
                descriptor = os.open(name_in(path), _LOOK, dir_fd=folder)
            _read(descriptor, digest.update)
        except OSError:
            return state
        return msgspec.structs.replace(state, digest=digest.hexdigest())

    def keep(self, path: bytes, expected: FileState, copy: Path) -> str:
        """Copy a file, for its owner only and durably; returns the digest of its content.

        Raises:
            ChangedError: when it is not the expected file any more.
            OSError: when it cannot be copied.

        """
        digest = hashlib.sha256()
        with self.parent(path) as folder:
            source = os.open(name_in(path), _LOOK, dir_fd=folder)
        target = os.open(copy, _NEW, 0o600)
        try:

            def write(piece: bytes) -> None:
                digest.update(piece)
                write_sparsely(target, piece)

            _read(source, write)
            os.truncate(target, os.lseek(target, 0, os.SEEK_CUR))
            os.fsync(target)
        finally:
            os.close(target)
        if not expected.is_untouched(self.state(path)):
            raise ChangedError(os.fsdecode(path))
        return digest.hexdigest()

    def check_readable(self, path: bytes) -> None:
        """Refuse a file that cannot be read, or that a program has open for writing."""
        try:
            with self.parent(path) as folder:
                descriptor = os.open(name_in(path), _LOOK, dir_fd=folder)
        except OSError as error:
            raise RefusedError(f"it cannot be read: {error.strerror}") from error
        try:
            if _is_written(descriptor):
                raise RefusedError("a program has it open for writing")
        finally:
            os.close(descriptor)

    def check_way(self, path: bytes, gone: Collection[bytes]) -> list[bytes]:
        """Return the folders on the way to a path that are missing; refuse one that is blocked.

        What is in `gone` will not be in the way.
        """
        names = path.split(b"/")[:-1]
        on_way = [b"/".join(names[:count]) for count in range(1, len(names) + 1)]
        last, device = os.fsencode(self.root), self.root.lstat().st_dev
        for count, folder in enumerate(on_way):
            full = self.full(folder)
            if self.state(folder).kind == "absent":
                _check_writable(last)
                return on_way[count:]
            facts = os.lstat(full)
            if not stat.S_ISDIR(facts.st_mode):
                if folder in gone:
                    return on_way[count:]
                raise RefusedError("a file or link is in the place of its folder")
            if facts.st_dev != device:
                raise RefusedError("it is on another file system")
            last = full
        _check_writable(last)
        return []

    def folders_beneath(self, path: bytes, gone: Collection[bytes]) -> dict[bytes, int]:
        """Return the folders in the place of a file, with their modes, deepest last.

        Refuses if anything stays in them when `gone` has gone.
        """
        folders = dict[bytes, int]()
        pending = [path]
        while pending:
            folder = pending.pop()
            full = self.full(folder)
            folders[folder] = stat.S_IMODE(os.lstat(full).st_mode)
            with os.scandir(full) as entries:
                for entry in entries:
                    below = folder + b"/" + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(below)
                    elif below not in gone:
                        raise RefusedError("a folder with other files is in its place")
        return folders


def _spellings(name: bytes) -> set[bytes]:
    """Return other spellings of a name, of which a file system may take one for the same."""
    text = os.fsdecode(name)
    forms = {text.swapcase()}
    if not name.isascii():
        forms |= {unicodedata.normalize(form, text) for form in ("NFC", "NFD")}
    return {os.fsencode(form) for form in forms} - {name}


def folded(name: bytes) -> bytes:
    """Return what is the same for all names that a file system may take for one."""
    return os.fsencode(unicodedata.normalize("NFC", os.fsdecode(name)).casefold())


def _is_in(folder: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def name_in(path: bytes) -> bytes:
    """Return the last name of a path."""
    return path.rpartition(b"/")[2]


def state_in(folder: int, name: bytes | str) -> FileState:
    """Return what stands under a name in an open folder, without the content of a file."""
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return FileState()
    if stat.S_ISLNK(facts.st_mode):
        leads_to = os.fsencode(os.readlink(os.fsdecode(name), dir_fd=folder))
        digest = hashlib.sha256(leads_to).hexdigest()
        return FileState(kind="link", digest=digest, mtime_ns=facts.st_mtime_ns, inode=facts.st_ino)
    if stat.S_ISDIR(facts.st_mode):
        return FileState(kind="folder", mode=stat.S_IMODE(facts.st_mode))
    return FileState(
        kind="file" if stat.S_ISREG(facts.st_mode) else "other",
        mode=stat.S_IMODE(facts.st_mode),
        size=facts.st_size,
        mtime_ns=facts.st_mtime_ns,
        owner=(facts.st_uid, facts.st_gid),
        inode=facts.st_ino,
    )


def write_sparsely(descriptor: int, piece: bytes) -> None:
    """Write a piece at the current place; one of zeros becomes a hole."""
    if not piece.strip(b"\0"):
        os.lseek(descriptor, len(piece), os.SEEK_CUR)
        return
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


def _read(descriptor: int, take: Callable[[bytes], None]) -> None:
    """Hand over all of a file, and close it."""
    try:
        while piece := os.read(descriptor, _PIECE):
            take(piece)
    finally:
        os.close(descriptor)


def copy_file(source: Path, folder: int, name: str, *, mode: int) -> None:
    """Copy a file of ours under a name in an open folder; the mode is what the umask leaves."""
    target = os.open(name, _NEW, mode, dir_fd=folder)
    try:
        _read(os.open(source, _LOOK), lambda piece: write_sparsely(target, piece))
        os.truncate(target, os.lseek(target, 0, os.SEEK_CUR))
    finally:
        os.close(target)


def _check_writable(folder: bytes) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RefusedError("its folder cannot be written")


def _is_written(descriptor: int) -> bool:
    """Whether a program has a file open for writing; what it writes later would be lost."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        # A lease that another program breaks is told by a signal; this one is ignored by default.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False
