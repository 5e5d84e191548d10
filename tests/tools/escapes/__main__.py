"""Makes every attempt of the table, each in a process of its own, and says what came of it.

It runs in the sandbox, and once outside of it to show that the attempts work at all.
"""

import ctypes
import json
import os
import signal
import sys

from tests.tools.escapes.attempt import OUTCOMES, Escape, Target
from tests.tools.escapes.table import ESCAPES

_SECONDS = 4
_NEW_MOUNTS, _PRIVATE = 0x20000, 0x44000


def main() -> None:
    """Read the target; write one object: for each row, why it was refused, or null."""
    target = Target(**json.loads(sys.argv[-1]))
    if "--keep-mounts" in sys.argv:
        # Outside of the sandbox: what an attempt mounts goes with this process.
        libc = ctypes.CDLL(None)
        if libc.unshare(_NEW_MOUNTS) == 0:
            libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None)
    outcomes = {escape.row: _outcome(escape, target) for escape in ESCAPES}
    # Not to the output: what survives holds that open.
    with open(OUTCOMES, "w") as file:
        json.dump(outcomes, file)


def _outcome(escape: Escape, target: Target) -> str | None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(_SECONDS)
        os.write(writer, _attempt(escape, target).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    # The first piece: what survives may hold the pipe open.
    told = os.read(reader, 65536).decode()
    os.close(reader)
    if told == "escaped":
        return None
    return told or "it was ended"


def _attempt(escape: Escape, target: Target) -> str:
    os.makedirs(f"rows/{escape.row}")
    os.chdir(f"rows/{escape.row}")
    os.umask(0o022)
    try:
        escape.attempt(target._replace(row=escape.row))
    except (OSError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"
    return "escaped"


if __name__ == "__main__":
    main()
