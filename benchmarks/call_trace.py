"""CallTrace: the functions of a package that are called while something runs."""

import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class CallTrace:
    """Counts the Python functions of a package that are called in this thread.

    A function that is resumed counts as one more call. A change of room is a call whose nearest
    caller in the package stands in another of its folders; what a task of the event loop begins
    with has no caller.
    """

    def __init__(self, package: Path) -> None:
        self._folder = f"{package}/"
        self.counts: Counter[str] = Counter()
        """The calls of each function, as `folder/file.py:Class.function`."""
        self.changes_of_room = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Count one event of `sys.setprofile`."""
        del argument
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(self._folder):
            return
        self.counts[f"{path.removeprefix(self._folder)}:{frame.f_code.co_qualname}"] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self._folder):
            caller = caller.f_back
        if caller is not None:
            self.changes_of_room += self._room(caller.f_code.co_filename) != self._room(path)

    @contextmanager
    def running(self) -> Generator[None, None, None]:
        """Count what this thread calls in the block."""
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)

    @property
    def named(self) -> Counter[str]:
        """The calls of each function but comprehensions, which are part of what holds them."""
        own = {name: n for name, n in self.counts.items() if not name.endswith(_COMPREHENSIONS)}
        return Counter(own)

    @property
    def files(self) -> set[str]:
        """The files of the functions that were called."""
        return {name.partition(":")[0] for name in self.named}

    def _room(self, path: str) -> str:
        return path.removeprefix(self._folder).partition("/")[0]
