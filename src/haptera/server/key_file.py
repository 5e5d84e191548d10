"""The file of API keys (0600): digests, owners, scopes and expiry; how private files are written.

A module of its own because programs that make keys by themselves use it without the command line.
"""

import contextlib
from collections.abc import Generator, Mapping
from pathlib import Path

import msgspec

from haptera import ConfigError, ErrorCode
from haptera.access.credentials import file_lock, replace_file
from haptera.access.failure_log import FailureLog
from haptera.model.ids import OWNER_NAME
from haptera.model.json_types import writable
from haptera.server.access import ApiKey

_log = FailureLog(__name__)
_FILE = "server-keys.json"
_SHORTEST_PREFIX = 8


class KeyFile:
    """The keys of a running server: the file is read again when it has changed.

    Owns a copy of the keys. A file that cannot be used any more makes every key invalid, until it
    is mended: a key that was removed must not work on because of a mistake in the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._identity()
        # Read after its identity: a change in between is seen as one at the next look.
        self._keys = {key.digest: key for key in read_keys(folder)}

    def keys(self) -> Mapping[str, ApiKey]:
        """Return the keys that there are now, by digest."""
        identity = self._identity()
        if identity != self._seen:
            self._seen = identity
            try:
                self._keys = {key.digest: key for key in read_keys(self._folder)}
            except ConfigError as error:
                _log.warn(f"no API key is accepted: {error}")
                self._keys = {}
        return self._keys

    def _identity(self) -> tuple[int, ...] | None:
        try:
            facts = (self._folder / _FILE).stat()
        except OSError:
            return None
        # The file is replaced and not written to, so its inode changes even within one tick of the
        # clock.
        return facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size


def read_keys(folder: Path) -> tuple[ApiKey, ...]:
    """Read the keys; none when there is no file.

    Raises:
        ConfigError: CONFIG_INVALID when the file cannot be read, or others may read it.

    """
    path = folder / _FILE
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{path} is readable by others: chmod 600")
        return msgspec.json.decode(path.read_bytes(), type=tuple[ApiKey, ...])
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{path} is damaged: {error}") from error
    except OSError as error:
        raise _unusable(path, error) from error


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that only this user may read; it is never seen half written.

    Raises:
        ConfigError: CONFIG_INVALID when it cannot be written.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, content)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(ErrorCode.CONFIG_INVALID, f"{path} cannot be used: {error.strerror}")


def add_key(folder: Path, key: ApiKey) -> None:
    """Store a key.

    Raises:
        ConfigError: CONFIG_INVALID when the owner's name or the label is not valid.

    """
    if OWNER_NAME.fullmatch(key.owner) is None:
        message = "an owner has 1 to 128 letters, digits, dots, dashes and underscores"
        raise ConfigError(ErrorCode.CONFIG_INVALID, message)
    if writable(key.label) != key.label:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"the label {key.label!r} is not valid text")
    with _locked(folder):
        _write(folder, (*read_keys(folder), key))


def remove_key(folder: Path, prefix: str) -> bool:
    """Remove the key whose digest begins so; returns whether there was exactly one."""
    with _locked(folder):
        keys = read_keys(folder)
        matching = [key for key in keys if key.digest.startswith(prefix)]
        if len(matching) != 1 or len(prefix) < _SHORTEST_PREFIX:
            return False
        _write(folder, tuple(key for key in keys if key not in matching))
    return True


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None, None, None]:
    """Let one process at a time read the keys and write them again: none of them is lost."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / _FILE))
        except OSError as error:
            raise _unusable(folder, error) from error
        yield


def _write(folder: Path, keys: tuple[ApiKey, ...]) -> None:
    write_private(folder / _FILE, msgspec.json.encode(keys))
