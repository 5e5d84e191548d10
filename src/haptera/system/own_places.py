"""What on this machine is Haptera's own, and whose home folders there are: tools stay out of both.

One list for the process. A root serves the tools of any number of agents, and the store of each of
them must be out of reach of the tools of all. Who makes a store or resolves a configuration holds
places here for as long as it lives; tools only read the list.
"""

import itertools
import weakref
from pathlib import Path

import msgspec


class UserFolders(msgspec.Struct, frozen=True, kw_only=True):
    """A home folder, and where its programs keep files if that is not in the usual folders."""

    home: str
    config: str | None = None
    data: str | None = None
    state: str | None = None
    cache: str | None = None


class OwnPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute paths, which need not exist."""

    folders: tuple[str, ...] = ()
    """Where Haptera keeps configuration, data, state and caches, and files of these by name."""
    stores: tuple[str, ...] = ()
    """Folders of stores that keep each session in files of its own."""
    databases: tuple[str, ...] = ()
    """SQLite files; what SQLite puts beside one begins with the name of the file and `-`."""
    users: tuple[UserFolders, ...] = ()


_held: dict[int, OwnPlaces] = {}
_numbers = itertools.count()
_joined: dict[tuple[int, ...], OwnPlaces] = {}
"""What is held, as one value, by the numbers of its parts; one entry at most."""


def hold_places(owner: object, places: OwnPlaces) -> None:
    """Hold places for as long as an object lives."""
    number = next(_numbers)
    _held[number] = places
    weakref.finalize(owner, _held.pop, number, None).atexit = False


def hold_store(store: object, *, database: Path | None = None, folder: Path | None = None) -> None:
    """Hold what a store keeps sessions in, for as long as the store lives.

    A relative path begins in the folder that the process works in now.
    """
    places = OwnPlaces(
        databases=() if database is None else (str(database.absolute()),),
        stores=() if folder is None else (str(folder.absolute()),),
    )
    hold_places(store, places)


def own_places() -> OwnPlaces:
    """Return everything that is held; the same object as long as nothing changes."""
    # A copy, because another thread may change the list at any time.
    held = dict(_held)
    key = tuple(held)
    if (cached := _joined.get(key)) is not None:
        return cached
    fields = {
        name: tuple(dict.fromkeys(each for part in held.values() for each in getattr(part, name)))
        for name in OwnPlaces.__struct_fields__
    }
    _joined.clear()
    joined = _joined[key] = OwnPlaces(**fields)
    return joined
