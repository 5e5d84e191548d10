"""Checks for stores: one function per promise of the store ports, for stores of your own, too.

    report = await run_store_conformance(place_for_each_check)
    print(report)

`place_for_each_check()` prepares an empty place and returns a function that opens a store on it.
Opening it twice gives two handles on the same place, as two processes would have.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from haptera.testing.promises import FailedCheck, Report, checks_in, run_checks
from haptera.testing.store_conformance import (
    inbox_checks,
    index_checks,
    lease_checks,
    log_checks,
    search_checks,
)
from haptera.testing.store_conformance.samples import OpenStore

__all__ = ["CHECKS", "FailedCheck", "Report", "run_store_conformance"]

Check: TypeAlias = Callable[[OpenStore], Awaitable[None]]

CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (log_checks, index_checks, lease_checks, inbox_checks, search_checks)
    for check in checks_in(module.__name__)
)


async def run_store_conformance(
    factory: Callable[[], OpenStore], *, skip: Collection[str] = ()
) -> Report:
    """Run every check over a store, each on an empty place of its own.

    `skip` names checks that are not run; a name that does not exist is a ValueError, so that the
    list cannot become outdated unnoticed.
    """
    return await run_checks(CHECKS, factory, skip=skip)
