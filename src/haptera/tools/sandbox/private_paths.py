"""What no tool may touch: Haptera's own files, stores, and the secrets of home folders.

File tools are refused a path by `PrivatePaths`, beneath their root. Commands do not see what
`hidden_paths` returns, wherever it is.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from haptera.system.own_places import OwnPlaces, UserFolders, own_places
from haptera.tools.sandbox.home_secrets import (
    SECRET_NAMES,
    Home,
    found_by_name,
    home_folder,
    known_secrets,
)
from haptera.tools.sandbox.plan import is_beneath
from haptera.tools.sandbox.private_beneath import PrivateBeneath

_OF_SQLITE = ("", "-journal", "-shm", "-wal")
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_NAMES = (
    "cache", "config.toml", "credentials.json", "data", "models", "permissions.json",
    "prompt_history", "server-keys.json", "server.json", "sessions.db", "sessions.db-journal",
    "sessions.db-shm", "sessions.db-wal", "snapshots", "state",
)  # fmt: skip
"""What is hidden of a folder of our own that is the root, or has a whole home folder in it."""
_OF_STORE = (
    "blobs", "inbox", "index.json", "index.lock", "leases", "lookup.jsonl", "quarantine",
    "sessions", "takeovers", "waiting",
)  # fmt: skip
"""The same of the folder of a store."""
_OF_ROOT = ("/etc", "/var/lib", "/var/log", "/var/spool")
_FOR_OTHERS = stat.S_IROTH
_FRESH_SECONDS = 5.0
"""How long the links on the way to known secrets are taken for what they were."""
_WALK_SECONDS = 60.0
"""How long what a walk found by name is taken for all that there is."""


class PrivatePaths:
    """What tools that are kept to one root must not touch beneath it.

    Keeps what it worked out as long as no store and no agent is new, for a few seconds at most:
    links on the way to known secrets may change.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._key: tuple[object, ...] = ()
        self._places = OwnPlaces()
        self._beneath = PrivateBeneath()

    def beneath(self) -> PrivateBeneath:
        """Return what is private now."""
        places, home = own_places(), os.path.expanduser("~")
        key = (id(places), home, time.perf_counter() // _FRESH_SECONDS)
        if key != self._key:
            self._beneath = self._find(places)
            self._places, self._key = places, key  # held, so that its id stays its own
        return self._beneath

    def _find(self, places: OwnPlaces) -> PrivateBeneath:
        homes = _homes(known_users(places))
        private = [*_own_paths(places, homes, self._root)]
        private += [path for home in homes for path in known_secrets(home, self._root)]
        real = {*private, *(os.path.realpath(path) for path in private)} - {self._root}
        inside = [home.path for home in homes if is_beneath(home.path, self._root)]
        return PrivateBeneath(
            closed=frozenset(self._relative(real)),
            databases=tuple(self._relative(_databases(places))),
            homes=tuple(self._relative(inside)),
            names=SECRET_NAMES,
        )

    def _relative(self, paths: Iterable[str]) -> Iterator[str]:
        for path in paths:
            if is_beneath(path, self._root):
                yield path[len(self._root) :].lstrip("/") or "."


def store_files() -> set[tuple[int, int]]:
    """Return device and inode of every file of every database that is there now."""
    files = set()
    for path in _database_files(own_places()):
        try:
            state = os.stat(path)
        except OSError:
            continue
        files.add((state.st_dev, state.st_ino))
    return files


def known_users(places: OwnPlaces, *more: UserFolders) -> tuple[UserFolders, ...]:
    """Return the homes of this process and its user, and those that agents were told of."""
    # The process's HOME: another one after `sudo -E`, and in many containers.
    own = [UserFolders(home=home_folder()), *user_of({"HOME": os.path.expanduser("~")})]
    return tuple(dict.fromkeys((*own, *more, *places.users)))


def user_of(environment: Mapping[str, str]) -> tuple[UserFolders, ...]:
    """Return the home that a command's own variables name, if they do."""
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        return ()
    kinds = ("config", "data", "state", "cache")
    return (
        UserFolders(
            home=home, **{kind: environment.get(f"XDG_{kind.upper()}_HOME") for kind in kinds}
        ),
    )


def hidden_paths(users: Iterable[UserFolders], *, root: str, opened: Iterable[str]) -> list[str]:
    """Return what exists and must be hidden from a command, without symbolic links.

    What is in the `opened` folders is not looked for by name: the user gave it to commands.
    """
    places, homes = own_places(), _homes(users)
    private = [*_own_paths(places, homes, root), *_database_files(places)]
    private += [path for home in homes for path in known_secrets(home, root)]
    if os.geteuid() == 0:
        # Root can read what others cannot.
        private += [path for folder in _OF_ROOT for path in _closed_to_others(folder)]
    real = {os.path.realpath(path) for path in private if os.path.lexists(path)} - {root}
    is_outside = not any(is_beneath(home.path, root) for home in homes)
    left = frozenset(
        path
        for path in (*opened, *([root] if is_outside else ()))
        if any(
            is_beneath(path, top) for home in homes for top in (home.path, home.data, home.cache)
        )
    )
    closed = frozenset(path for path in real if os.path.isdir(path))
    named = _walked(homes, closed, left, int(time.perf_counter() // _WALK_SECONDS))
    return sorted(path for path in real | {*named} if os.path.exists(path))


def hold_names_of_databases(folders: Iterable[str]) -> None:
    """Make what SQLite may put beside an existing database in these folders, as empty files.

    A mount needs something to be on, and SQLite believes a journal that a command has made. It
    takes an empty one for none.
    """
    paths = [path for path in _databases(own_places()) if os.path.isfile(path)]
    for path in paths:
        if any(is_beneath(path, folder) for folder in folders):
            for end in _OF_SQLITE[1:]:
                with suppress(OSError):
                    os.close(os.open(f"{path}{end}", _NEW_FILE, 0o600))


def stores_in(root: str) -> list[str]:
    """Return the files and folders of stores that are beneath a root."""
    places = own_places()
    paths = [*_databases(places), *(os.path.realpath(path) for path in places.stores)]
    return [path for path in paths if is_beneath(path, root)]


@lru_cache(maxsize=16)
def _walked(
    homes: tuple[Home, ...], closed: frozenset[str], left: frozenset[str], _minute: int
) -> tuple[str, ...]:
    """Walk once a minute, and whenever what is hidden anyway has changed."""
    return tuple(found_by_name(homes, closed=closed, left=left))


def _homes(users: Iterable[UserFolders]) -> tuple[Home, ...]:
    return tuple(dict.fromkeys(Home.of(user) for user in users))


def _own_paths(places: OwnPlaces, homes: tuple[Home, ...], root: str) -> Iterator[str]:
    """Yield the folders of ours; of one that cannot be hidden as a whole, what we keep in it."""
    of_folders = [(folder, _OWN_NAMES) for folder in places.folders]
    for folder, names in (*of_folders, *((folder, _OF_STORE) for folder in places.stores)):
        path = os.path.realpath(folder)
        if path == root or any(is_beneath(home.path, path) for home in homes):
            yield from (f"{path}/{name}" for name in names)
        else:
            yield path


def _databases(places: OwnPlaces) -> list[str]:
    return [os.path.realpath(path) for path in places.databases]


def _database_files(places: OwnPlaces) -> list[str]:
    return [f"{path}{end}" for path in _databases(places) for end in _OF_SQLITE]


def _closed_to_others(folder: str) -> Iterator[str]:
    """Yield what only root can read in a folder and in the folders in it."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode):
            continue
        if not mode & _FOR_OTHERS:
            yield entry.path
        elif stat.S_ISDIR(mode) and folder == "/etc":
            yield from _closed_to_others(entry.path)
