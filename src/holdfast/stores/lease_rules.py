"""When a lease is lost: the same rule in every store."""

from holdfast.stores.process_identity import Condition

LEASE_SECONDS = 60.0
"""How long a lease outlives the last sign of a holder that is stopped or cannot be seen."""


def may_be_replaced(condition: Condition, *, expired: bool) -> bool:
    """Whether a holder in this condition has lost its lease.

    The dead lose it at once and the living keep it, whatever the clock says. Time decides only
    about those who cannot be seen or cannot act.
    """
    return condition == "dead" or (condition in {"stopped", "unknown"} and expired)
