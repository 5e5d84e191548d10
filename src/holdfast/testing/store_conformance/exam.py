"""All checks, and how to put a store through them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from holdfast.testing.store_conformance.inbox_checks import INBOX_CHECKS
from holdfast.testing.store_conformance.index_checks import INDEX_CHECKS
from holdfast.testing.store_conformance.lease_checks import LEASE_CHECKS
from holdfast.testing.store_conformance.log_checks import LOG_CHECKS
from holdfast.testing.store_conformance.promises import OpenStore
from holdfast.testing.store_conformance.report import FailedCheck, Report

Check: TypeAlias = Callable[[OpenStore], Awaitable[None]]

CHECKS: tuple[Check, ...] = (*LOG_CHECKS, *INDEX_CHECKS, *LEASE_CHECKS, *INBOX_CHECKS)


async def run_store_conformance(
    factory: Callable[[], OpenStore], *, skip: Collection[str] = ()
) -> Report:
    """Put a store through every check, each on an empty place of its own.

    `skip` names checks; one that does not exist is a ValueError, so that a list cannot go stale.
    """
    names = {_name(check): check for check in CHECKS}
    if unknown := set(skip) - names.keys():
        raise ValueError(f"there are no checks named {sorted(unknown)}")
    passed, failed = [], []
    for name, check in names.items():
        if name not in skip:
            (outcome,) = await asyncio.gather(check(factory()), return_exceptions=True)
            if isinstance(outcome, BaseException):
                failed.append(FailedCheck(name, f"{type(outcome).__name__}: {outcome}"))
            else:
                passed.append(name)
    return Report(passed=tuple(passed), failed=tuple(failed), skipped=tuple(sorted(skip)))


def _name(check: Check) -> str:
    return str(getattr(check, "__name__", check))
