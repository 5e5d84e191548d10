"""A machine that loses its power keeps what it was told is durable.

A file system in a file is shut down without writing its journal back, which is what a power cut
looks like to it; then it is mounted again and the store opened.
"""

import asyncio
import contextlib
import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from haptera.testing.store_conformance.crash_sweep import (
    check_acknowledged_is_there,
    read_acknowledged,
)
from tests.architecture.source_tree import ROOT
from tests.fixtures_report import Report
from tests.stores.store_factories import DURABLE, STORE_FACTORIES
from tests.stores.workers import worker_environment

pytestmark = pytest.mark.soak

CUTS = 50
SHUTDOWN, WITHOUT_JOURNAL = 0x8004587D, 2


class PowerlessDisk:
    """A file system in a file that can lose its power."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk.img"
        self.mounted = folder / "disk"
        self.mounted.mkdir()
        with self._image.open("wb") as file:
            file.truncate(64 << 20)
        _do("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        _do("mount", "-o", "loop", str(self._image), str(self.mounted))

    def unmount(self) -> None:
        _do("umount", str(self.mounted))

    def cut_power(self) -> None:
        descriptor = os.open(self.mounted, os.O_RDONLY)
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL))
        os.close(descriptor)


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerlessDisk]:
    try:
        disk = PowerlessDisk(tmp_path)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("file systems cannot be mounted here")
    yield disk
    with contextlib.suppress(subprocess.CalledProcessError):
        disk.unmount()


async def write_until_the_cut(kind: str, disk: PowerlessDisk, *, acks: Path, after: int) -> None:
    """Let a worker write, cut the power once so many appends were acknowledged, end the worker."""
    command = [sys.executable, "-m", "tests.stores.crash_worker", kind]
    arguments = [str(disk.mounted / "store"), str(acks), "1000"]
    worker = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        cwd=ROOT,
        env=worker_environment(),
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(60):
        while max(read_acknowledged(acks).values(), default=0) < after:
            assert worker.returncode is None, "the worker ended before its time"
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.wait(), 0.002)
    # What a file system says after its power is gone counts for nothing.
    before = acks.read_bytes()
    disk.cut_power()
    with contextlib.suppress(ProcessLookupError):
        worker.kill()
    await worker.wait()
    acks.write_bytes(before)


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_power_cut_loses_nothing_that_was_acknowledged(
    kind: str, disk: PowerlessDisk, *, tmp_path: Path, report: Report
) -> None:
    survived = 0
    for cut in range(CUTS):
        acks = tmp_path / f"acks-{cut}"
        await write_until_the_cut(kind, disk, acks=acks, after=1 + cut * 3)
        disk.unmount()
        disk.mount()
        place = STORE_FACTORIES[kind](disk.mounted / "store")
        await check_acknowledged_is_there(place, acks)
        survived += 1
        store = place()
        for session_id in read_acknowledged(acks):
            await store.log.delete(session_id)
        await store.close()
    report(f"{kind}: {survived} power cuts, 0 acknowledged entries lost")
