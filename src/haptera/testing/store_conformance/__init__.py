"""Checks for stores: one function per promise of the store ports, for stores of your own, too.

    report = await run_store_conformance(place_for_each_check)
    print(report)

`place_for_each_check()` prepares an empty place and returns a function that opens a store on it.
Opening it twice gives two handles on the same place, as two processes would have.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from haptera.testing.promises import FailedCheck, Report, run_checks
from haptera.testing.store_conformance.inbox_checks import INBOX_CHECKS
from haptera.testing.store_conformance.index_checks import INDEX_CHECKS
from haptera.testing.store_conformance.lease_checks import LEASE_CHECKS
from haptera.testing.store_conformance.log_checks import LOG_CHECKS
from haptera.testing.store_conformance.samples import OpenStore
from haptera.testing.store_conformance.search_checks import SEARCH_CHECKS

__all__ = ["CHECKS", "FailedCheck", "Report", "run_store_conformance"]

Check: TypeAlias = Callable[[OpenStore], Awaitable[None]]

CHECKS: tuple[Check, ...] = (
    *LOG_CHECKS,
    *INDEX_CHECKS,
    *LEASE_CHECKS,
    *INBOX_CHECKS,
    *SEARCH_CHECKS,
)


async def run_store_conformance(
    factory: Callable[[], OpenStore], *, skip: Collection[str] = ()
) -> Report:
    """Run every check over a store, each on an empty place of its own.

    `skip` names checks that are not run; a name that does not exist is a ValueError, so that the
    list cannot become outdated unnoticed.
    """
    return await run_checks(CHECKS, factory, skip=skip)
