"""When a lease is lost: the same rule in every store."""

import os

from holdfast.stores.process_identity import Condition
from holdfast.vocabulary.errors import ErrorCode, SessionError
from holdfast.vocabulary.ids import SessionId

LEASE_SECONDS = 60.0
"""How long a lease outlives the last sign of a holder that is stopped or cannot be seen."""


def may_be_replaced(condition: Condition, *, expired: bool) -> bool:
    """Whether a holder in this condition has lost its lease.

    The dead lose it at once and the living keep it, whatever the clock says. Time decides only
    about those who cannot be seen or cannot act.
    """
    return condition == "dead" or (condition in {"stopped", "unknown"} and expired)


def held_already(
    session_id: SessionId, holder: str | None, *, process: int | None = None
) -> SessionError:
    """Make the error of whoever wants a session that somebody holds."""
    if process == os.getpid():
        where = f"is open in this program already, held by {holder!r}"
    else:
        by = f" (process {process})" if process else ""
        where = f"is held by {holder!r}{by}; busy='wait' waits for it"
    return SessionError(ErrorCode.BUSY, f"session {session_id} {where}")
