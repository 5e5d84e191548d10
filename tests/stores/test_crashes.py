"""A process that is killed at any write or sync loses nothing that it was told is durable."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from haptera.testing.promises import PromiseBrokenError
from haptera.testing.store_conformance.crash_sweep import (
    CrashPoint,
    check_acknowledged_is_there,
    find_crash_points,
    is_strace_here,
    read_acknowledged,
    spread,
    sweep_crashes,
)
from tests.fixtures_report import Report
from tests.samples import sampled
from tests.stores.store_factories import DURABLE, STORE_FACTORIES, open_store
from tests.stores.workers import command_without_other_writes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_strace_here(), reason="strace is not installed"),
]


def worker_of(kind: str) -> Callable[[Path], Sequence[str]]:
    """Return the command line of a worker for a store."""
    command = command_without_other_writes("tests.stores.crash_worker")
    return lambda place: [*command, kind, str(place)]


def checker_of(kind: str) -> Callable[[Path], Awaitable[None]]:
    """Return what is checked in the folder that a killed worker leaves."""

    async def check(place: Path) -> None:
        await check_acknowledged_is_there(STORE_FACTORIES[kind](place), place / "acks")
        for session_id in read_acknowledged(place / "acks"):
            store = open_store(kind, place)
            pending = await store.inbox.pending(session_id)
            title = await store.index.find("ana", "/work/house", session_id=session_id)
            await store.close()
            # Entries are stored and their command is consumed in one step: never one without other.
            turns = int(title.title.split()[1]) + 1 if title and title.title else 0
            assert {item.id for item in pending}.isdisjoint(f"c{n}" for n in range(turns))

    return check


@pytest.mark.timeout(120)
@sampled(3, 12)
@pytest.mark.parametrize("kind", DURABLE)
async def test_kill_nine_at_some_writes_and_syncs_loses_nothing(
    kind: str, sample: int, tmp_path: Path, report: Report
) -> None:
    points = await find_crash_points(worker_of(kind), tmp_path / "counted")
    swept = await sweep_crashes(
        worker_of(kind),
        checker_of(kind),
        folder=tmp_path,
        points=spread(points, sample),
    )
    assert swept.killed > sample // 2
    report(f"{kind}: {swept.killed} of {len(points)} crash points, nothing lost")


@pytest.mark.soak
@pytest.mark.parametrize("kind", DURABLE)
async def test_kill_nine_at_every_write_and_sync_loses_nothing(
    kind: str, tmp_path: Path, report: Report
) -> None:
    swept = await sweep_crashes(worker_of(kind), checker_of(kind), folder=tmp_path)
    assert swept.killed > swept.points * 0.9
    report(f"{kind}: {swept.killed} of {swept.points} crash points, 0 acknowledged entries lost")


async def test_a_lost_entry_would_be_noticed(tmp_path: Path) -> None:
    async def check(place: Path) -> None:
        (session_id,) = read_acknowledged(place / "acks")
        log = place / "sessions" / "sessions" / f"{session_id}.jsonl"
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:2]))
        await check_acknowledged_is_there(STORE_FACTORIES["jsonl"](place), place / "acks")

    with pytest.raises(PromiseBrokenError, match="acknowledged"):
        await sweep_crashes(
            worker_of("jsonl"), check, folder=tmp_path, points=[CrashPoint("fdatasync", 9)]
        )
