"""How checks of a contract state what they expect, are run, and are reported."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

import msgspec

from haptera.model.errors import AgentError, ErrorCode

T = TypeVar("T")
SubjectT = TypeVar("SubjectT")

_TIME_LIMIT_SECONDS = 10.0


class PromiseBrokenError(AssertionError):
    """Something did not keep a promise of its interface."""


def require(condition: object, promise: str) -> None:
    """Raise unless the promise was kept."""
    if not condition:
        raise PromiseBrokenError(promise)


def require_same(found: object, expected: object, promise: str) -> None:
    """Raise, showing both, unless they are equal."""
    if found != expected:
        raise PromiseBrokenError(f"{promise}: expected {expected!r}, found {found!r}")


async def require_error(code: ErrorCode, attempt: Awaitable[object], promise: str) -> AgentError:
    """Raise unless the attempt fails with this code; returns the error."""
    try:
        outcome = await attempt
    except AgentError as error:
        require_same(error.code, code, promise)
        return error
    raise PromiseBrokenError(f"{promise}: expected {code}, but it returned {outcome!r}")


async def within_time_limit(attempt: Awaitable[T], promise: str) -> T:
    """Raise when something does not end in time."""
    try:
        async with asyncio.timeout(_TIME_LIMIT_SECONDS):
            return await attempt
    except TimeoutError:
        raise PromiseBrokenError(f"{promise}: nothing happened") from None


class FailedCheck(msgspec.Struct, frozen=True):
    """A check that was not passed, and why."""

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


def checks_in(module: str) -> tuple[Callable[[Any], Awaitable[None]], ...]:
    """Return the checks that a module defines, by the beginning of their names, in their order."""
    values = vars(sys.modules[module])
    return tuple(value for name, value in values.items() if name.startswith("check_"))


async def run_checks(
    checks: Sequence[Callable[[SubjectT], Awaitable[None]]],
    make: Callable[[], SubjectT],
    *,
    skip: Collection[str] = (),
    seconds: float | None = None,
) -> Report:
    """Run every check, each on a subject of its own that `make` returns.

    With `seconds`, a check that takes longer has failed.
    `skip` names checks that are not run; a name that does not exist is a ValueError, so that the
    list cannot become outdated unnoticed.
    """
    names = {str(getattr(check, "__name__", check)): check for check in checks}
    if unknown := set(skip) - names.keys():
        raise ValueError(f"there are no checks named {sorted(unknown)}")
    passed, failed = [], []
    for name, check in names.items():
        if name not in skip:
            attempt = asyncio.wait_for(check(make()), seconds)
            # `gather` also returns a CancelledError that the check itself raised.
            (outcome,) = await asyncio.gather(attempt, return_exceptions=True)
            if isinstance(outcome, BaseException):
                failed.append(FailedCheck(name, f"{type(outcome).__name__}: {outcome}"))
            else:
                passed.append(name)
    return Report(passed=tuple(passed), failed=tuple(failed), skipped=tuple(sorted(skip)))
