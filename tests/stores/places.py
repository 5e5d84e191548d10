"""The stores under test: each with a place of its own that can be opened again and again."""

from collections.abc import Callable
from pathlib import Path

from holdfast.ports.session_store import Store
from holdfast.stores.jsonl.store import JsonlStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.store_conformance.promises import OpenStore


def memory_place(_: Path) -> OpenStore:
    """Return a function that gives out one store: memory cannot be opened twice."""
    store = MemoryStore()
    return lambda: store


def jsonl_place(folder: Path) -> OpenStore:
    """Return a function that opens a folder of files."""
    return lambda: JsonlStore(folder / "sessions")


def sqlite_place(folder: Path) -> OpenStore:
    """Return a function that opens a database file."""
    return lambda: SqliteStore(folder / "store" / "sessions.db")


PLACES: dict[str, Callable[[Path], OpenStore]] = {
    "memory": memory_place,
    "jsonl": jsonl_place,
    "sqlite": sqlite_place,
}
DURABLE = ("jsonl", "sqlite")


def open_place(kind: str, folder: Path) -> Store:
    """Open a store of this kind in a folder."""
    return PLACES[kind](folder)()
