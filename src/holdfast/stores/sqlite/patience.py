"""How long a SQLite store waits for others."""

from dataclasses import dataclass

from holdfast.stores.lease_rules import LEASE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Times, all in seconds."""

    busy: float = 5.0
    """What SQLite itself waits for a lock before it says so."""
    whole: float = 30.0
    """How long waiting is repeated before it becomes an error."""
    lease: float = LEASE_SECONDS
    """How long a lease outlives the last sign of a holder that is stopped or cannot be seen."""
