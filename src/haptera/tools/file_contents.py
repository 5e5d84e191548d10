"""Contents of files: text, pictures or bytes; what of a session was read; and safe replacement."""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from haptera.model.ids import SessionId
from haptera.system.abort import AbortSignal
from haptera.tools.contained_paths import NameInFolder, PathRefusedError, Root

MOST_EDITED = 10 << 20
"""Bytes of a file that can be edited, and that are read as a whole."""
_BLOCK = 1 << 20
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_MOST_REMEMBERED = 10_000
# Without O_NONBLOCK opening a pipe would wait for a writer.
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class StaleFileError(Exception):
    """A file that is not what the session last saw of it."""


class FileContent(msgspec.Struct, frozen=True):
    """A whole file, and where it really is."""

    path: str
    content: bytes
    state: os.stat_result | None = None
    """What the file system knew of it when it was read."""

    @property
    def text(self) -> str | None:
        """The content as text; None if it is none."""
        if b"\0" in self.content:
            return None
        try:
            return self.content.decode("utf-8")
        except UnicodeDecodeError:
            return None

    @property
    def digest(self) -> str:
        """What the content is recognised by."""
        return hashlib.sha256(self.content).hexdigest()


def picture_kind(content: bytes) -> str | None:
    """Return the MIME type of a picture that models can look at."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for head, kind in _PICTURES.items() if content.startswith(head)), None)


def read_whole(root: Root, path: str) -> FileContent | None:
    """Read a regular file; None if it is too large for that."""
    with root.opened(path, _READING) as file:
        return _read(file.descriptor, file.path)


def read_at(target: NameInFolder) -> FileContent | None:
    """Read what is to be replaced, in the folder that was opened; None if it is too large."""
    flags = _READING | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(target.name, flags, dir_fd=target.folder)
    try:
        return _read(descriptor, target.path)
    finally:
        os.close(descriptor)


def _read(descriptor: int, path: str) -> FileContent | None:
    state = _regular(descriptor, path)
    pieces: list[bytes] = []
    left = MOST_EDITED
    # The file may grow meanwhile: what is read counts, not what it was said to be.
    while left >= 0 and (piece := os.read(descriptor, _BLOCK)):
        pieces.append(piece)
        left -= len(piece)
    return FileContent(path, b"".join(pieces), state) if left >= 0 else None


def read_lines(root: Root, path: str, signal: AbortSignal) -> Iterator[bytes]:
    """Read the lines of a file of any size, block by block, until the signal is aborted."""
    with root.opened(path, _READING) as file:
        _regular(file.descriptor, file.path)
        rest = b""
        while (block := os.read(file.descriptor, _BLOCK)) and not signal.aborted:
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
            if len(rest) > _BLOCK:  # one line without end: it is cut where it is
                yield rest
                rest = b""
        if rest:
            yield rest


def _regular(descriptor: int, path: str) -> os.stat_result:
    state = os.fstat(descriptor)
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(f"{path!r} is a folder; list it")
    if not stat.S_ISREG(state.st_mode):
        raise PathRefusedError(f"{path!r} is not a regular file")
    return state


class SeenFiles:
    """Remembers what each session last saw of each file, so that no change is overwritten blindly.

    Kept in memory: after a restart a file has to be read again before it is changed.
    """

    def __init__(self) -> None:
        self._digests: OrderedDict[tuple[SessionId, str], str] = OrderedDict()

    def remember(self, session: SessionId, path: str, digest: str) -> None:
        """Note what was read or written."""
        self._digests[session, path] = digest
        self._digests.move_to_end((session, path))
        if len(self._digests) > _MOST_REMEMBERED:
            self._digests.popitem(last=False)

    def check(self, session: SessionId, file: FileContent) -> None:
        """Refuse a file that was not read, or has changed since."""
        seen = self._digests.get((session, file.path))
        if seen is None:
            raise StaleFileError(f"{file.path!r} exists and was not read yet; read it first")
        if seen != file.digest:
            raise StaleFileError(f"{file.path!r} has changed since it was read; read it again")


def replace_content(target: NameInFolder, content: bytes, *, before: FileContent | None) -> None:
    """Put new content under a name in one step; a hard link elsewhere keeps the old content.

    `before` is what was there; a new file gets the mode that the user's umask gives.
    """
    # Without the name of the file: a name may be as long as the file system permits, in bytes.
    temporary = f".haptera-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A file that replaces another is closed to others until it has the owner and mode of that one.
    mode = 0o666 if before is None else 0o600
    descriptor = os.open(temporary, flags, mode, dir_fd=target.folder)
    here = {"src_dir_fd": target.folder, "dst_dir_fd": target.folder}
    try:
        with open(descriptor, "wb") as file:
            if before is not None and before.state is not None:
                _take_over(descriptor, before.state)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        if before is None:
            _put_new(temporary, target)
        else:
            # What changes between this and the rename is lost: there is no rename that compares.
            _check_unchanged(target, before)
            os.rename(temporary, target.name, **here)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=target.folder)


def _put_new(temporary: str, target: NameInFolder) -> None:
    """Give a new file its name, unless another file has that name by now."""
    here = {"src_dir_fd": target.folder, "dst_dir_fd": target.folder}
    try:
        # Unlike a rename, a link fails when the name is taken.
        os.link(temporary, target.name, follow_symlinks=False, **here)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}:
            raise
        os.rename(temporary, target.name, **here)  # a file system without hard links


def _take_over(descriptor: int, state: os.stat_result) -> None:
    """Give a file the owner and mode of the one that it replaces."""
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, state.st_uid, state.st_gid)
    # Without the set-id bits: what a model writes must not run as the owner of the file.
    os.fchmod(descriptor, stat.S_IMODE(state.st_mode) & 0o777)


def _check_unchanged(target: NameInFolder, before: FileContent) -> None:
    now = os.stat(target.name, dir_fd=target.folder, follow_symlinks=False)
    if before.state is None or _moment(now) != _moment(before.state):
        raise StaleFileError(f"{target.path!r} was changed just now; read it again")


def _moment(state: os.stat_result) -> tuple[int, int, int, int]:
    # Without `st_ctime`: another mode or a new hard link is no change of the content.
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
