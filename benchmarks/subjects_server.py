"""Trials of the server under load, beside a bare ASGI application on the same uvicorn.

The server is a process of its own, and this one is its only client.
"""

import asyncio
import time
from dataclasses import replace

import aiohttp

from benchmarks.load_client import Follower, Target, WrongReplyError, all_ended, running
from benchmarks.script import Script
from benchmarks.subjects import Setup, Trial

_QUERIES_PER_SECOND = 50
_QUERY = Script(deltas=3)
_AT_ONCE = 20
_SAMPLE_SECONDS = 0.02
_STALLED_BYTES = 16 * 1024
"""The receive buffer of a client that stalls."""


# Live streams and new queries: milliseconds by which a delta is late.


async def streams_haptera(setup: Setup, size: int) -> Trial:
    """Follow many live sessions of Haptera's server while others begin."""
    return await _streams(setup.script, size, "haptera")


async def streams_bare(setup: Setup, size: int) -> Trial:
    """Do the same with a bare application."""
    return await _streams(setup.script, size, "bare")


class Queries:
    """New queries at an even rate, each in a new session; counts those that were answered."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.seconds: list[float] = []
        self.failures: list[str] = []

    async def run(self, count: int) -> None:
        """Begin each query when it is due, whether or not those before have been answered."""
        start = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                due = start + number / _QUERIES_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                tasks.create_task(self._one(due))

    async def _one(self, due: float) -> None:
        try:
            session = await self._target.new_session()
            text = await self._target.ask(session, _QUERY, status=200)
        except (WrongReplyError, aiohttp.ClientError, OSError) as error:
            self.failures.append(str(error))
            return
        if text.count("~") == 2 * _QUERY.deltas:
            self.seconds.append(time.monotonic() - due)
        else:
            self.failures.append(f"the answer is {text!r}")


class Meter:
    """What the server and this client use from now on."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._start, self._cpu, self._own = time.monotonic(), target.cpu(), time.process_time()

    def read(self) -> tuple[float, float, float]:
        """Return the seconds that have passed, the server's CPU seconds and this process's own."""
        wall = time.monotonic() - self._start
        return wall, self._target.cpu() - self._cpu, time.process_time() - self._own


async def _streams(script: Script, size: int, kind: str) -> Trial:
    script = replace(script, tag=1)
    seconds = script.deltas * script.delay / 1e6
    async with running(kind) as target:
        await _warm_up(target)
        before = target.resident()
        followers = await _open_streams(target, script, size)
        opened = target.resident()
        queries, meter = Queries(target), Meter(target)
        target.begin()
        await queries.run(int(seconds * _QUERIES_PER_SECOND))
        await all_ended(followers, within=seconds)
        costs = _costs(meter)
        costs["kB/stream"] = (opened - before) / size / 1e3
        costs["kB/query"] = (target.resident() - opened) / max(1, len(queries.seconds)) / 1e3
    wrong = [each for each in followers if len(each.lags) != script.deltas or not each.is_gapless]
    if len(wrong) + len(queries.failures) > size // 10:
        raise WrongReplyError(f"{len(wrong)} streams and {queries.failures[:1]} failed")
    lags = sorted(lag / 1e6 for each in followers for lag in each.lags)
    times = sorted(queries.seconds)
    extra = {
        "p50 ms": _at(lags, 0.5),
        "errors": float(len(wrong) + len(queries.failures)),
        "queries": float(len(times)),
        "query p50 ms": _at(times, 0.5) * 1e3,
        "query p99 ms": _at(times, 0.99) * 1e3,
    }
    return Trial(_at(lags, 0.99), extra | costs)


def _costs(meter: Meter) -> dict[str, float]:
    wall, used, own = meter.read()
    return {"CPU s": used, "CPU %": used / wall * 100, "client CPU %": own / wall * 100}


