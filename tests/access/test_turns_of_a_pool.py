"""A pool lets so many queries run at once; the others wait in order, or are refused."""

import asyncio
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentSession, ErrorCode
from haptera.access.pool import PoolLimits, SessionPool, WhenQueueFull
from haptera.testing import Gate, ScriptedProvider, says
from tests.scripted_agents import MODEL, failure_of


def pool_with(**limits: Any) -> SessionPool[AgentSession]:
    async def open_session(owner: str, reference: str) -> AgentSession:
        raise AssertionError(f"{owner}/{reference} is opened")

    return SessionPool(open_session, limits=PoolLimits(**limits))


class Runs:
    """Callers of a pool, each of which keeps its turn until the test lets it go."""

    def __init__(self, **limits: Any) -> None:
        self.pool = pool_with(**limits)
        self.running: list[str] = []
        self.refused: dict[str, ErrorCode] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._done: dict[str, asyncio.Event] = {}

    async def start(self, *names: str) -> None:
        for name in names:
            self.begin(name)
            await self.settle()

    def begin(self, name: str) -> None:
        """Let a caller come with the next step of the loop."""
        self._done[name] = asyncio.Event()
        self._tasks[name] = asyncio.ensure_future(self._run(name))

    async def end(self, *names: str) -> None:
        for name in names:
            self._done[name].set()
            await self._tasks[name]
            await self.settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 - steps of the loop, not time

    async def _run(self, name: str) -> None:
        try:
            async with self.pool.turn():
                self.running.append(name)
                await self._done[name].wait()
                self.running.remove(name)
        except AgentError as error:
            self.refused[name] = error.code


async def test_c20_four_run_and_sixty_four_wait_unless_told_otherwise() -> None:
    limits = PoolLimits()
    assert (limits.queries, limits.pending, limits.when_full) == (4, 64, "suspend")
    assert (limits.pending_seconds, limits.events) == (30.0, 256)


async def test_c20_those_who_wait_run_in_the_order_in_which_they_came() -> None:
    runs = Runs(queries=2)
    await runs.start("a", "b", "c", "d", "e")
    assert runs.running == ["a", "b"]
    await runs.end("b")
    assert runs.running == ["a", "c"]
    await runs.end("a", "c")
    assert runs.running == ["d", "e"]
    await runs.end("d", "e")
    stats = runs.pool.stats.queries
    assert (stats.running, stats.pending, stats.started, stats.refused) == (0, 0, 5, 0)


@pytest.mark.parametrize(
    ("when_full", "refused", "order"),
    [
        ("suspend", [], ["b", "c", "d"]),
        ("dropping", ["c", "d"], ["b"]),
        ("sliding", ["b", "c"], ["d"]),
    ],
)
async def test_c20_a_full_line_suspends_drops_or_slides(
    when_full: WhenQueueFull, refused: list[str], order: list[str]
) -> None:
    runs = Runs(queries=1, pending=1, when_full=when_full)
    await runs.start("a", "b", "c", "d")
    assert runs.refused == dict.fromkeys(refused, ErrorCode.POOL_FULL)
    assert runs.pool.stats.queries.pending == 1
    await runs.end("a")
    ran = []
    while runs.running:
        ran += runs.running
        await runs.end(*runs.running)
    assert ran == order


@pytest.mark.parametrize("pending", [0, 1, 2])
async def test_c20_suspended_callers_run_in_order_however_short_the_line_is(pending: int) -> None:
    runs = Runs(queries=1, pending=pending)
    await runs.start("a", "b", "c", "d")
    ran = []
    while runs.running:
        ran += runs.running
        await runs.end(*runs.running)
    assert ran == ["a", "b", "c", "d"]
    assert runs.pool.stats.queries.running == 0


async def test_c20_turns_that_end_at_once_leave_no_caller_behind() -> None:
    pool = pool_with(queries=1, pending=1, pending_seconds=5)

    async def pass_by() -> None:
        async with pool.turn():
            pass

    async with pool.turn():
        others = [asyncio.ensure_future(pass_by()) for _ in range(5)]
        await asyncio.wait(others, timeout=0.01)
    await asyncio.gather(*others)
    assert pool.stats.queries.started == 6


