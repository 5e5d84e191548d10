"""Paths contained by descriptor: whatever a tool opens is opened beneath one folder.

A path is never checked as a string and used afterwards. The kernel opens it beneath the root
(`openat2`), or where it cannot, this module walks it name by name without following links on its
own; either way the descriptor that was checked is the one that is used.
"""

import errno
import os
import stat
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Literal, TypeAlias

import msgspec

from haptera.ports.permissions import PathGuard
from haptera.tools.sandbox.kernel import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, openat2
from haptera.tools.sandbox.private_beneath import PrivateBeneath
from haptera.tools.sandbox.private_paths import PrivatePaths, store_files

_FOLDER = os.O_PATH | os.O_DIRECTORY
# As many as the kernel follows.
_MOST_LINKS = 40
_MOST_TRIES = 64
_LONGEST = 4096
_RETRY = {errno.EAGAIN, errno.EINTR}

PathAccess: TypeAlias = Literal["read", "write"]

_guard_of_call: ContextVar[PathGuard | None] = ContextVar("guard_of_call", default=None)
"""The rules of the agent that makes the call; a root serves any number of agents."""


@contextmanager
def guarded(guard: PathGuard | None) -> Iterator[None]:
    """Let a guard be asked about every path that is touched inside, also in threads."""
    token = _guard_of_call.set(guard)
    try:
        yield
    finally:
        _guard_of_call.reset(token)


class PathRefusedError(Exception):
    """A path that leads out of the root, or to what may not be touched."""


class OpenedPath(msgspec.Struct, frozen=True):
    """A descriptor, and where it really is beneath the root, links resolved."""

    descriptor: int
    path: str


class NameInFolder(msgspec.Struct, frozen=True):
    """A name in an opened folder, where a file is or may be made; it is no symbolic link."""

    folder: int
    name: str
    path: str


Opener: TypeAlias = Callable[[int, str, int], OpenedPath]
"""Opens a path beneath a folder's descriptor with flags of `os.open`."""


