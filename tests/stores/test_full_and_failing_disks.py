"""A disk that is full or fails gives a typed error, and nothing half-written is ever seen."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from haptera.model.ids import SessionId, new_session_id
from haptera.testing.store_conformance.crash_sweep import is_strace_here
from tests.stores.store_factories import DURABLE
from tests.stores.workers import WorkerProcess, worker

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", DURABLE)]

BIG = 20_000


@pytest.fixture
def session_id() -> SessionId:
    return new_session_id()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of one megabyte, where that is permitted."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(tmp_path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("file systems cannot be mounted here")
    yield tmp_path
    unmount = ["umount", str(tmp_path)]
    subprocess.run(unmount, check=True)


async def fill(running: WorkerProcess) -> tuple[int, str]:
    """Append until it fails; return the last `seq` that worked and the error."""
    await running.must("acquire")
    await running.must("append", 1)
    for seq in range(2, 1000):
        answered = await running.ask("append", seq, BIG)
        if not answered.startswith("ok "):
            return seq - 1, answered
    raise AssertionError("it never failed")


async def test_a_limit_on_file_size_is_a_full_store_and_lifting_it_lets_it_go_on(
    kind: str, tmp_path: Path, session_id: SessionId
) -> None:
    async with worker(kind, tmp_path, session_id) as running:
        await running.must("limit", 300_000)
        last, error = await fill(running)
        assert error.startswith("FULL")
        assert await running.must("head") == str(last)
        await running.must("limit", "none")
        await running.must("append", last + 1, BIG)
        assert await running.must("head") == str(last + 1)
    async with worker(kind, tmp_path, session_id) as running:
        assert await running.must("head") == str(last + 1)


@pytest.mark.parametrize("failing", ["release", "acquire"])
async def test_a_session_can_be_opened_again_after_a_lease_could_not_be_written(
    kind: str, tmp_path: Path, *, failing: str, session_id: SessionId
) -> None:
    async with worker(kind, tmp_path, session_id) as running:
        await running.must("acquire")
        await running.must("append", 1)
        await running.must("limit", 0)
        assert (await running.ask(failing)).startswith("FULL")
        await running.must("limit", "none")
        await running.must("release")
        async with worker(kind, tmp_path, session_id) as other:
            await other.must("acquire")
            await other.must("append", 2)
            await other.must("release")
        await running.must("acquire")
        await running.must("append", 3)


async def test_a_full_disk_is_a_full_store_and_everything_before_it_can_be_read(
    kind: str, small_disk: Path, session_id: SessionId
) -> None:
    async with worker(kind, small_disk, session_id) as running:
        last, error = await fill(running)
        assert error.startswith("FULL")
        assert await running.must("head") == str(last)
        await running.must("close")
    async with worker(kind, small_disk, session_id) as running:
        assert await running.must("head") == str(last)


@pytest.mark.skipif(not is_strace_here(), reason="strace is not installed")
@pytest.mark.parametrize("when", [8, 9, 10])
async def test_a_sync_that_fails_is_an_error_and_what_was_acknowledged_stays(
    kind: str, tmp_path: Path, *, when: int, session_id: SessionId
) -> None:
    failing = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]
    rule = ["-e", f"inject=fdatasync,fsync:error=EIO:when={when}"]
    # Patient, because the renewal of a lease is a sync, too, and its failure is answered by none.
    async with worker(f"patient {kind}", tmp_path, session_id, under=[*failing, *rule]) as running:
        answers = [await running.ask("acquire"), await running.ask("append", 1)]
        head = 1
        for _ in range(12):
            answers.append(await running.ask("append", head + 1, 100))
            head += answers[-1].startswith("ok ")
        assert await running.must("head") == str(head)
        await running.must("close")
    errors = [answer for answer in answers if not answer.startswith("ok ")]
    assert len(errors) == 1, answers
    assert errors[0].startswith("UNAVAILABLE")
    async with worker(kind, tmp_path, session_id) as running:
        assert await running.must("head") == str(head)
