"""Openings that their callers give up, at any step: nothing stays held and nothing stays open."""

import asyncio
import contextlib
import random
import signal
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from haptera import AbortController, Agent, AgentError, ErrorCode, sync
from haptera.model.ids import SessionId
from haptera.model.operations.session import Command
from haptera.ports.session_store import Lease, Store
from haptera.stores.memory import MemoryInbox, MemoryLeases, MemoryStore
from haptera.testing import Gate, ScriptedProvider, says
from tests.attacks.moments import others_run
from tests.scripted_agents import failure_of, make_agent, tasks_left
from tests.stores.store_factories import DURABLE, STORE_FACTORIES, open_store, store_string

pytestmark = pytest.mark.slow

_ROUNDS = 200
_CONNECTIONS = 6
"""Descriptors of connections that a database store opens when it first needs them."""


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _steps(count: int) -> None:
    for _ in range(count):
        await others_run()


async def _give_up(work: Coroutine[Any, Any, Any], *, after: int) -> None:
    """Cancel something after a number of steps, and wait for its end."""
    task = asyncio.ensure_future(work)
    await _steps(after)
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


async def _steps_of_an_opening(agent: Agent) -> int:
    """Count how many steps of the loop an opening takes here."""
    session, count = agent.session("measured"), 0
    opening = asyncio.ensure_future(session.open())
    while not opening.done():
        await others_run()
        count += 1
    await session.close()
    return count


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_session_whose_opening_was_cancelled_can_be_opened_at_once(
    kind: str, tmp_path: Path
) -> None:
    chance, store = random.Random(1), open_store(kind, tmp_path)
    agent, _ = make_agent([], store=store)
    async with agent:
        longest = min(600, 2 * await _steps_of_an_opening(agent))
        await asyncio.gather(*(agent.session(f"warm{n}").open() for n in range(8)))
        before = _descriptors()
        for number in range(_ROUNDS):
            session = agent.session(f"s{number % 20}")
            await _give_up(session.open(), after=chance.randint(0, longest))
            if session.session_id is not None:
                await session.close()
            async with agent.session(f"s{number % 20}"):
                pass
        assert _descriptors() <= before + _CONNECTIONS
    assert tasks_left() == []
    await store.close()


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_a_caller_that_is_cancelled_twice_leaves_nothing_either(
    kind: str, tmp_path: Path
) -> None:
    chance, store = random.Random(3), open_store(kind, tmp_path)
    agent, _ = make_agent([], store=store)
    async with agent:
        longest = min(600, 2 * await _steps_of_an_opening(agent))
        for number in range(60):
            session = agent.session(f"s{number}")
            task = asyncio.ensure_future(session.open())
            await _steps(chance.randint(0, longest))
            task.cancel()
            await _steps(chance.randint(1, 3))
            task.cancel()
            await asyncio.wait({task})
            await session.close()
            async with agent.session(f"s{number}"):
                pass
    assert tasks_left() == []
    await store.close()


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_an_agent_that_is_closed_while_sessions_open_leaves_nothing_behind(
    kind: str, tmp_path: Path
) -> None:
    """The store is the agent's own or is handed in; another agent gets every session at once."""
    chance, before = random.Random(4), _descriptors()
    for number in range(40):
        store: Store = open_store(kind, tmp_path / str(number))
        agent, _ = make_agent([], store=store)
        openings = [asyncio.ensure_future(agent.session(f"s{n}").open()) for n in range(3)]
        await _steps(chance.randint(0, 120))
        await agent.close()
        await asyncio.wait(openings)
        for opening in openings:
            error = opening.exception()
            assert error is None or (isinstance(error, AgentError) and error.code == "CLOSED")
        other, _ = make_agent([], store=store)
        async with other:
            for n in range(3):
                await other.session(f"s{n}").open()
        await store.close()
    assert tasks_left() == []
    assert _descriptors() <= before


@pytest.mark.parametrize("kind", DURABLE)
async def test_an_agent_with_a_store_of_its_own_that_is_closed_while_a_session_opens(
    kind: str, tmp_path: Path
) -> None:
    place = store_string(kind, tmp_path)
    chance = random.Random(5)
    for _ in range(40):
        agent, _provider = make_agent([], store=place)
        opening = asyncio.ensure_future(agent.session("one").open())
        await _steps(chance.randint(0, 200))
        await agent.close()
        await asyncio.wait({opening})
        assert opening.exception() is None or isinstance(opening.exception(), AgentError)
        other, _provider = make_agent([], store=place)
        async with other, other.session("one"):
            pass


async def test_a_session_that_is_closed_while_it_opens_is_free_when_close_returns(
    tmp_path: Path,
) -> None:
    chance, store = random.Random(6), open_store("sqlite", tmp_path)
    agent, _ = make_agent([], store=store)
    async with agent:
        for _ in range(60):
            session = agent.session("one")
            opening = asyncio.ensure_future(session.open())
            await _steps(chance.randint(0, 100))
            await session.close()
            async with agent.session("one"):
                pass
            await asyncio.wait({opening})
            assert opening.exception() is None or (await failure_of(opening)).code == "CLOSED"
    await store.close()


