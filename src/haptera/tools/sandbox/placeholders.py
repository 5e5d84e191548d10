"""Placeholders: empty folders that stand where a protected name is missing.

A mount protects a name only if there is something to mount on. What does not exist yet, such as a
`.git` with hooks in it, could be made by a command and be run by the next program that looks. So
an empty folder is made for as long as commands run. Its mode marks it as ours. The last command
removes it; one that a crash left behind is removed after the next command.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from types import TracebackType
from typing import Self

_MARK = stat.S_ISVTX | 0o555


class Placeholders:
    """Holds a place for every missing name in a folder while it is entered."""

    def __init__(self, root: int, names: Iterable[str]) -> None:
        self._names = tuple(names)
        # An open file of its own: locks belong to it, and every command takes one.
        self._folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)

    def __enter__(self) -> Self:
        try:
            # Waits only while another command removes its placeholders.
            fcntl.flock(self._folder, fcntl.LOCK_SH)
            self.held = [name for name in self._names if self._is_held(name)]
        except BaseException:
            os.close(self._folder)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            # Removing one that another command has a mount on would take the mount away.
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in self._names:
                self._remove(name)
        except BlockingIOError:
            pass
        finally:
            os.close(self._folder)

    def _is_held(self, name: str) -> bool:
        """Whether there is something under the name now; in a folder that is read-only, no."""
        try:
            os.mkdir(name, dir_fd=self._folder)
            self._mark(name)
        except FileExistsError:
            return True
        except OSError as refused:
            if refused.errno in {errno.EACCES, errno.EROFS, errno.EPERM}:
                return False
            raise
        return True

    def _mark(self, name: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        # By descriptor: `chmod` would follow a link that was put in its place.
        folder = os.open(name, flags, dir_fd=self._folder)
        try:
            os.fchmod(folder, _MARK)
        finally:
            os.close(folder)

    def _remove(self, name: str) -> None:
        try:
            facts = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode) and stat.S_IMODE(facts.st_mode) == _MARK:
                os.rmdir(name, dir_fd=self._folder)
        except OSError:  # it is not there, or is not empty
            return
