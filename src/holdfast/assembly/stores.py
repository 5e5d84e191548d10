"""Stores by their strings: `memory`, `jsonl:DIR`, `sqlite:FILE`."""

from holdfast.ports.session_store import Store
from holdfast.vocabulary.errors import ConfigError, ErrorCode


def make_store(location: str) -> Store:
    """Make the store that a string names.

    Raises:
        ConfigError: CONFIG_INVALID when no store is called that.

    """
    # Only what is used is imported: a driver costs time and memory.
    from pathlib import Path  # noqa: PLC0415

    kind, _, place = location.partition(":")
    if location == "memory":
        from holdfast.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore()
    if kind in {"jsonl", "sqlite"} and not place:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"store {location!r} does not say where")
    if kind == "jsonl":
        from holdfast.stores.jsonl.store import JsonlStore  # noqa: PLC0415

        return JsonlStore(Path(place).expanduser().absolute())
    if kind == "sqlite":
        from holdfast.stores.sqlite.store import SqliteStore  # noqa: PLC0415

        return SqliteStore(Path(place).expanduser().absolute())
    raise ConfigError(
        ErrorCode.CONFIG_INVALID,
        f"{location!r} names no store; use 'memory', 'jsonl:FOLDER' or 'sqlite:FILE'",
    )