async def test_a_session_that_waits_for_its_lease_can_be_closed(tmp_path: Path) -> None:
    store = open_store("jsonl", tmp_path)
    holder, _ = make_agent([], store=store)
    other, _ = make_agent([], store=store)
    async with holder, other, holder.session("one"):
        waiting = other.session("one", busy="wait")
        opening = asyncio.ensure_future(waiting.open())
        await _steps(50)
        await waiting.close()
        assert (await failure_of(opening)).code is ErrorCode.CLOSED
    await store.close()
    assert tasks_left() == []


@pytest.mark.parametrize("kind", STORE_FACTORIES)
async def test_an_abort_signal_that_comes_while_a_session_opens_leaves_it_free(
    kind: str, tmp_path: Path
) -> None:
    chance, store = random.Random(7), open_store(kind, tmp_path)
    provider = ScriptedProvider()
    agent = Agent("scripted/m", providers=[provider], store=store, environment={})
    async with agent:
        longest = min(600, 2 * await _steps_of_an_opening(agent))
        for number in range(60):
            provider.replace_rest(says("one"))
            stop, session = AbortController(), agent.session(f"s{number % 10}")
            asking = asyncio.ensure_future(session.chat("go", signal=stop.signal))
            await _steps(chance.randint(0, longest))
            stop.abort("enough")
            await asyncio.wait({asking})
            assert asking.exception() is None or (await failure_of(asking)).code == "ABORTED"
            await session.close()
            async with agent.session(f"s{number % 10}"):
                pass
    assert tasks_left() == []
    await store.close()


class _Handing(MemoryLeases):
    """Leases whose store has granted one before the caller can hear of it, as a thread does."""

    granted: asyncio.Event
    hear: asyncio.Event

    async def acquire(
        self, session_id: SessionId, holder: str, *, busy: Literal["wait", "reject"] = "reject"
    ) -> Lease:
        lease = await super().acquire(session_id, holder, busy=busy)
        self.granted.set()
        try:
            await self.hear.wait()
        except asyncio.CancelledError:
            await self.release(lease)
            raise
        return lease


async def test_a_time_limit_around_an_opening_leaves_the_session_free() -> None:
    store = MemoryStore()
    store.leases = leases = _Handing(store._sessions)
    leases.granted, leases.hear = asyncio.Event(), asyncio.Event()
    agent, _ = make_agent([], store=store)
    async with agent:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.session("one").open(), 0.001)
        assert leases.granted.is_set()
        leases.hear.set()
        await agent.session("one").open()


class _SlowRelease(MemoryLeases):
    """Leases that are given back when the test says so."""

    gate: Gate

    async def release(self, lease: Lease) -> None:
        await self.gate.wait()
        await super().release(lease)


async def test_an_opening_that_is_given_up_twice_ends_when_nothing_is_held() -> None:
    """Its caller is cancelled, and the session is closed while the first of them cleans up."""
    store, reading = MemoryStore(), Gate()
    store.leases = leases = _SlowRelease(store._sessions)
    leases.gate = Gate()
    store.inbox = _HeldInbox(store._sessions, reading)
    agent, _ = make_agent([], store=store)
    async with agent:
        session = agent.session("one")
        opening = asyncio.ensure_future(session.open())
        await reading.reached.wait()
        opening.cancel()
        await leases.gate.reached.wait()
        closing = asyncio.ensure_future(session.close())
        await _steps(20)
        assert not closing.done()
        leases.gate.open()
        await closing
        reading.open()
        async with agent.session("one"):
            pass


class _HeldInbox(MemoryInbox):
    """An inbox whose readers wait."""

    def __init__(self, sessions: Any, gate: Gate) -> None:
        super().__init__(sessions)
        self._gate = gate

    async def pending(self, session_id: SessionId) -> Sequence[Command]:
        await self._gate.wait()
        return await super().pending(session_id)


async def test_only_the_caller_that_gives_up_loses_an_opening_that_two_wait_for() -> None:
    store = MemoryStore()
    store.leases = leases = _Handing(store._sessions)
    leases.granted, leases.hear = asyncio.Event(), asyncio.Event()
    agent, _ = make_agent([], store=store)
    async with agent:
        session = agent.session("one")
        first, second = (asyncio.ensure_future(session.open()) for _ in range(2))
        await leases.granted.wait()
        first.cancel()
        leases.hear.set()
        assert (await second).session_id == session.session_id
        assert first.cancelled()


class _Interrupting:
    """One port of a store that interrupts the main thread in the middle of its n-th call."""

    def __init__(self, port: Any, countdown: list[int]) -> None:
        self._port = port
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def called(*args: Any, **options: Any) -> Any:
            self._countdown[0] -= 1
            if self._countdown[0] == 0:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            return await method(*args, **options)

        return called


@pytest.mark.parametrize("kind", STORE_FACTORIES)
def test_an_interrupt_from_the_keyboard_leaves_a_session_that_can_be_opened(
    kind: str, tmp_path: Path
) -> None:
    countdown, store = [0], open_store(kind, tmp_path)
    for port in ("log", "index", "leases"):
        setattr(store, port, _Interrupting(getattr(store, port), countdown))
    with sync.Agent("scripted/m", providers=[ScriptedProvider()], store=store) as agent:
        for number in range(60):
            session = agent.session(f"s{number // 6}")
            countdown[0] = number % 6
            with contextlib.suppress(KeyboardInterrupt):
                session.__enter__()
            countdown[0] = 0
            session.close()
            assert session.closed
            with agent.session(f"s{number // 6}") as again:
                assert (again.closed, again.view().head) == (False, 1), number
