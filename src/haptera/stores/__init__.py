"""Stores: where sessions are kept. A store and its driver are imported when they are first used."""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names

if TYPE_CHECKING:
    from haptera.ports.session_store import (
        Blobs,
        Inbox,
        Leases,
        Search,
        SessionIndex,
        SessionLog,
        Store,
    )
    from haptera.stores.jsonl.store import JsonlStore
    from haptera.stores.memory import MemoryStore
    from haptera.stores.postgresql.store import PostgresStore
    from haptera.stores.sqlite.store import SqliteStore

__all__ = [
    "Blobs",
    "Inbox",
    "JsonlStore",
    "Leases",
    "MemoryStore",
    "PostgresStore",
    "Search",
    "SessionIndex",
    "SessionLog",
    "SqliteStore",
    "Store",
]

_PORTS = ("Blobs", "Inbox", "Leases", "Search", "SessionIndex", "SessionLog", "Store")

__getattr__ = late_names(
    __name__,
    {
        **dict.fromkeys(_PORTS, "haptera.ports.session_store"),
        "JsonlStore": "haptera.stores.jsonl.store",
        "MemoryStore": "haptera.stores.memory",
        "PostgresStore": "haptera.stores.postgresql.store",
        "SqliteStore": "haptera.stores.sqlite.store",
    },
)
