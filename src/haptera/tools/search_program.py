"""The process that searches files with a pattern: it can be killed, whatever the pattern does.

A pattern of a model's may take for ever on some line, and Python's `re` cannot be stopped in a
thread. Standard library only, run by `python -I -S` without the rest of the package.
"""

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from typing import Any

from haptera.kernel.blocks.permission_rules.wildcards import matches_file, matches_path
from haptera.tools.sandbox.private_beneath import PrivateBeneath
from haptera.tools.tree_walk import open_regular, walk_files

_LONGEST_LIFE = 120
_LARGEST = 32 << 20
_LONGEST_LINE = 400


def main() -> None:
    """Search the descriptor that the last argument names, as the line on standard input says."""
    signal.alarm(_LONGEST_LIFE)  # whatever becomes of the process that started this one
    request = json.loads(sys.stdin.buffer.readline())
    try:
        search = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except re.error as error:
        _tell({"failed": f"the pattern is not a regular expression: {error}"})
        return
    hidden = _Hidden(request)
    left, more = request["limit"], False
    for path, descriptor in _files(int(sys.argv[-1]), request["files"] or "", hidden):
        for number, line in _matches(descriptor, search):
            if not left:
                more = True
                break
            left -= 1
            _tell({"path": path, "line": number, "text": line[:_LONGEST_LINE]})
        if more:
            break
    _tell({"more": more, "left_out": hidden.left_out})


class _Hidden:
    """What is private, and what permission rules hide. It is not even opened.

    A line found in such a file would use up the limit, and so tell that it is there.
    """

    def __init__(self, request: "dict[str, Any]") -> None:
        self._start: str = request["start"]
        self._denied: list[str] = request["denied"]
        self._asked: list[str] = request["asked"]
        self.private = PrivateBeneath(*request["private"])
        self.left_out = 0

    def hides(self, path: str) -> bool:
        """Whether a file is hidden; counts those that a rule asks about."""
        real = os.path.normpath(f"{self._start}/{path}")
        if self.private.holds(real):
            return True
        if any(matches_path(pattern, real) for pattern in self._denied):
            return True
        is_asked = any(matches_path(pattern, real) for pattern in self._asked)
        self.left_out += is_asked
        return is_asked


def _files(start: int, names: str, hidden: _Hidden) -> Iterator[tuple[str, int]]:
    """Yield what is to be searched, opened; each is closed before the next."""
    if not stat.S_ISDIR(os.fstat(start).st_mode):
        yield "", start
        return
    # `isolated_python` puts its folder and module before the names, and the descriptor comes last.
    for path, folder, name in walk_files(start, frozenset(sys.argv[3:-1])):
        if hidden.hides(path) or (names and not matches_file(names, path)):
            continue
        descriptor = open_regular(folder, name)
        if descriptor is not None:
            if not hidden.private.holds_file(os.fstat(descriptor)):
                yield path, descriptor
            os.close(descriptor)


def _matches(descriptor: int, search: "re.Pattern[str]") -> Iterator[tuple[int, str]]:
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read(_LARGEST)
    # A NUL near the beginning is how git and grep tell a binary file, too.
    if b"\0" in content[:8192]:
        return
    for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        if search.search(line):
            yield number, line.rstrip("\r")


def _tell(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()
