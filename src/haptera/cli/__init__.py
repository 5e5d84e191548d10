"""The command line `haptera`: a terminal client over the public library (extra `cli`)."""

import sys
from importlib import import_module


def main() -> int:
    """Run the command line and return the exit code; say what to install where click is missing."""
    try:
        commands = import_module("haptera.cli.main")
        # Before anything is said; for as long as the process lives, so that tracebacks are covered.
        import_module("haptera.cli.terminal").guard_streams()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "haptera":
            raise
        sys.stderr.write(
            f"haptera: the command line needs {error.name}: pip install 'haptera[cli]'\n"
        )
        return 1
    code: int = commands.main()
    return code
