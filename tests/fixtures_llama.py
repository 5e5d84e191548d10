"""A real llama.cpp server with a real small model, in a process of its own, for all tests."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def llama(smollm2: Path) -> Iterator[str]:
    """The URL of the server."""
    command = [sys.executable, "-m", "tests.providers.llama_server", str(smollm2)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()
