"""A store that stops answering, at moments drawn by chance: every caller is back in its time."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from haptera import Agent, AgentSession, QueryEnded, tool
from haptera.kernel.session import recorder
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputQueued, QueryStarted
from haptera.testing import LoopClock, ScriptedProvider, calls, says
from haptera.testing.clocks import SeededLoop
from tests.kernel.session.pausing_store import PausingStore

BEYOND = 1.0
"""Virtual seconds that a caller may wait beyond its own time limit."""
_LONGEST = 4.0
_IN_TIME = frozenset(
    {ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.ABORTED, ErrorCode.CONFLICT}
)


class Silence:
    """One session on a store that is silent from one drawn moment to another."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.answers = asyncio.Event()
        self.answers.set()
        self.effects: Counter[str] = Counter()
        self.acknowledged: list[str] = []
        """Prompts of which a caller was told that they were taken in, or answered."""
        self.ends: Counter[str] = Counter()
        self.store = PausingStore(self._pause)
        self._slow = self.chance.random() < 0.5

    async def _pause(self) -> None:
        if self._slow:
            await self.wait(self.chance.choice((0, 0, 0.02, 0.1)))
        await self.answers.wait()

    async def wait(self, seconds: float) -> None:
        """Wait in virtual time."""
        await LoopClock().sleep(seconds)

    def agent(self) -> Agent:
        """Make an agent whose model calls a tool that has an effect, now and then."""

        @tool
        async def act(key: str) -> str:
            self.effects[key] += 1
            await self.wait(self.chance.uniform(0, 0.3))
            return "acted"

        steps: list[Any] = []
        for number in range(40):
            key = f"{id(self)}-{number}-{self.chance.random()}"
            steps.append(calls(("act", {"key": key})) if number % 2 else self._spoken())
        return Agent(
            "scripted/m",
            providers=[ScriptedProvider(steps)],
            tools=[act],
            store=self.store,
            clock=LoopClock(),
            environment={},
        )

    def _spoken(self) -> list[Any]:
        pause = self.chance.uniform(0, 0.5)
        return [lambda: self.wait(pause), *says("I ", "say so.")]

    async def be_silent(self) -> None:
        """Answer nothing for a while; sometimes for longer than any caller waits."""
        await self.wait(self.chance.uniform(0, _LONGEST))
        self.answers.clear()
        await self.wait(self.chance.choice((0.3, 2.0, 10.0, 120.0)))
        self.answers.set()

    async def ask(self, session: AgentSession, number: int) -> None:
        """Ask with a time limit, and be back in it."""
        await self.wait(self.chance.uniform(0, _LONGEST))
        text, seconds = f"ask {number}", self.chance.uniform(0.2, 3.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await session.chat(text, total_timeout=seconds)
            self.acknowledged.append(text)
        except AgentError as error:
            assert error.code in _IN_TIME, repr(error)
            self.ends[error.code] += 1
        else:
            self.ends["answered"] += 1
        assert loop.time() - began <= seconds + BEYOND, f"{loop.time() - began} for {seconds}"

    async def abort(self, session: AgentSession) -> None:
        """Abort what runs, and see it ended."""
        await self.wait(self.chance.uniform(0, _LONGEST))
        text = "to be aborted"
        asking = asyncio.ensure_future(session.chat(text))
        await self.wait(self.chance.uniform(0, 1))
        session.abort("chance")
        await asyncio.wait({asking}, timeout=200)
        assert asking.done()
        asking.exception()


async def _play(seed: int) -> Counter[str]:
    world = Silence(seed)
    agent = world.agent()
    session = await agent.session("it").open()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.be_silent())
        for number in range(world.chance.randint(1, 4)):
            group.create_task(world.ask(session, number))
        if world.chance.random() < 0.4:
            group.create_task(world.abort(session))
    await session.wait_idle()
    # The store is back, and so is the session.
    for _ in range(3):
        try:
            await session.chat("go on")
            break
        except AgentError as error:
            assert error.code is ErrorCode.CONFLICT, repr(error)
    else:
        raise AssertionError("the session does not go on")
    session_id = SessionId(str(session.session_id))
    await session.close()
    _check(world, await world.store.log.read(session_id))
    lease = await world.store.leases.acquire(session_id, "checker")
    await world.store.leases.release(lease)
    await agent.close()
    return world.ends


def _check(world: Silence, log: list[Entry]) -> None:
    assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
    assert max(world.effects.values(), default=1) == 1
    started = [entry.query_id for entry in log if isinstance(entry, QueryStarted)]
    ended = [entry.query_id for entry in log if isinstance(entry, QueryEnded)]
    assert sorted(map(str, started)) == sorted(map(str, ended))
    said = {
        entry.message.text
        for entry in log
        if isinstance(entry, QueryStarted | InputQueued) and entry.message is not None
    }
    assert set(world.acknowledged) <= said


def _play_on_seeded_loop(seed: int) -> Counter[str]:
    loop = SeededLoop(seed)
    try:
        ends = loop.run_until_complete(_play(seed))
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        assert not left, f"tasks were left: {left}"
    except BaseException as error:
        raise AssertionError(f"seed {seed} found something: {error!r}") from error
    else:
        return ends
    finally:
        loop.end()


def _play_all(seeds: range, report: Callable[[str], None]) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        ends.update(_play_on_seeded_loop(seed))
    report(f"silent stores: {len(seeds)} schedules, {dict(ends)}")
    assert ends["answered"] >= len(seeds) / 10
    assert ends[ErrorCode.UNAVAILABLE] >= len(seeds) / 10


@pytest.mark.slow
def test_every_caller_is_back_in_time_while_a_store_is_silent(
    report: Callable[[str], None],
) -> None:
    _play_all(range(200), report)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_times_as_many_silences(report: Callable[[str], None]) -> None:
    _play_all(range(20_000), report)


@pytest.mark.slow
def test_a_session_that_does_not_wait_for_what_it_gave_up_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "_STOPPED_SECONDS", 30.0)
    with pytest.raises(AssertionError, match="found something"):
        _play_all(range(60), print)
