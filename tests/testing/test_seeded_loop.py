"""The seeded loop: one seed is one schedule, whatever else the process has done before."""

import asyncio

from haptera.testing import LoopClock, run_seeded


def _order_of_ends(seed: int, tasks: int = 8) -> list[int]:
    """Cancel a set of tasks, and return the order in which they end."""
    ends: list[int] = []

    async def wait(number: int) -> None:
        try:
            await LoopClock().sleep(1_000)
        finally:
            ends.append(number)

    async def work() -> None:
        running = {asyncio.ensure_future(wait(number)) for number in range(tasks)}
        await LoopClock().sleep(1)
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    run_seeded(work, seed)
    return ends


def test_a_set_of_tasks_ends_in_one_order_per_seed_wherever_the_tasks_lie_in_memory() -> None:
    kept, orders = [], set()
    for size in range(40):
        kept.append([[number] for number in range(37 * size)])
        orders.add(tuple(_order_of_ends(seed=3)))
    assert len(orders) == 1
    assert len({tuple(_order_of_ends(seed)) for seed in range(10)}) > 1
