"""Runs the import contracts over many copies of the source in one process, as JSON to stdout.

Not a test: tests start it, because one process per copy costs half a second each.
"""

import contextlib
import importlib
import json
import sys

from importlinter.application.output import console
from importlinter.cli import lint_imports


def main() -> None:
    """Read the contracts file and the folders that each hold a `haptera` from the arguments."""
    contracts, *folders = sys.argv[1:]
    console.width = 400
    verdicts = {}
    for folder in folders:
        importlib.invalidate_caches()
        # The linter looks in the working folder before it looks anywhere else.
        with contextlib.chdir(folder), console.capture() as captured:
            code = lint_imports(config_filename=contracts, no_cache=True, no_logo=True)
        verdicts[folder] = {"passed": code == 0, "output": captured.get()}
    sys.stdout.write(json.dumps(verdicts))


if __name__ == "__main__":
    main()
