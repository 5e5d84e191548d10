"""Races between everything that can happen to a query, over thousands of seeded schedules."""

import asyncio
import hashlib
import multiprocessing
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations

import pytest

from holdfast.blocks.approval_coordinator import ApprovalCoordinator
from holdfast.testing.seeded_loop import SeededLoop
from tests.session.race_scenario import HAPPENINGS, Scenario, play

_CHUNK = 500


def _play_on_seeded_loop(seed: int) -> tuple[Scenario, bytes]:
    """Run one seed; returns what happened and what tells its schedule from others."""
    loop = SeededLoop(seed)
    try:
        scenario = loop.run_until_complete(play(seed))
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        assert not left, f"seed {seed}: tasks were left: {left}"
        schedule = f"{scenario.seen} {loop.schedule}".encode()
        return scenario, hashlib.blake2b(schedule, digest_size=8).digest()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _play_chunk(first: int) -> tuple[set[bytes], Counter[tuple[str, str]]]:
    """Run a row of seeds; the first one that finds something is named."""
    schedules: set[bytes] = set()
    orders: Counter[tuple[str, str]] = Counter()
    for seed in range(first, first + _CHUNK):
        try:
            scenario, schedule = _play_on_seeded_loop(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed} found something: {error!r}") from error
        schedules.add(schedule)
        seen = list(dict.fromkeys(scenario.seen))
        orders.update((first, second) for n, first in enumerate(seen) for second in seen[n + 1 :])
    return schedules, orders


def _check_schedules(wanted: int, report: Callable[[str], None]) -> None:
    """Play until that many different schedules must have been seen, on two processes."""
    schedules: set[bytes] = set()
    orders: Counter[tuple[str, str]] = Counter()
    chunks = range(0, wanted + 2 * _CHUNK, _CHUNK)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=2, mp_context=spawn) as pool:
        for seen, found in pool.map(_play_chunk, chunks):
            schedules.update(seen)
            orders.update(found)
    report(f"races: {len(schedules)} distinct schedules, {len(orders)} of 56 ordered pairs")
    assert len(schedules) >= wanted
    assert {pair for pair in permutations(HAPPENINGS, 2) if not orders[pair]} == set()


@pytest.mark.timeout(1800)
def test_every_schedule_has_one_end_and_leaves_nothing(report: Callable[[str], None]) -> None:
    _check_schedules(20_000, report)


@pytest.mark.soak
@pytest.mark.timeout(18_000)
def test_ten_times_as_many_schedules(report: Callable[[str], None]) -> None:
    _check_schedules(200_000, report)


@pytest.mark.timeout(300)
def test_an_end_that_leaves_approvals_open_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Callable[[str], None]
) -> None:
    monkeypatch.setattr(ApprovalCoordinator, "cancellations", lambda self, reason: [])
    for seed in range(500):
        try:
            _play_on_seeded_loop(seed)
        except AssertionError:
            report(f"races: the planted bug (approvals left open) is found by seed {seed}")
            return
    pytest.fail("500 schedules did not find the planted bug")