async def _warm_up(target: Target) -> None:
    """Let the server load what it loads late."""
    for _ in range(5):
        session = await target.new_session()
        followed = await target.follow(session)
        await target.ask(session, _QUERY, status=200)
        await followed.ended
        followed.transport.close()


async def _open_streams(target: Target, script: Script, size: int) -> list[Follower]:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def open_one() -> Follower:
        async with slots:
            session = await target.new_session()
            follower = await target.follow(session)
            await target.ask(session, script)
            return follower

    return list(await asyncio.gather(*(open_one() for _ in range(size))))


# One session and many subscribers: microseconds of the server's CPU for each event of each.


async def fan_out_haptera(setup: Setup, size: int) -> Trial:
    """Send a burst of deltas to all subscribers of a session."""
    return await _fan_out(setup.script, size, "haptera")


async def fan_out_bare(setup: Setup, size: int) -> Trial:
    """Write as many prepared frames to as many clients."""
    return await _fan_out(setup.script, size, "bare")


async def fan_out_stepwise(setup: Setup, size: int) -> Trial:
    """Write as many frames, one after the other to all clients: each waits for the next one."""
    return await _fan_out(setup.script, size, "stepwise")


async def _fan_out(script: Script, size: int, kind: str) -> Trial:
    script = replace(script, tag=1)
    async with running(kind) as target:
        await _warm_up(target)
        session = await target.new_session()
        followers = await target.follow_many([session] * size)
        await target.ask(session, script)
        meter = Meter(target)
        target.begin()
        await all_ended(followers, within=60)
        wall, used, own = meter.read()
    delivered = sum(len(each.lags) for each in followers)
    if delivered != size * script.deltas:
        raise WrongReplyError(f"{delivered} of {size * script.deltas} events arrived")
    extra = {"events/s": delivered / wall, "client CPU %": own / wall * 100}
    return Trial(used / delivered * 1e6, extra)


# A client that does not read: MiB by which the server grows.


async def stalled_reader(setup: Setup, size: int) -> Trial:
    """Stream much to one client that reads and to one that does not, which then resumes."""
    return await _much(setup.script, size, has_stalled=True)


async def reading_only(setup: Setup, size: int) -> Trial:
    """Stream as much to two clients that read."""
    return await _much(setup.script, size, has_stalled=False)


async def _much(script: Script, queries: int, *, has_stalled: bool) -> Trial:
    async with running("haptera") as target:
        await _warm_up(target)
        session = await target.new_session()
        reading = await target.follow(session, ends=queries + 1)
        other = await target.follow(session, ends=queries + 1, receive_bytes=_STALLED_BYTES)
        await target.ask(session, script, status=200)
        if has_stalled:
            other.stall()
        before = highest = target.resident()
        for _ in range(queries):
            asking = asyncio.ensure_future(target.ask(session, script, status=200))
            while not asking.done():
                await asyncio.wait({asking}, timeout=_SAMPLE_SECONDS)
                highest = max(highest, target.resident())
            await asking
        await all_ended([reading], within=60)
        if reading.has_lagged:
            raise WrongReplyError("the client that reads was too slow")
        extra = {"sent MiB": queries * script.characters / 2**20}
        if has_stalled:
            rest = await _resume(target, session, other, head=reading.seqs[-1])
            if other.seqs + rest != reading.seqs:
                raise WrongReplyError("the client that stalled does not have all entries")
            extra["deltas missed"] = float(len(reading.lags) - len(other.lags))
        return Trial((highest - before) / 2**20, extra)


async def _resume(target: Target, session: str, stalled: Follower, *, head: int) -> list[int]:
    """Let a client read again: it is told to resume, and does. Returns what it gets then."""
    stalled.read_on()
    await all_ended([stalled], within=30)
    if not stalled.has_lagged:
        raise WrongReplyError("the client that stalled was not closed with a cursor")
    more = await target.follow(session, after=stalled.seqs[-1], until=head)
    await all_ended([more], within=30)
    return more.seqs


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