class Root:
    """The folder that tools are kept to. Owns its descriptor, nothing else.

    `protected` names can be read and not written, wherever they are. What is private (stores,
    Haptera's own files, secrets of a home folder) can be neither. `guard` may refuse more.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        protected: tuple[str, ...] = (),
        guard: PathGuard | None = None,
        opener: Opener | None = None,
    ) -> None:
        self.path = os.path.realpath(path)
        # Models repeat the path that a user gave, which may lead to the root through a link.
        self._given = os.path.normpath(os.path.join(os.getcwd(), os.fspath(path)))
        self._descriptor = os.open(self.path, _FOLDER | os.O_CLOEXEC | os.O_NOFOLLOW)
        # Tools are never closed, so the descriptor goes with the object.
        weakref.finalize(self, os.close, self._descriptor)
        self._protected = frozenset(name.casefold() for name in protected)
        self._private = PrivatePaths(self.path)
        self._guard = guard
        self._open = opener or find_opener()

    @property
    def descriptor(self) -> int:
        """The root itself, for those who open beneath it without following any link."""
        return self._descriptor

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        facts = os.fstat(self._descriptor)
        return facts.st_dev, facts.st_ino

    @contextmanager
    def opened(self, path: str, flags: int) -> Iterator[OpenedPath]:
        """Open what a path names, to read it.

        Raises PathRefusedError, or OSError as `os.open` does.
        """
        file = self._open_contained(self.relative(path), flags)
        try:
            self._check("read", file.path)
            self._check_file(os.fstat(file.descriptor), file.path)
            yield file
        finally:
            os.close(file.descriptor)

    @contextmanager
    def opened_folder(self, path: str) -> Iterator[OpenedPath]:
        """Open a folder to list it."""
        with self.opened(path, os.O_RDONLY | os.O_DIRECTORY) as file:
            yield file

    @contextmanager
    def located(self, path: str) -> Iterator[NameInFolder]:
        """Find where a file is to be written: its folder, opened, and its name there.

        A symbolic link is followed to what it names, as long as that is beneath the root.
        """
        path = self.relative(path)
        for _ in range(_MOST_LINKS):
            folder, _, name = path.rstrip("/").rpartition("/")
            if name in {"", ".", ".."}:
                raise PathRefusedError(f"{path!r} does not name a file")
            parent = self._open_contained(folder or ".", _FOLDER)
            try:
                target = _link_target(parent.descriptor, name)
                if target is None:
                    real = os.path.normpath(os.path.join(parent.path, name))
                    self._check("write", real)
                    with suppress(FileNotFoundError):
                        here = os.stat(name, dir_fd=parent.descriptor, follow_symlinks=False)
                        self._check_file(here, real)
                    yield NameInFolder(parent.descriptor, name, real)
                    return
            finally:
                os.close(parent.descriptor)
            if target.startswith("/"):
                raise _outside(path)
            path = f"{folder}/{target}" if folder else target
        raise PathRefusedError(f"{path!r} has too many symbolic links")

    def real_path(self, path: str) -> str:
        """Return where a path leads beneath the root, links followed; it need not exist."""
        path = self.relative(path)
        try:
            file = self._open_contained(path, os.O_PATH)
        except FileNotFoundError:
            folder, _, name = path.rstrip("/").rpartition("/")
            return os.path.normpath(f"{self.real_path(folder or '.')}/{name}")
        os.close(file.descriptor)
        return file.path

    def make_folders(self, path: str) -> None:
        """Make the folders above a file that do not exist yet."""
        parts = [part for part in self.relative(path).split("/")[:-1] if part not in {"", "."}]
        for end in range(1, len(parts) + 1):
            folder = "/".join(parts[:end])
            try:
                os.close(self._open_contained(folder, _FOLDER).descriptor)
            except FileNotFoundError:
                with self.located(folder) as target, suppress(FileExistsError):
                    os.mkdir(target.name, dir_fd=target.folder)

    def relative(self, path: str) -> str:
        """Return a path as seen from the root; an absolute one must begin with the root's own."""
        if "\0" in path or len(path) > _LONGEST or not path:
            raise PathRefusedError(f"{path[:100]!r} is not a path")
        if not path.startswith("/"):
            return path
        # Only the text is made shorter here. Where it leads is decided by the opening.
        for root in (self.path, self._given):
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return path[len(root) :].lstrip("/") or "."
        raise _outside(path)

    def _open_contained(self, path: str, flags: int) -> OpenedPath:
        try:
            return self._open(self._descriptor, path, flags | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _outside(path) from None
            if error.errno == errno.ELOOP:
                raise PathRefusedError(f"{path!r} leads through a link that is refused") from None
            # An error of `openat2` names the system call and not the path.
            raise OSError(error.errno, os.strerror(error.errno or 0), path) from None

    def _check(self, access: PathAccess, path: str) -> None:
        """Ask about the place where something really is, whatever the name it was asked for by."""
        # On a file system that ignores case, `.GIT` is `.git`.
        parts = path.casefold().split("/")
        if access == "write" and not self._protected.isdisjoint(parts):
            raise PathRefusedError(f"{path!r} is protected: it can be read, not written")
        if self._private.beneath().holds(path):
            raise _private(path)
        for guard in (self._guard, _guard_of_call.get()):
            reason = guard(access, path) if guard is not None else None
            if reason is not None:
                raise PathRefusedError(f"{path!r} is refused: {reason}")

    def _check_file(self, state: os.stat_result, path: str) -> None:
        if stat.S_ISREG(state.st_mode) and (state.st_dev, state.st_ino) in store_files():
            raise _private(path)

    def private_beneath(self) -> PrivateBeneath:
        """Return what a search beneath the root must not open."""
        return self._private.beneath()._replace(files=tuple(store_files()))

    def is_refused(self, access: PathAccess, path: str) -> bool:
        """Whether something may not be touched, by its real path beneath the root."""
        try:
            self._check(access, path)
        except PathRefusedError:
            return True
        return False


def _outside(path: str) -> PathRefusedError:
    return PathRefusedError(f"{path!r} leads out of the root folder")


def _private(path: str) -> PathRefusedError:
    return PathRefusedError(
        f"{path!r} is refused: it is a file of Haptera's own, or one with the user's credentials"
    )


def _link_target(folder: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def find_opener() -> Opener:
    """Return the kernel's way where it and `/proc` are there, and the walk elsewhere."""
    try:
        here = os.open(".", _FOLDER | os.O_CLOEXEC)
    except OSError:
        return open_by_walk
    try:
        os.close(open_by_kernel(here, ".", _FOLDER).descriptor)
    except (OSError, AttributeError):
        return open_by_walk
    finally:
        os.close(here)
    return open_by_kernel


def open_by_kernel(root: int, path: str, flags: int) -> OpenedPath:
    """Open a path beneath `root` in one system call."""
    # RESOLVE_BENEATH refuses the links in `/proc` today, but does not promise to.
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
    for _ in range(_MOST_TRIES):
        try:
            descriptor = openat2(root, os.fsencode(path), flags=flags, resolve=resolve)
        except OSError as error:
            # A folder on the way is being moved: the kernel cannot tell whether it stays beneath.
            if error.errno not in _RETRY:
                raise
            continue
        try:
            return OpenedPath(descriptor, _real_path(root, descriptor))
        except BaseException:
            os.close(descriptor)
            raise
    raise OSError(errno.EXDEV, "the folders on the way keep moving")


def _real_path(root: int, descriptor: int) -> str:
    """Return where a descriptor is beneath the root, as the kernel says."""
    top, target = (os.readlink(f"/proc/self/fd/{number}") for number in (root, descriptor))
    if target == top:
        return "."
    if not target.startswith(top.rstrip("/") + "/"):
        raise OSError(errno.EXDEV, "it was moved out of the root")
    return target[len(top.rstrip("/")) + 1 :]


def open_by_walk(root: int, path: str, flags: int) -> OpenedPath:
    """Open a path name by name. A link is read, and what it names is walked in its place."""
    if path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    walk = _Walk(root)
    try:
        todo = _names_of(path)
        while todo:
            name = todo.pop()
            if todo or name == "..":
                todo += walk.step(name)
                continue
            last = walk.open_last(name, flags)
            if isinstance(last, int):
                return OpenedPath(last, "/".join([*walk.names, name]))
            todo += last
        here = os.open(".", flags | os.O_NOFOLLOW, dir_fd=walk.here)
        return OpenedPath(here, "/".join(walk.names) or ".")
    finally:
        walk.close()


def _names_of(path: str) -> list[str]:
    """Return the names on a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]


class _Walk:
    """Where a walk is: the folders from the root down, each held open."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._folders: list[int] = []
        self.names: list[str] = []
        self._links = 0

    @property
    def here(self) -> int:
        return self._folders[-1] if self._folders else self._root

    def step(self, name: str) -> list[str]:
        """Go one name further; returns what to walk instead if it is a link, last name first."""
        if name == "..":
            if not self._folders:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            # Back to the folder that was entered. What `..` leads to may have been changed since.
            os.close(self._folders.pop())
            self.names.pop()
            return []
        try:
            # With O_PATH and O_NOFOLLOW a link would be opened itself; O_DIRECTORY refuses it.
            entered = os.open(name, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.here)
        except NotADirectoryError:
            return self._follow(name)
        self._folders.append(entered)
        self.names.append(name)
        return []

    def open_last(self, name: str, flags: int) -> int | list[str]:
        """Open what the path ends with; returns what to walk instead if it is a link."""
        if not flags & os.O_PATH or flags & os.O_DIRECTORY:
            try:
                return os.open(name, flags | os.O_NOFOLLOW, dir_fd=self.here)
            except OSError as error:
                if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                    raise
            return self._follow(name)
        # With O_PATH and O_NOFOLLOW a link is opened itself, without an error.
        descriptor = os.open(name, flags | os.O_NOFOLLOW, dir_fd=self.here)
        if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return self._follow(name)

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def _follow(self, name: str) -> list[str]:
        target = _link_target(self.here, name)
        self._links += 1
        if target is None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        if target.startswith("/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return _names_of(target)
