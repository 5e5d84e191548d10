"""What is believed of numbers that a store or a file holds: total functions, which never raise.

A log can be damaged, or come from elsewhere, and JSON has numbers that no calendar, no database and
no sum has. A reader gets a number that can be used.
"""

import datetime
from decimal import Decimal

EARLIEST = 0
LATEST = 253_402_300_799_000
"""The last second of the year 9999, in milliseconds."""
LARGEST_COUNT = 2**63 - 1
"""The largest number of the databases in use."""
_LARGEST_COST = Decimal(10**12)
_LONGEST_COST = 60
"""How many digits a cost has after the point at most."""


def time_of(value: object) -> int:
    """Return a time in milliseconds, or the nearest one that a calendar has; 0 for no number."""
    return min(max(value, EARLIEST), LATEST) if type(value) is int else EARLIEST


def time_or_none(value: object) -> int | None:
    """Return the same of a time that may be missing."""
    return None if value is None else time_of(value)


def moment_of(milliseconds: object) -> datetime.datetime:
    """Return the moment of a time in UTC."""
    seconds, rest = divmod(time_of(milliseconds), 1000)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment + datetime.timedelta(milliseconds=rest)


def count_of(value: object) -> int:
    """Return a count, or the nearest one that every database can keep; 0 for no number."""
    return min(max(value, 0), LARGEST_COUNT) if type(value) is int else 0


def summable_cost(cost: Decimal | None) -> Decimal | None:
    """Return a cost that can be added to others; None, which is unknown, for any other value."""
    if cost is None or not cost.is_finite():
        return None
    # Sums of numbers that are far apart raise an error, or have as many digits as lie between.
    is_near = int(cost.as_tuple().exponent) >= -_LONGEST_COST
    return cost if 0 <= cost <= _LARGEST_COST and is_near else None