async def test_c20_who_waits_too_long_is_told_so() -> None:
    runs = Runs(queries=1, pending_seconds=0)
    await runs.start("a", "b")
    while not runs.refused:
        await runs.settle()
    assert runs.refused == {"b": ErrorCode.TIMEOUT}
    assert runs.pool.stats.queries.expired == 1
    await runs.end("a")
    assert runs.pool.stats.queries.running == 0


@pytest.mark.parametrize("when_full", ["suspend", "dropping"])
async def test_c20_a_caller_that_gives_up_takes_no_turn(when_full: WhenQueueFull) -> None:
    runs = Runs(queries=1, pending=1, when_full=when_full)
    await runs.start("a", "b")
    if when_full == "suspend":
        await runs.start("c")
    await runs.cancel("b")
    await runs.start("d")
    await runs.end("a")
    last = "c" if when_full == "suspend" else "d"
    assert runs.running == [last]
    await runs.end(last)
    if when_full == "suspend":
        await runs.end("d")
    assert runs.pool.stats.queries.running == 0


async def test_c20_a_full_line_does_not_drop_a_caller_that_is_gone() -> None:
    runs = Runs(queries=1, pending=1, when_full="sliding")
    await runs.start("a", "b")
    runs.begin("c")  # it comes before the cancelled caller has left the line
    await runs.cancel("b")
    assert runs.refused == {}
    assert runs.pool.stats.queries.refused == 0
    await runs.end("a")
    assert runs.running == ["c"]
    await runs.end("c")
    assert runs.pool.stats.queries.running == 0


async def test_c20_the_last_events_are_kept_and_the_oldest_go_first() -> None:
    runs = Runs(queries=1, events=3)
    await runs.start("a", "b")
    assert list(runs.pool.events) == ["started", "queued"]
    await runs.end("a", "b")
    assert list(runs.pool.events) == ["ended", "started", "ended"]


async def test_c20_without_a_bound_every_query_runs() -> None:
    runs = Runs(queries=None)
    await runs.start(*"abcdef")
    assert runs.running == list("abcdef")
    assert runs.pool.stats.queries.running == 6
    await runs.end(*"abcdef")


async def test_c20_those_who_wait_are_told_when_the_pool_closes() -> None:
    runs = Runs(queries=1)
    await runs.start("a", "b", "c")
    await runs.pool.close()
    await runs.start("d")
    assert runs.refused == dict.fromkeys("bcd", ErrorCode.CLOSED)
    await runs.end("a")
    assert runs.pool.stats.queries.running == 0


async def test_c20_a_session_keeps_its_turn_until_it_is_idle() -> None:
    gate = Gate()
    provider = ScriptedProvider([[gate, *says("first")], says("more"), says("second")])
    async with Agent(MODEL, providers=[provider], environment={}) as agent:
        pool: SessionPool[AgentSession] = SessionPool(
            lambda owner, name: agent.session(f"{owner}/{name}").open(),
            limits=PoolLimits(queries=1, pending=0, when_full="dropping"),
        )
        async with pool, pool.use("a") as one, pool.use("b") as other:
            await pool.begin(one, lambda: one.send("Hi"))
            await gate.reached.wait()
            # It runs in the turn of the session.
            await pool.begin(one, lambda: one.send("and", delivery="queue"))
            error = await failure_of(pool.begin(other, lambda: other.send("Hi")))
            assert error.code is ErrorCode.POOL_FULL
            gate.open()
            await one.wait_idle()
            while pool.stats.queries.running:
                await asyncio.sleep(0)  # noqa: TID251 - steps of the loop, not time
            await pool.begin(other, lambda: other.send("Hi"))
            await other.wait_idle()
            assert other.view().messages[-1].text == "second"
            assert pool.stats.queries.started == 2


async def test_c20_a_query_that_cannot_begin_gives_its_turn_back() -> None:
    provider = ScriptedProvider([says("first")])
    async with Agent(MODEL, providers=[provider], environment={}) as agent:
        pool: SessionPool[AgentSession] = SessionPool(
            lambda owner, name: agent.session(f"{owner}/{name}").open(),
            limits=PoolLimits(queries=1),
        )
        async with pool, pool.use("a") as session:
            await failure_of(pool.begin(session, lambda: session.send("")))
            assert pool.stats.queries.running == 0
            await pool.begin(session, lambda: session.send("Hi"))
            await session.wait_idle()
