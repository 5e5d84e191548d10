"""A pool keeps so many sessions open, shares each among its callers, and closes what is idle."""

import asyncio
import contextlib
from pathlib import Path
from typing import Self

import pytest

from haptera import (
    Agent,
    AgentError,
    AgentSession,
    ConfigError,
    ErrorCode,
    StoreError,
)
from haptera.access import administration
from haptera.access.pool import CloseReason, PoolLimits, SessionPool
from haptera.testing import FakeClock, Gate, ScriptedProvider, says
from tests.scripted_agents import MODEL, failure_of


class Served:
    """An agent, a pool over it on a fake clock, and what the pool has closed."""

    def __init__(self, *steps: object, store: object = "memory", **limits: object) -> None:
        self.provider = ScriptedProvider(steps)  # type: ignore[arg-type]
        self.agent = Agent(MODEL, providers=[self.provider], environment={}, store=store)  # type: ignore[arg-type]
        self.clock = FakeClock()
        self.closed: list[tuple[str, str, CloseReason]] = []
        self.opened: list[tuple[str, str]] = []
        self.pool: SessionPool[AgentSession] = SessionPool(
            self._open,
            limits=PoolLimits(**limits),  # type: ignore[arg-type]
            clock=self.clock,
            on_closed=lambda *what: self.closed.append(what),
        )

    async def _open(self, owner: str, reference: str) -> AgentSession:
        self.opened.append((owner, reference))
        # One agent has one owner; here its sessions of other owners have names of their own.
        return await self.agent.session(f"{owner}/{reference}").open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.pool.close()
        await self.agent.close()

    async def touch(self, reference: str, owner: str = "ana") -> None:
        async with self.pool.use(reference, owner=owner):
            pass


async def test_c19_every_caller_gets_the_same_session_instead_of_busy() -> None:
    async with Served(says("one"), says("two")) as served:

        async def ask() -> tuple[int, str]:
            async with served.pool.use("shared", owner="ana") as session:
                return id(session), (await session.chat("hello")).text

        first, second = await asyncio.gather(ask(), ask())
        assert first[0] == second[0]
        assert {first[1], second[1]} == {"one", "two"}
        assert served.opened == [("ana", "shared")]


async def test_c19_the_owner_is_part_of_the_key() -> None:
    async with Served(sessions=5) as served:
        async with served.pool.use("x", owner="ana") as ana, served.pool.use("x", owner="b") as ben:
            assert ana.session_id != ben.session_id
        assert served.pool.stats.open == 2


@pytest.mark.parametrize("owner", ["", "-ana", ".ana", "a/b", "a b", "é", "a" * 129, "ana\n"])
async def test_c19_an_invalid_owner_is_refused(owner: str) -> None:
    async with Served() as served:
        error = await failure_of(served.touch("x", owner))
        assert error.code is ErrorCode.CONFIG_INVALID
        assert served.opened == []


async def test_c19_a_full_pool_refuses_a_new_session_and_keeps_the_old_ones() -> None:
    async with Served(sessions=2) as served, contextlib.AsyncExitStack() as used:
        for name in ("a", "b"):
            await used.enter_async_context(served.pool.use(name, owner="ana"))
        error = await failure_of(served.touch("c"))
        assert error.code is ErrorCode.POOL_FULL
        assert error.retryable
        await served.touch("a")
        assert served.pool.stats.refused == 1
        assert served.closed == []


async def test_c19_the_least_recently_used_idle_session_is_closed_for_a_new_one() -> None:
    async with Served(sessions=3) as served:
        for name in ("a", "b", "c", "a"):
            await served.touch(name)
        async with served.pool.use("b", owner="ana"):
            await served.touch("d")
        assert served.closed == [("ana", "c", "evicted")]
        await served.touch("e")
        assert served.closed[1:] == [("ana", "a", "evicted")]


async def test_c19_one_owner_cannot_take_the_places_of_all() -> None:
    async with Served(sessions=3, per_owner=1) as served:
        async with served.pool.use("a", owner="ana"):
            error = await failure_of(served.touch("b", "ana"))
            assert error.code is ErrorCode.POOL_FULL
            assert "'ana'" in error.message
            await served.touch("b", "ben")
        await served.touch("b", "ana")
        assert served.closed == [("ana", "a", "evicted")]


async def test_c19_an_idle_session_is_closed_after_its_time_swept_every_half_of_it() -> None:
    async with Served(idle_seconds=60) as served:
        await served.touch("a")
        await served.clock.until_sleeping()
        assert served.clock.sleeps == [30.0]
        served.clock.advance(31)
        await served.clock.until_sleeping()
        await served.touch("b")
        served.clock.advance(31)
        await served.clock.until_sleeping()
        assert served.closed == [("ana", "a", "idle")]
        async with served.pool.use("b", owner="ana"):
            served.clock.advance(100)
            await served.clock.until_sleeping()
        assert served.pool.stats.open == 1


async def test_c19_a_sweep_waits_a_second_at_least() -> None:
    async with Served(idle_seconds=0.1) as served:
        await served.touch("a")
        await served.clock.until_sleeping()
        assert served.clock.sleeps == [1.0]


