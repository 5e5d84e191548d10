"""Lets `python -P -m holdfast.cli` be the command `holdfast`."""

import sys

from holdfast.cli import main

if __name__ == "__main__":
    sys.exit(main())
