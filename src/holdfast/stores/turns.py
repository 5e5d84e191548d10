"""Turns: who waits for a session, in the order in which they asked, the same in every store.

One that waits has a ticket that sorts by the time at which it asked and names its process. While a
ticket before its own belongs to a process that runs, it does not try to take the lease; one that
does not wait takes the lease only when there are no such tickets at all. Tickets of processes that
are gone, stopped or cannot be seen from here do not count. A process that runs but does not take a
lease that is free is passed over after a while.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from holdfast.ports.session_store import Lease
from holdfast.stores.bells import Bells
from holdfast.stores.machine_clock import machine_seconds
from holdfast.stores.process_identity import condition_of, parse_identity, this_process
from holdfast.stores.waiting import carried_out
from holdfast.vocabulary.errors import AgentError, ErrorCode, SessionError
from holdfast.vocabulary.ids import SessionId

PASS_OVER_SECONDS = 2.0
_SHORTEST_WAIT = 0.03
_JITTER = 0.04


class OutOfTurnError(SessionError):
    """BUSY: a session is free, but others have waited for it for longer."""

    def __init__(self, session_id: SessionId, first: str) -> None:
        super().__init__(
            ErrorCode.BUSY,
            f"session {session_id} is being handed to one who waited for it; "
            "busy='wait' waits for it, too",
        )
        self.first = first


class Turn:
    """A place in the order of those who wait; without a ticket, that of one who does not wait."""

    def __init__(self, ticket: str | None) -> None:
        self.ticket = ticket
        self._passed: set[str] = set()
        self._first: str | None = None
        self._since = 0.0

    def refuse_others_first(self, session_id: SessionId, tickets: Iterable[str]) -> None:
        """Raise OutOfTurnError when one of these comes first; asked of a session that is free."""
        for other in sorted(tickets):
            if self.ticket is not None and other >= self.ticket:
                return
            if other not in self._passed and _condition_of(other) == "alive":
                raise OutOfTurnError(session_id, other)

    def note(self, busy: SessionError) -> None:
        """Remember why the lease was not to be had; pass over one who does not take it."""
        first = busy.first if isinstance(busy, OutOfTurnError) else None
        now = machine_seconds()
        if first is None or first != self._first:
            self._first, self._since = first, now
        elif now - self._since >= PASS_OVER_SECONDS:
            self._passed.add(first)


NOT_WAITING = Turn(None)


class Line(Protocol):
    """Where a store keeps the tickets of those who wait."""

    async def join(self, session_id: SessionId, ticket: str) -> None:
        """Keep a ticket, and forget those of processes that are gone."""
        ...

    def leave(self, session_id: SessionId, ticket: str) -> "Future[None]":
        """Ask for a ticket to be forgotten, whether or not it was kept; CLOSED after closing."""
        ...


def is_abandoned(ticket: str) -> bool:
    """Whether the process of a ticket is gone."""
    return _condition_of(ticket) == "dead"


async def wait_for_lease(
    bells: Bells,
    line: Line,
    session_id: SessionId,
    *,
    attempt: Callable[[Turn], Awaitable[Lease]],
) -> Lease:
    """Try to acquire until it is this one's turn and nobody else holds the session.

    A release in this process wakes the waiter; that of another is found by trying again.
    """
    ticket = f"{time.monotonic_ns():020d}-{secrets.token_hex(4)}-{this_process()}"
    turn = Turn(ticket)
    if (lease := await _tried(attempt, turn)) is not None:
        return lease
    with bells.hang(session_id) as bell:
        try:
            await line.join(session_id, ticket)
            while (lease := await _tried(attempt, turn)) is None:
                await bell.wait(_SHORTEST_WAIT + _JITTER * secrets.randbelow(1000) / 1000)
        except BaseException:
            # A caller that was cancelled holds nobody up once it has raised.
            with suppress(AgentError):
                await carried_out(line.leave(session_id, ticket))
            raise
        with suppress(AgentError):  # one that stays behind goes with its process
            line.leave(session_id, ticket)
        return lease


async def _tried(attempt: Callable[[Turn], Awaitable[Lease]], turn: Turn) -> Lease | None:
    try:
        return await attempt(turn)
    except SessionError as error:
        if error.code is not ErrorCode.BUSY:
            raise
        turn.note(error)
        return None


def _condition_of(ticket: str) -> str:
    identity = parse_identity(ticket.split("-", 2)[-1])
    return condition_of(identity) if identity else "unknown"
