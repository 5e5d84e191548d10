"""Races between everything that can happen to a session, over thousands of seeded schedules."""

import asyncio
import hashlib
import multiprocessing
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations

import pytest

from haptera.testing.clocks import SeededLoop
from tests.kernel.session.race_happenings import HAPPENINGS
from tests.kernel.session.race_laws import Story
from tests.kernel.session.race_scenario import play

pytestmark = pytest.mark.slow

_CHUNK = 100


def play_on_seeded_loop(seed: int, theme: str | None = None) -> tuple[Story, bytes]:
    """Run one seed; returns what happened and what tells its schedule from others."""
    loop = SeededLoop(seed)
    try:
        story = loop.run_until_complete(play(seed, theme))
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        assert not left, f"seed {seed}: tasks were left: {left}"
        schedule = f"{story.happenings} {loop.schedule}".encode()
        return story, hashlib.blake2b(schedule, digest_size=8).digest()
    finally:
        loop.end()


def _play_chunk(first: int) -> tuple[set[bytes], Counter[tuple[str, str]]]:
    """Run a row of seeds; the first one that finds something is named."""
    schedules: set[bytes] = set()
    orders: Counter[tuple[str, str]] = Counter()
    for seed in range(first, first + _CHUNK):
        try:
            story, schedule = play_on_seeded_loop(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed} found something: {error!r}") from error
        schedules.add(schedule)
        seen = list(dict.fromkeys(story.happenings))
        orders.update((first, second) for n, first in enumerate(seen) for second in seen[n + 1 :])
    return schedules, orders


def _check_schedules(wanted: int, report: Callable[[str], None]) -> None:
    """Play until that many different schedules must have been seen, on two processes."""
    schedules: set[bytes] = set()
    orders: Counter[tuple[str, str]] = Counter()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=2, mp_context=spawn) as pool:
        for seen, found in pool.map(_play_chunk, range(0, wanted, _CHUNK)):
            schedules.update(seen)
            orders.update(found)
    pairs = set(permutations(HAPPENINGS, 2))
    report(
        f"races: {len(schedules)} distinct schedules, "
        f"{len(pairs & orders.keys())} of {len(pairs)} ordered pairs"
    )
    assert len(schedules) >= wanted
    assert pairs - orders.keys() == set()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_schedule_has_one_end_and_leaves_nothing(report: Callable[[str], None]) -> None:
    _check_schedules(2_000, report)


@pytest.mark.soak
@pytest.mark.timeout(18_000)
def test_a_hundred_times_as_many_schedules(report: Callable[[str], None]) -> None:
    _check_schedules(200_000, report)


def _digest(seed: int) -> bytes:
    return play_on_seeded_loop(seed)[1]


def test_one_seed_is_one_schedule_in_every_process() -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        elsewhere = list(pool.map(_digest, range(20)))
    assert elsewhere == [_digest(seed) for seed in range(20)]
