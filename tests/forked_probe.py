"""A program that says what kind of process it is, or ends in the way it is told; run by tests."""

import atexit
import json
import os
import random
import signal
import sys
import threading
import uuid
from importlib import import_module


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")


def describe() -> None:
    """Print what a new interpreter would have of its own."""
    ids = import_module("haptera.model.ids")
    said = {
        "argv": sys.argv[1:],
        "environment": dict(os.environ),  # noqa: TID251 - compared with what it was given
        "folder": os.getcwd(),  # noqa: PTH109 - as the system says it
        "group": [os.getpgid(0), os.getsid(0)],
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "name": __name__,
        "parent": os.getppid(),
        "path": sys.path[0],
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - only counted
        "random": [random.getrandbits(64), str(uuid.uuid4()), ids.new_entry_id()],
        "read": read,
        "streams": [
            [each.encoding, each.errors, each.line_buffering]
            for each in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "threads": threading.active_count(),
    }
    say(json.dumps(said))


def end(how: str) -> None:
    """End in a way that decides on the exit code."""
    atexit.register(say, "at exit")
    say("said")
    match how:
        case "a message":
            sys.exit("a message")
        case "an exception":
            raise ValueError("nothing")
        case "a thread":
            threading.Thread(target=lambda: say("in a thread")).start()
        case "a signal":
            os.kill(os.getpid(), signal.SIGTERM)
        case "an interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        case "no reader":
            os.close(1)
        case _:
            sys.exit(int(how) if how else None)


def imported_by_command() -> None:
    """Run the command `haptera`, and name the modules of the package that it imported."""
    before = set(sys.modules)
    import_module("haptera.cli.main").main(sys.argv[2:])
    say(" ".join(name for name in set(sys.modules) - before if name.startswith("haptera.")))


if __name__ == "__main__":
    if sys.argv[1] == "describe":
        read = sys.stdin.read()
        describe()
    elif sys.argv[1] == "end":
        end(sys.argv[2])
    else:
        imported_by_command()
