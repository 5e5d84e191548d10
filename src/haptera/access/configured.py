"""What the user configured: the store, and every value with where it comes from."""

from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.assembly.configuration import Configuration
from haptera.access.assembly.store_strings import files_of
from haptera.model.errors import ConfigError, ErrorCode, StoreError

ValueOrigin: TypeAlias = Literal["argument", "environment", "project", "file", "default"]

_STORE = "sessions.db"


class ConfiguredValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the configuration and where it was set."""

    name: str
    """The dotted path, as in `limits.turns`."""
    value: Any
    """As plain values."""
    origin: ValueOrigin


def describe_configuration(
    sources: ConfigurationSources | None = None,
) -> tuple[ConfiguredValue, ...]:
    """Return every setting that holds in a folder; secrets are not among them.

    Raises:
        ConfigError: CONFIG_INVALID naming the variable, or the file, line and field.

    """
    configuration = Configuration({}, sources or ConfigurationSources())
    resolved = configuration.resolved
    values: dict[str, object] = {}
    for part in (configuration.settings, resolved.agent, resolved.runtime, resolved.pool):
        for name, value in msgspec.to_builtins(
            {field: getattr(part, field) for field in part.__struct_fields__}
        ).items():
            values |= _leaves(name, value)
    return tuple(
        ConfiguredValue(name=name, value=value, origin=resolved.origin_of(name))
        for name, value in sorted(values.items())
    )


def offers_format(name: str, sources: ConfigurationSources | None = None) -> bool:
    """Whether an installed plugin offers a format of a name; it is not loaded.

    Raises:
        ConfigError: CONFIG_INVALID naming what is wrong with the configuration, or if two plugins
            offer the name.

    """
    plugins = Configuration({}, sources or ConfigurationSources()).plugins
    return plugins.find("formats", name) is not None


def configured_store(sources: ConfigurationSources | None = None) -> str:
    """Return the store that the user configured, or else a SQLite file in the user's data folder.

    The data folder is made if it is missing.

    Raises:
        ConfigError: CONFIG_INVALID naming what is wrong with the configuration.
        StoreError: UNAVAILABLE when the data folder cannot be made.

    """
    configuration = Configuration({}, sources or ConfigurationSources())
    resolved = configuration.resolved
    if resolved.origin_of("store") != "default":
        return resolved.agent.store
    folder = configuration.folders.data
    try:
        # Conversations are in it, which other users of the machine must not read.
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        message = f"the folder for sessions, {folder}, cannot be made: {error.strerror}"
        raise StoreError(ErrorCode.UNAVAILABLE, message) from error
    return f"sqlite:{folder / _STORE}"


def check_store_outside(store: str, folder: Path, *, reason: str) -> None:
    """Refuse a store whose files are in a folder.

    Raises:
        ConfigError: CONFIG_INVALID with the reason, and what to do.

    """
    path = files_of(store)
    if path is not None and path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"store {store!r} is in {folder}, {reason}. Keep it elsewhere, such as "
            "'sqlite:~/sessions.db', or start in another folder",
        )


def _leaves(name: str, value: object) -> dict[str, object]:
    """Return the values beneath a name by their dotted paths."""
    if not isinstance(value, dict) or not value:
        return {name: value}
    leaves: dict[str, object] = {}
    for key, each in value.items():
        leaves |= _leaves(f"{name}.{key}", each)
    return leaves
