"""Drives `haptera` in a real terminal: a tmux server of its own, keys in, screens out."""

import contextlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator

from tests.cli.commands import Place

TMUX = shutil.which("tmux") or "tmux"
_LOOKS, _BETWEEN_LOOKS = 1200, 0.05


class Terminal:
    """One pane of a tmux server that only this test uses."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        """Run one tmux command and return what it prints."""
        done = subprocess.run(
            [TMUX, "-S", self._socket, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def type(self, text: str) -> None:
        """Type a text as a person would, without Enter."""
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by their tmux names, such as Enter, Escape or C-c."""
        self.tmux("send-keys", *keys)

    def say(self, text: str) -> None:
        """Type a text and press Enter."""
        self.type(text)
        self.press("Enter")

    def screen(self, *, history: bool = False, styled: bool = False) -> str:
        """Return what the pane shows now, without empty lines at its end."""
        more = [*(["-S", "-"] if history else []), *(["-e"] if styled else [])]
        return self.tmux("capture-pane", "-p", *more).rstrip()

    def wait_for(self, shown: str | Callable[[str], bool]) -> str:
        """Wait until the screen shows a text; returns the screen then."""
        screen = ""
        for _ in range(_LOOKS):
            screen = self.screen(history=True)
            if shown(screen) if callable(shown) else shown in screen:
                return screen
            threading.Event().wait(_BETWEEN_LOOKS)
        raise AssertionError(f"{shown!r} was never shown:\n{screen}")


@contextlib.contextmanager
def terminal(
    place: Place, *arguments: str, width: int = 80, height: int = 30, **variables: str
) -> Iterator[Terminal]:
    """Run `haptera` in a terminal of that size until the block is left."""
    folder = tempfile.mkdtemp(prefix="tmux-")  # a short path: a socket's has at most 107 bytes
    socket = f"{folder}/socket"
    found = Terminal(socket)
    environment = place.environment | variables
    assigned = [f"{name}={value}" for name, value in environment.items()]
    command = shlex.join(["env", "-i", *assigned, sys.executable, "-m", "haptera.cli", *arguments])
    shown = f"{command}; echo exit=$?; exec sleep 600"
    size = ["-x", str(width), "-y", str(height)]
    subprocess.run(
        [
            *(TMUX, "-S", socket, "-f", "/dev/null", "new-session", "-d", *size),
            *("-c", str(place.project), shown),
        ],
        check=True,
    )
    try:
        yield found
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            found.tmux("kill-server")
        shutil.rmtree(folder, ignore_errors=True)
