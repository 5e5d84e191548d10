"""All checks, how to run them over a store, and the report of a run.

A module of its own because `__init__` only lists the public names.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

import msgspec

from holdfast.testing.store_conformance.inbox_checks import INBOX_CHECKS
from holdfast.testing.store_conformance.index_checks import INDEX_CHECKS
from holdfast.testing.store_conformance.lease_checks import LEASE_CHECKS
from holdfast.testing.store_conformance.log_checks import LOG_CHECKS
from holdfast.testing.store_conformance.promises import OpenStore
from holdfast.testing.store_conformance.search_checks import SEARCH_CHECKS

Check: TypeAlias = Callable[[OpenStore], Awaitable[None]]

CHECKS: tuple[Check, ...] = (
    *LOG_CHECKS,
    *INDEX_CHECKS,
    *LEASE_CHECKS,
    *INBOX_CHECKS,
    *SEARCH_CHECKS,
)


class FailedCheck(msgspec.Struct, frozen=True):
    """A check that a store did not pass, and why."""

    name: str
    reason: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the checks by their outcome."""

    passed: tuple[str, ...] = ()
    failed: tuple[FailedCheck, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def is_passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} kept, {len(self.failed)} broken, {len(self.skipped)} skipped"]
        lines += [f"  {check.name}: {check.reason}" for check in self.failed]
        return "\n".join(lines)


async def run_store_conformance(
    factory: Callable[[], OpenStore], *, skip: Collection[str] = ()
) -> Report:
    """Run every check over a store, each on an empty place of its own.

    `skip` names checks that are not run; a name that does not exist is a ValueError, so that the
    list cannot become outdated unnoticed.
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
