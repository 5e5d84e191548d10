"""Opens the stores under test: each kind in a folder, again and again on the same content."""

from collections.abc import Callable
from pathlib import Path

from holdfast.ports.session_store import Store
from holdfast.stores.jsonl.store import JsonlStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.store_conformance.samples import OpenStore


def memory_factory(_: Path) -> OpenStore:
    """Return a function that always returns the same store: memory cannot be opened twice."""
    store = MemoryStore()
    return lambda: store


def jsonl_factory(folder: Path) -> OpenStore:
    """Return a function that opens a store of files."""
    return lambda: JsonlStore(folder / "sessions")


def sqlite_factory(folder: Path) -> OpenStore:
    """Return a function that opens a database file."""
    return lambda: SqliteStore(folder / "store" / "sessions.db")


STORE_FACTORIES: dict[str, Callable[[Path], OpenStore]] = {
    "memory": memory_factory,
    "jsonl": jsonl_factory,
    "sqlite": sqlite_factory,
}
DURABLE = ("jsonl", "sqlite")


def open_store(kind: str, folder: Path) -> Store:
    """Open a store of this kind in a folder."""
    return STORE_FACTORIES[kind](folder)()
