"""Races between everything that can happen to a query, over thousands of seeded schedules."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest

from holdfast.blocks.approval_coordinator import ApprovalCoordinator
from holdfast.testing.seeded_loop import SeededLoop
from tests.session.race_scenario import HAPPENINGS, Scenario, play

_CHUNKS, _PER_CHUNK = 20, 1_020
_SOAK_PER_CHUNK = 10_200


def _play_on_seeded_loop(seed: int) -> tuple[Scenario, int]:
    """Run one seed; returns what happened and what tells its schedule from others."""
    loop = SeededLoop(seed)
    try:
        scenario = loop.run_until_complete(play(seed))
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        assert not left, f"seed {seed}: tasks were left: {left}"
        return scenario, hash((tuple(scenario.seen), tuple(loop.schedule)))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _play_many(seeds: range) -> tuple[set[int], Counter[tuple[str, str]]]:
    schedules: set[int] = set()
    orders: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        try:
            scenario, schedule = _play_on_seeded_loop(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed} found something: {error!r}") from error
        schedules.add(schedule)
        seen = list(dict.fromkeys(scenario.seen))
        orders.update((first, second) for n, first in enumerate(seen) for second in seen[n + 1 :])
    return schedules, orders


_schedules: set[int] = set()
_orders: Counter[tuple[str, str]] = Counter()


def _check_totals(wanted: int, report: Callable[[str], None]) -> None:
    report(f"races: {len(_schedules)} distinct schedules, {len(_orders)} of 56 ordered pairs")
    assert len(_schedules) >= wanted
    assert {pair for pair in permutations(HAPPENINGS, 2) if not _orders[pair]} == set()


@pytest.mark.timeout(600)
def test_every_schedule_has_one_end_and_leaves_nothing(report: Callable[[str], None]) -> None:
    for chunk in range(_CHUNKS):
        schedules, orders = _play_many(range(chunk * _PER_CHUNK, (chunk + 1) * _PER_CHUNK))
        _schedules.update(schedules)
        _orders.update(orders)
    _check_totals(20_000, report)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_ten_times_as_many_schedules(report: Callable[[str], None]) -> None:
    for chunk in range(_CHUNKS):
        schedules, orders = _play_many(
            range(chunk * _SOAK_PER_CHUNK, (chunk + 1) * _SOAK_PER_CHUNK)
        )
        _schedules.update(schedules)
        _orders.update(orders)
    _check_totals(200_000, report)


@pytest.mark.timeout(300)
def test_a_missing_reset_is_found(
    monkeypatch: pytest.MonkeyPatch, report: Callable[[str], None]
) -> None:
    monkeypatch.setattr(ApprovalCoordinator, "reset", lambda self: None)
    for seed in range(500):
        try:
            _play_on_seeded_loop(seed)
        except AssertionError:
            report(f"races: the planted bug (no reset of approvals) is found by seed {seed}")
            return
    pytest.fail("500 schedules did not find the planted bug")
