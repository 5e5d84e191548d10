"""Lets `python -P -m haptera.cli` be the command `haptera`."""

import sys

from haptera.cli import main

if __name__ == "__main__":
    sys.exit(main())
