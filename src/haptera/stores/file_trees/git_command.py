"""Runs `git` on a repository of Haptera's own, cut off from the user's and the project's git.

The project's repository is never opened. No configuration, hook, filter or attribute of the user,
the machine or the project has an effect: files are kept byte for byte, and nothing is executed.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from haptera.model.errors import ErrorCode, StoreError
from haptera.model.file_snapshots import is_tree
from haptera.system.atomic_files import create_folder, replace_file
from haptera.system.private_files import (
    open_or_create,
    read_or_empty,
    store_error_of,
)

_CONFIGURATION = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.excludesFile=/dev/null",
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.symlinks=true",
    "core.fileMode=true",
    "core.quotePath=false",
    # A name is the one that its folder lists, also where other spellings of it lead to the file.
    "core.ignoreCase=false",
    "core.precomposeUnicode=false",
    # No ref leads to the trees, so a garbage collection would count them as waste.
    "gc.auto=0",
)
_NO_CONVERSION = b"* -text !eol !working-tree-encoding -ident !filter\n"
"""Stands in `info/attributes`, which wins over every `.gitattributes` of the project."""
_LONGEST_MESSAGE = 500
_OWNER_ONLY = 0o077


class GitRepository:
    """A repository whose work tree is a folder that knows nothing of it.

    One process works on it at a time. The lock is handed to git itself, so that it is held as long
    as a git runs that a killed process has left behind.
    """

    def __init__(
        self, folder: Path, git_folder: Path, *, environment: Mapping[str, str], seconds: float
    ) -> None:
        self.folder = folder
        self.git_folder = git_folder
        self._path = environment.get("PATH") or os.defpath
        self._seconds = seconds
        self._lock: int | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes and threads away, and make the repository if it is missing.

        Raises:
            StoreError: UNAVAILABLE or FULL, saying why it cannot be used.

        """
        try:
            create_folder(self.git_folder)
            lock = open_or_create(self.git_folder / "lock", os.O_RDWR)
        except OSError as error:
            raise store_error_of(error, self.git_folder) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._lock = lock
            self._prepare()
            yield
        except OSError as error:
            raise store_error_of(error, self.git_folder) from error
        finally:
            self._lock = None
            os.close(lock)

    def _prepare(self) -> None:
        # No other git runs on it while we hold our own lock, whose file is called `lock`.
        for stale in self.git_folder.glob("*.lock"):  # left by a git that was killed
            with suppress(FileNotFoundError):
                stale.unlink()
        if not (self.git_folder / "HEAD").exists():
            # Templates of the machine can hold hooks.
            self.run("init", "--quiet", "--template=")
        info = self.git_folder / "info"
        info.mkdir(mode=0o700, exist_ok=True)
        _write_if_new(info / "attributes", _NO_CONVERSION)

    def exclude(self, patterns: bytes) -> None:
        """Let new files that match a pattern be ignored."""
        _write_if_new(self.git_folder / "info" / "exclude", patterns)

    def run(
        self,
        *arguments: str,
        trees: Sequence[str] = (),
        given: bytes = b"",
        index: str = "index",
    ) -> bytes:
        """Run one command, perhaps on trees, and return its output; only inside `locked`.

        What it makes is for its owner only.

        Raises:
            StoreError: UNAVAILABLE with what git said, that there is no git, or that what is given
                as a tree is none.

        """
        # The ids come from logs. One that is none could be an option, or another revision.
        if not all(map(is_tree, trees)):
            raise unavailable(f"git {arguments[0]}: the id of a snapshot is not that of a tree")
        # Git knows the option since 2.24; an earlier one refuses the command, naming it.
        named = ["--end-of-options", *trees] if trees else []
        program = shutil.which("git", path=self._path)
        if program is None:
            raise unavailable("there is no program `git` on this machine")
        options = [word for value in _CONFIGURATION for word in ("-c", value)]
        try:
            done = subprocess.run(  # noqa: S603 - `git`, with arguments of our own
                [program, *options, *arguments, *named],
                input=given,
                capture_output=True,
                check=False,
                cwd=self.folder,
                env=self._environment(index),
                timeout=self._seconds,
                umask=_OWNER_ONLY,
                # A lock of `flock` lasts until the last process with the descriptor has ended.
                pass_fds=() if self._lock is None else (self._lock,),
            )
        except subprocess.TimeoutExpired:
            raise unavailable(f"git {arguments[0]} took longer than {self._seconds:g} s") from None
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip()[:_LONGEST_MESSAGE]
            raise unavailable(f"git {arguments[0]} failed: {words or done.returncode}")
        return done.stdout

    def _environment(self, index: str) -> dict[str, str]:
        return {
            "PATH": self._path,
            "LC_ALL": "C",
            # Without a `.gitconfig`, for a git that is too old to know GIT_CONFIG_GLOBAL.
            "HOME": str(self.git_folder),
            "GIT_DIR": str(self.git_folder),
            "GIT_WORK_TREE": str(self.folder),
            "GIT_INDEX_FILE": str(self.git_folder / index),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            # A file may be named like a pattern.
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }


def unavailable(message: str) -> StoreError:
    """Make the error of a snapshot that cannot be taken or used."""
    return StoreError(ErrorCode.UNAVAILABLE, message)


def _write_if_new(path: Path, content: bytes) -> None:
    if read_or_empty(path) != content:
        replace_file(path, content, is_durable=False)