async def test_c19_a_session_whose_query_runs_is_in_use_after_its_caller_has_gone() -> None:
    gate = Gate()
    async with Served([gate, *says("done")], sessions=1, idle_seconds=10) as served:
        async with served.pool.use("a", owner="ana") as session:
            await session.send("work")
        await gate.reached.wait()
        assert (await failure_of(served.touch("b"))).code is ErrorCode.POOL_FULL
        served.clock.advance(50)
        assert served.closed == []
        gate.open()
        await session.wait_idle()
        await served.touch("b")
        assert served.closed == [("ana", "a", "evicted")]


async def test_c19_a_session_can_be_closed_by_hand() -> None:
    async with Served() as served:
        await served.touch("a")
        assert await served.pool.discard("a", owner="ana")
        assert not await served.pool.discard("a", owner="ana")
        assert served.closed == [("ana", "a", "manual")]


async def test_c19_closing_the_pool_drains_it_and_refuses_new_callers() -> None:
    gate = Gate()
    async with Served([gate, *says("done")]) as served:
        async with served.pool.use("a", owner="ana") as session:
            stream = session.stream("work")
            running = asyncio.ensure_future(stream.result())
            await gate.reached.wait()
            closing = asyncio.ensure_future(served.pool.close())
            await asyncio.wait({closing}, timeout=0.01)
            assert (await failure_of(served.touch("b"))).code is ErrorCode.CLOSED
            gate.open()
            assert (await running).text == "done"
            await closing
        assert served.closed == [("ana", "a", "shutdown")]


async def test_a_session_that_was_closed_meanwhile_is_opened_anew_for_the_next_caller() -> None:
    async with Served(says("again")) as served:
        async with served.pool.use("a", owner="ana") as session:
            await session.close()
        with pytest.raises(AgentError):
            async with served.pool.use("a", owner="ana") as session:
                await session.chat("gone")
        async with served.pool.use("a", owner="ana") as session:
            assert (await session.chat("back")).text == "again"
        assert served.closed == [("ana", "a", "failed")]


async def test_an_opening_that_fails_leaves_no_place_behind() -> None:
    async with Served(sessions=1) as served:
        taken = await served.agent.session("ana/a").open()
        assert (await failure_of(served.touch("a"))).code is ErrorCode.BUSY
        assert served.pool.stats.open == 0
        await taken.close()
        await served.touch("a")


async def test_an_opening_that_fails_after_its_caller_has_gone_leaves_no_place_behind() -> None:
    gate = Gate()

    openings: list[asyncio.Task[None]] = []

    async def fail_later(_owner: str, _reference: str) -> AgentSession:
        if (opening := asyncio.current_task()) is not None:
            openings.append(opening)
        await gate.wait()
        raise StoreError(ErrorCode.UNAVAILABLE, "down")

    async with SessionPool(fail_later, limits=PoolLimits(sessions=1)) as pool:

        async def touch(reference: str) -> None:
            async with pool.use(reference):
                pass

        gone = asyncio.ensure_future(touch("a"))
        await gate.reached.wait()
        gone.cancel()
        await asyncio.wait({gone})
        assert pool.stats.open == 1
        gate.open()
        await asyncio.wait(openings)
        assert pool.stats.open == 0
        assert (await failure_of(touch("b"))).code is ErrorCode.UNAVAILABLE


async def test_closing_a_pool_does_not_wait_for_a_session_that_another_holder_has() -> None:
    gate = Gate()

    async def wait_for_it(_owner: str, _reference: str) -> AgentSession:
        await gate.wait()
        raise AssertionError

    pool = SessionPool(wait_for_it, limits=PoolLimits())

    async def touch() -> None:
        async with pool.use("a"):
            pass

    waiting = asyncio.ensure_future(touch())
    await gate.reached.wait()
    await pool.close()
    assert (await failure_of(waiting)).code is ErrorCode.CLOSED
    assert pool.stats.open == 0


async def test_the_limits_of_a_pool_come_from_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert administration.pool_limits() == PoolLimits(sessions=10, idle_seconds=1800.0)
    monkeypatch.setenv("HAPTERA_MAX_SESSIONS", "1000")
    monkeypatch.setenv("HAPTERA_SESSION_TIMEOUT", "60")
    assert administration.pool_limits(per_owner=7) == PoolLimits(
        sessions=1000, idle_seconds=60.0, per_owner=7
    )
    usual = PoolLimits(sessions=3, idle_seconds=4.0, per_owner=2)
    assert administration.pool_limits(otherwise=usual) == PoolLimits(
        sessions=1000, idle_seconds=60.0, per_owner=2
    )


async def test_a_file_and_then_the_environment_say_the_limits_of_a_pool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HAPTERA_CONFIG_DIR", str(tmp_path))
    file = tmp_path / "config.toml"
    file.write_text("[runtime]\nmax_concurrent_sessions = 5\n")
    usual = PoolLimits(sessions=3, idle_seconds=4.0)
    limits = administration.pool_limits(otherwise=usual)
    assert limits == PoolLimits(sessions=5, idle_seconds=4.0)
    monkeypatch.setenv("HAPTERA_MAX_SESSIONS", "6")
    assert administration.pool_limits(otherwise=usual).sessions == 6
    monkeypatch.setenv("HAPTERA_MAX_SESSIONS", "0")
    with pytest.raises(ConfigError, match="HAPTERA_MAX_SESSIONS: must be at least 1"):
        administration.pool_limits()
    file.write_text("[runtime]\nsession_timeout = -1\n")
    with pytest.raises(ConfigError, match=r"line 2: runtime.session_timeout: must be at least 0"):
        administration.pool_limits()
