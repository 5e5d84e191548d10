"""Opens the stores under test: each kind in a folder, again and again on the same content."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from haptera.ports.session_store import Store
from haptera.stores.memory import MemoryStore
from haptera.testing.store_conformance.samples import OpenStore
from tests.stores.durable_kinds import DURABLE_KINDS, durable_kind


def memory_factory(_: Path) -> OpenStore:
    """Return a function that always returns the same store: memory cannot be opened twice."""
    store = MemoryStore()
    return lambda: store


def durable_factory(kind: str) -> Callable[[Path], OpenStore]:
    """Return the factory of a durable kind, each of whose functions opens its store anew."""
    return lambda folder: partial(durable_kind(kind).open, folder)


STORE_FACTORIES: dict[str, Callable[[Path], OpenStore]] = {
    "memory": memory_factory,
    **{kind: durable_factory(kind) for kind in DURABLE_KINDS},
}
DURABLE = tuple(DURABLE_KINDS)
"""The kinds that the tests of crashes, damage and several processes run on."""


def open_store(kind: str, folder: Path) -> Store:
    """Open a store of this kind in a folder."""
    factory = STORE_FACTORIES.get(kind) or durable_factory(kind)
    return factory(folder)()


def store_string(kind: str, folder: Path) -> str:
    """Name the store that `open_store` opens, as a user does."""
    return kind if kind == "memory" else f"{kind}:{durable_kind(kind).place(folder)}"
