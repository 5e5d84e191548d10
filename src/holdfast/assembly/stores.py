"""Stores by their strings: `memory`, and more as their packages are there."""

from holdfast.ports.session_store import Store
from holdfast.vocabulary.errors import ConfigError, ErrorCode


def make_store(location: str) -> Store:
    """Make the store that a string names; nothing is opened before it is used.

    Raises:
        ConfigError: CONFIG_INVALID when no store is called that.

    """
    if location == "memory":
        from holdfast.stores.memory import MemoryStore  # noqa: PLC0415 - only what is used

        return MemoryStore()
    raise ConfigError(ErrorCode.CONFIG_INVALID, f"{location!r} names no store; 'memory' is one")
