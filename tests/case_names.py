"""Names for parametrised cases that are the same in every process, so that tests can be shared out.

Without it, a value whose repr shows where it is in memory has another name in each worker.
"""

import re

_MEMORY = re.compile(r" at 0x[0-9a-f]+")


def stable_name(value: object) -> str:
    """Return a value's text without memory addresses, for `ids=`."""
    return _MEMORY.sub("", str(value))
