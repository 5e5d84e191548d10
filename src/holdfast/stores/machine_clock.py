"""The clock that all processes of this machine share, for leases that may expire.

It stands still while the machine sleeps and does not follow changes of the wall clock, so that
nobody loses a lease to either.
"""

import time


def machine_seconds() -> float:
    """Return seconds on the machine's own clock."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
