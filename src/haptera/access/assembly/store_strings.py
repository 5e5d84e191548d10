"""Store strings: which store each names, and what is wrong with one that names none."""

from collections.abc import Callable
from pathlib import Path

from haptera.access.assembly import late
from haptera.access.plugins import Plugins
from haptera.model.errors import ConfigError, ErrorCode
from haptera.options.wording import did_you_mean, meant_name
from haptera.ports.session_store import Store

STORES: dict[str, Callable[[str, str], Store]] = {
    "memory": lambda _, __: late.MemoryStore(),
    "jsonl:DIR": lambda target, _: late.JsonlStore(_found(target, folder=0)),
    "sqlite:FILE": lambda target, _: late.SqliteStore(_found(target, folder=1)),
    "postgresql://URL": lambda target, owner: _postgres_store(f"postgresql:{target}", owner),
}
"""Every store string, and what makes its store from what comes after the colon, for an owner."""

_BY_NAME = {string.partition(":")[0]: string for string in STORES}
_DATABASES = {".db", ".sqlite", ".sqlite3"}
_OF_FILES = frozenset(name for name, string in _BY_NAME.items() if string.endswith(("DIR", "FILE")))


def make_store(location: str, *, owner: str, plugins: Plugins | None = None) -> Store:
    """Make the store that a string names, one of `STORES` or of a plugin.

    A store that is shared with other owners shows the sessions of this one only.

    Raises:
        ConfigError: CONFIG_INVALID when no store is called that.

    """
    if (fault := store_fault(location, plugins)) is not None:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"store: {fault}")
    name, _, target = location.partition(":")
    if plugins is not None and name not in _BY_NAME:
        return plugins.make_store(name, target, owner=owner)
    return STORES[_BY_NAME[name]](target, owner)


def store_fault(location: str, plugins: Plugins | None = None) -> str | None:
    """Say why a string names no store; None if it names one. No plugin is loaded."""
    name, colon, target = location.partition(":")
    if name not in _BY_NAME:
        # No plugin is looked for where a path was written, or the name of another kind of thing.
        if plugins is not None and colon and plugins.find("stores", name) is not None:
            return None
        # A bare path, as other libraries take it.
        if not colon and Path(location).suffix in _DATABASES:
            meant = f"; {did_you_mean([f'sqlite:{location}'])}"
        else:
            meant = meant_name(name, _BY_NAME)
        told = f"{name!r} is not a store{f'{meant} Use' if meant else '; use'}"
        return f"{told} one of {', '.join(STORES)}"
    if ":" not in _BY_NAME[name]:
        told = f"{name!r} takes no location: write {name!r}, not {location!r}"
        return told if colon else None
    if not target:
        return f"{location!r} has no location; write {_BY_NAME[name]}"
    if name in _OF_FILES and target.startswith("//"):
        # Other libraries write URLs, in which /// may begin a relative path.
        path = target.lstrip("/") or "FILE"
        return (
            f"{location!r} looks like a URL, and {name!r} takes a path. Write it right after the "
            f"colon: {f'{name}:{path}'!r} in the working folder, or {f'{name}:/{path}'!r}"
        )
    return None


def files_of(store: str | Store) -> Path | None:
    """Return the file or folder that a store keeps sessions in; None for one without files."""
    if not isinstance(store, str):
        return getattr(store, "files_at", None)
    name, _, target = store.partition(":")
    return Path(target).expanduser() if name in _OF_FILES else None


def _postgres_store(url: str, owner: str) -> Store:
    try:
        return late.PostgresStore(url, owner=owner)
    # The driver is an extra, and is imported with the store.
    except ImportError as error:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING, "a PostgreSQL store needs `pip install 'haptera[postgres]'`"
        ) from error


def _found(target: str, *, folder: int) -> Path:
    """Return where a store is: its folder may be missing and is made then, the one above may not.

    `folder` says how far up its folder is. A mistyped path is found out here, before a new and
    empty store is made in a folder that nothing else looks at.
    """
    path = Path(target).expanduser().absolute()
    above = [path, *path.parents][folder:][1:2]
    if above and not above[0].is_dir():
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"store {target!r}: there is no folder {str(above[0])!r}. A store makes one missing "
            "folder at most; check the path, or make the folder first",
        )
    return path
