"""Maintenance: whether a session can be read, what is damaged, and what is old."""

import contextlib
from typing import TYPE_CHECKING

import msgspec

from haptera.access.catalogue import Catalogue
from haptera.access.changing import delete
from haptera.access.descriptions import SessionDescription, describe
from haptera.kernel.session.log_reading import fold_log
from haptera.model.errors import AgentError, ErrorReport, SessionError
from haptera.model.ids import SessionId
from haptera.model.operations.operation import handles
from haptera.model.operations.sessions import (
    DeleteSession,
    PruneSessions,
    RepairIndex,
    VerifySession,
)
from haptera.ports.session_store import Damage, SessionFilter, SessionRecord

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition

_DAY_MS = 86_400_000


class SessionHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was found when a session was read as a whole."""

    session_id: SessionId
    entries: int = 0
    """How many entries can be read."""
    damage: tuple[Damage, ...] = ()
    """What cannot be read; it is kept aside, and the rest of the session is whole."""
    error: ErrorReport | None = None
    """Why the session cannot be opened; None when it can."""

    @property
    def ok(self) -> bool:
        """Whether everything could be read."""
        return not self.damage and self.error is None


async def check_session(composition: "Composition", record: SessionRecord) -> SessionHealth:
    """Read a whole session and say what is wrong with it."""
    log = composition.store.log
    entries = await log.read(record.id)
    # `read` passes over what is damaged, so it cannot say what that is.
    damage = await log.inspect(record.id)
    error: ErrorReport | None = None
    try:
        await fold_log(log, entries)
    except AgentError as raised:
        error = raised.report
    return SessionHealth(session_id=record.id, entries=len(entries), damage=damage, error=error)


async def old_sessions(
    composition: "Composition", *, owner: str, project: str | None, days: float
) -> tuple[SessionRecord, ...]:
    """Return the sessions that were not updated for a number of days; sub-agents go with theirs."""
    before = composition.clock.time_ms() - int(days * _DAY_MS)
    # A sub-agent's session may be old while that of its caller is in use; it is deleted with that
    # one.
    matching = SessionFilter(updated_before=before, spawned=False)
    return tuple(await composition.store.index.browse(owner, project, matching=matching))


async def prune_sessions(
    catalogue: Catalogue, sessions: tuple[SessionRecord, ...]
) -> tuple[SessionRecord, ...]:
    """Delete sessions, and return those that were. One that another process holds is left."""
    deleted: list[SessionRecord] = []
    for record in sessions:
        # BUSY, or NOT_FOUND because another process was faster. A store that fails is not
        # suppressed.
        with contextlib.suppress(SessionError):
            await delete(catalogue, DeleteSession(reference=record.id))
            deleted.append(record)
    return tuple(deleted)


@handles(VerifySession)
async def verify(sessions: Catalogue, order: VerifySession) -> SessionHealth:
    """Read a whole session and say what cannot be read, and whether it can be opened."""
    return await check_session(sessions.composition, await sessions.record(order.reference))


@handles(RepairIndex)
async def repair(sessions: Catalogue, _order: RepairIndex) -> int:
    """Derive the index again from the logs; returns how many sessions it holds."""
    return await sessions.composition.store.index.rebuild()


@handles(PruneSessions)
async def prune(sessions: Catalogue, order: PruneSessions) -> tuple[SessionDescription, ...]:
    """Delete the sessions of this project that were not updated for a number of days."""
    old = await old_sessions(
        sessions.composition, owner=sessions.owner, project=sessions.project, days=order.days
    )
    return tuple(map(describe, old if order.dry_run else await prune_sessions(sessions, old)))
