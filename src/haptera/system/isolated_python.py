"""Python processes of our own that import one module of this package and nothing else of it.

The launcher of shell commands, the supervisor of an agent, the server of a local model, the search
with patterns and the reader of web pages are such processes. They start fast, see no user's
site-packages and no working folder, and may import `process_tree` from this room.
"""

import subprocess
import sys
from pathlib import Path

from haptera.system.child_processes import start_child

_BOOTSTRAP = """\
import sys, types
folder, module = sys.argv[1:3]
names = module.split(".")
for depth in range(1, len(names)):
    package = types.ModuleType(".".join(names[:depth]))
    package.__path__ = ["/".join([folder, *names[1:depth]])]
    sys.modules[package.__name__] = package
__import__(module)
sys.modules[module].main()
"""
"""The packages are put in place without running what they import."""

PACKAGE_FOLDER = str(Path(__file__).resolve().parents[1])


def isolated_python(module: str, *arguments: str) -> list[str]:
    """Return the command line of a process that runs `main` of a module of this package."""
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, PACKAGE_FOLDER, module, *arguments]


class IsolatedProcess:
    """Such a process, which answers what it is asked; another thread can stop it."""

    def __init__(self, module: str, *arguments: str, descriptors: tuple[int, ...] = ()) -> None:
        self._command = isolated_python(module, *arguments)
        self._descriptors = descriptors
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def answer(self, request: bytes, *, seconds: float) -> bytes | None:
        """Return what the process writes; None if it failed or was stopped. Blocks.

        Raises:
            TimeoutError: it took longer than `seconds`, and was killed.

        """
        child = self._child = start_child(
            self._command,
            environment={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            descriptors=self._descriptors,
        )
        # `stop` may have come before there was a process to kill.
        if self._stopped:
            child.kill()
        try:
            answer, _ = child.communicate(request, timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise TimeoutError from None
        return None if child.returncode else answer

    def stop(self) -> None:
        """Kill the process; `answer` then returns None."""
        self._stopped = True
        if self._child is not None:
            self._child.kill()
