"""Rules of leases that are the same in every store: who loses one, and in which order waiters win.

Each caller that waits for a session has a ticket in the session's waiting line. Tickets sort by the
time at which the caller asked, and name its process. A waiting caller tries to take the lease when
no ticket of a running process sorts before its own. A caller that does not wait takes the lease
only when the line has no ticket of a running process. Tickets of processes that have ended, are
stopped or cannot be seen from here do not count. A running process that does not take a free lease
is passed over after `PASS_OVER_SECONDS`.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Literal, Protocol, TypeVar

from haptera.model.errors import AgentError, ErrorCode, SessionError
from haptera.model.ids import SessionId
from haptera.ports.session_store import Lease
from haptera.stores.notifications import ChangeNotifier
from haptera.system.processes import (
    ProcessState,
    monotonic_seconds,
    parse_identity,
    process_state,
    this_process,
)

LOCAL_LEASE_SECONDS = 60.0
"""How long a holder that is stopped or cannot be seen keeps its lease without renewing it."""
PASS_OVER_SECONDS = 2.0
GIVING_BACK_SECONDS = 2.0
"""How long a caller waits for a release; what is not released by then is released behind it."""
_SHORTEST_WAIT = 0.03
_JITTER = 0.04

T = TypeVar("T")


def is_lease_lost(state: ProcessState, *, expired: bool) -> bool:
    """Return whether a holder whose process is in this state has lost its lease.

    A process that has ended loses it at once and a running one keeps it, whatever the clock says.
    Time decides only for a process that is stopped or cannot be seen from here.
    """
    return state == "dead" or (state in {"stopped", "unknown"} and expired)


def busy_error(
    session_id: SessionId, holder: str | None, *, process: int | None = None
) -> SessionError:
    """Make the error of acquiring a session that another holder has."""
    if process == os.getpid():
        where = f"is already open in this program, held by {holder!r}"
    else:
        by = f" (process {process})" if process else ""
        where = f"is held by {holder!r}{by}; busy='wait' waits for it"
    return SessionError(ErrorCode.BUSY, f"session {session_id} {where}")


class WaitersFirstError(SessionError):
    """BUSY: the session is free, but another caller has waited longer for it."""

    def __init__(self, session_id: SessionId, first: str) -> None:
        super().__init__(
            ErrorCode.BUSY,
            f"session {session_id} is being passed to a caller that waited for it; "
            "with busy='wait' you wait for it, too",
        )
        self.first = first
        """The ticket that comes first."""


class LinePosition:
    """A caller's position in the waiting line, and which tickets it has passed over.

    A caller that does not wait has a position without a ticket, behind all tickets.
    """

    def __init__(self, ticket: str | None) -> None:
        self.ticket = ticket
        self._passed_over: set[str] = set()
        self._first: str | None = None
        self._first_since = 0.0

    def refuse_unless_first(self, session_id: SessionId, tickets: Iterable[str]) -> None:
        """Raise WaitersFirstError when one of these tickets comes first. For free sessions only."""
        for other in sorted(tickets):
            if self.ticket is not None and other >= self.ticket:
                return
            if other not in self._passed_over and _state_of(other) == "alive":
                raise WaitersFirstError(session_id, other)

    def note_refusal(self, busy: SessionError) -> None:
        """Remember which ticket came first; pass it over when it does not take the lease."""
        first = busy.first if isinstance(busy, WaitersFirstError) else None
        now = monotonic_seconds()
        # The time of passing over counts only while the session is free and the same caller is
        # first.
        if first is None or first != self._first:
            self._first, self._first_since = first, now
        elif now - self._first_since >= PASS_OVER_SECONDS:
            self._passed_over.add(first)


# Shared by all callers that do not wait: `note_refusal`, which changes a position, is not called
# for them.
NOT_WAITING = LinePosition(None)


class WaitingLine(Protocol):
    """Where a store keeps the tickets of the callers that wait for a session."""

    async def join(self, session_id: SessionId, ticket: str) -> None:
        """Store a ticket, and remove the tickets of processes that have ended."""
        ...

    def leave(self, session_id: SessionId, ticket: str) -> "Future[None]":
        """Start removing a ticket, whether or not it is stored; CLOSED after closing."""
        ...


def is_abandoned(ticket: str) -> bool:
    """Return whether the process of a ticket has ended."""
    return _state_of(ticket) == "dead"


async def acquire_in_line(
    notifier: ChangeNotifier,
    line: WaitingLine,
    session_id: SessionId,
    *,
    busy: Literal["wait", "reject"],
    attempt: Callable[[LinePosition], Awaitable[Lease]],
) -> Lease:
    """Try to acquire once, or until the session is free and this caller is first in line.

    A release by this process wakes the caller; a release by another is found by trying again.
    """
    if busy == "reject":
        return await attempt(NOT_WAITING)
    # Tickets are compared as texts, so the time has leading zeros. All processes share its clock.
    ticket = f"{time.monotonic_ns():020d}-{os.urandom(4).hex()}-{this_process()}"
    position = LinePosition(ticket)
    # A free session is the usual case, and needs no ticket.
    if (lease := await _try_once(attempt, position)) is not None:
        return lease
    with notifier.watch(session_id) as waiter:
        try:
            await line.join(session_id, ticket)
            while (lease := await _try_once(attempt, position)) is None:
                # Random, so that the waiters of several processes do not read and write in step.
                await waiter.wait(_SHORTEST_WAIT + _JITTER * os.urandom(1)[0] / 255)
        except BaseException:
            # A cancelled caller raises only once its ticket is gone, so that it blocks no other.
            with suppress(AgentError):
                await result_of_thread(line.leave(session_id, ticket), within=GIVING_BACK_SECONDS)
            raise
        with suppress(AgentError):  # a ticket that stays behind is void once its process ends
            line.leave(session_id, ticket)
        return lease


async def lease_of_thread(asked: "Future[T]", give_back: Callable[[], "Future[None]"]) -> T:
    """Return the lease that another thread was asked to acquire.

    A caller that is cancelled raises only once the thread has released what it may have acquired,
    unless that takes longer than `GIVING_BACK_SECONDS`. `give_back` asks the thread for that;
    threads work in order, so it comes after the acquiring.
    """
    try:
        return await asyncio.wrap_future(asked)
    except asyncio.CancelledError:
        with suppress(AgentError):  # a store that was closed meanwhile has released everything
            await result_of_thread(give_back(), within=GIVING_BACK_SECONDS)
        raise


async def result_of_thread(work: "Future[T]", *, within: float | None = None) -> T | None:
    """Wait for work of another thread; with seconds for no longer than those, and None then.

    The work goes on when the caller is cancelled; `wrap_future` would cancel it, too.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def set_done(_: "Future[T]") -> None:
        with suppress(RuntimeError):  # the caller's loop may have been closed meanwhile
            loop.call_soon_threadsafe(done.set)

    work.add_done_callback(set_done)
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await done.wait()
    return work.result() if done.is_set() else None


async def _try_once(
    attempt: Callable[[LinePosition], Awaitable[Lease]], position: LinePosition
) -> Lease | None:
    try:
        return await attempt(position)
    except SessionError as error:
        if error.code is not ErrorCode.BUSY:
            raise
        position.note_refusal(error)
        return None


def _state_of(ticket: str) -> ProcessState:
    # Only the first two dashes separate: the identity has dashes of its own, in the id of the boot.
    identity = parse_identity(ticket.split("-", 2)[-1])
    return process_state(identity) if identity else "unknown"
