"""A worker process: opens one subject, warms it up, measures it by CPU time, writes a report."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path

import msgspec

from benchmarks.jobs import (
    GrowthJob,
    Measure,
    Order,
    QueryJob,
    ReopenJob,
    TrialJob,
    WorkerReport,
)
from benchmarks.subjects import (
    Ask,
    GrowingSession,
    NotAvailable,
    OpenSession,
    Outcome,
    Setup,
)

_TURN_PROMPT = "Turn {number}: what colour is the sea on a clear day?"
_WINDOW = 20
_LOOK_EVERY = 50


class WrongAnswer(Exception):  # noqa: N818 - it says what it is
    """A subject did not deliver what the script says."""


async def run_queries(order: Order, job: QueryJob) -> WorkerReport:
    """Measure the CPU time of a query: the median of the timed runs."""
    expected = Outcome(job.script.characters, job.script.tools)
    with tempfile.TemporaryDirectory(prefix="haptera-bench-") as folder:
        setup = Setup(api=job.api, script=job.script, base_url=order.base_url, folder=folder)
        async with order.subject.load_ask()(setup) as ask:
            for _ in range(job.warmups):
                await _timed(ask, expected, job.queries)
            times = [await _timed(ask, expected, job.queries) for _ in range(job.runs)]
    value = statistics.median(times) * job.scale
    return WorkerReport(status="ok", measures=(Measure(case=job.case, value=value),))


async def _timed(ask: Ask, expected: Outcome, queries: int) -> float:
    start = time.process_time()
    for _ in range(queries):
        outcome = await ask()
        if outcome != expected:
            raise WrongAnswer(f"expected {expected}, got {outcome}")
    return (time.process_time() - start) / queries


class Grower:
    """Adds turns to a session up to each milestone, within a budget of wall time."""

    def __init__(self, job: GrowthJob) -> None:
        self._job = job
        self._deadline = time.monotonic() + job.budget
        self._turns = 0
        self.measures: list[Measure] = []

    async def run(self, open_session: OpenSession, setup: Setup) -> WorkerReport:
        """Grow to the last milestone, or as far as the budget goes."""
        opening = 0.0
        for milestone in (*self._job.milestones, None):
            start = time.process_time()
            async with open_session(setup) as session:
                opening = (time.process_time() - start) * 1e3
                await self._check(session)
                self._note_opening(opening)
                if milestone is None:
                    break
                if not await self._grow(session, milestone, Path(setup.folder)):
                    return self._report("stopped early", self._reason(Path(setup.folder)))
            self._weigh(Path(setup.folder))
        return self._report("ok", "")

    async def _grow(self, session: GrowingSession, milestone: int, folder: Path) -> bool:
        window = min(_WINDOW, milestone // 2)
        start = 0.0
        while self._turns < milestone:
            if time.monotonic() > self._deadline or self._is_too_big(folder):
                return False
            if self._turns == milestone - window:
                start = time.process_time()
            self._turns += 1
            characters = await session.add_turn(_TURN_PROMPT.format(number=self._turns))
            if characters != self._job.script.characters:
                raise WrongAnswer(f"turn {self._turns} brought {characters} characters")
        cost = (time.process_time() - start) / window * 1e3
        case = f"{self._job.case}, at {milestone}"
        self.measures.append(Measure(case=case, value=cost, extra={}))
        return True

    def _is_too_big(self, folder: Path) -> bool:
        # Seldom, and never in a window that is timed.
        return self._turns % _LOOK_EVERY == 0 and _size(folder) > self._job.max_bytes

    def _reason(self, folder: Path) -> str:
        spent = f"{self._job.budget:.0f} s or {self._job.max_bytes / 1e6:,.0f} MB were used up"
        return f"after {self._turns} turns and {_size(folder) / 1e6:,.0f} MB: {spent}"

    async def _check(self, session: GrowingSession) -> None:
        messages = await session.count()
        if messages != 2 * self._turns:
            raise WrongAnswer(f"{messages} messages after {self._turns} turns")

    def _note_opening(self, opening: float) -> None:
        """Keep the time of opening the session that the last milestone left."""
        if self.measures:
            self.measures[-1].extra["reopen ms"] = opening

    def _weigh(self, folder: Path) -> None:
        size = _size(folder)
        prompts = sum(len(_TURN_PROMPT.format(number=n + 1)) for n in range(self._turns))
        text = prompts + self._turns * self._job.script.characters
        self.measures[-1].extra.update(
            {"kB": size / 1e3, "bytes/text": size / text, "kB/turn": size / 1e3 / self._turns}
        )

    def _report(self, status: str, reason: str) -> WorkerReport:
        fields = {"status": status, "reason": reason, "measures": self.measures}
        return msgspec.convert(fields, WorkerReport, from_attributes=True)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def run_growth(order: Order, job: GrowthJob) -> WorkerReport:
    """Measure a session as it grows, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="haptera-bench-") as folder:
        api = order.subject.apis[0]
        setup = Setup(api=api, script=job.script, base_url=order.base_url, folder=folder)
        return await Grower(job).run(order.subject.load_session(), setup)


async def run_reopening(order: Order, job: ReopenJob) -> WorkerReport:
    """Open a session that another process left, send the next prompt, and measure both together.

    What is loaded late is loaded by then: another session was opened before.
    """
    api, url = order.subject.apis[0], order.base_url
    open_session = order.subject.load_session()
    setup = Setup(api=api, script=job.script, base_url=url, folder=order.folder)
    if order.must_grow:
        await _add_turns(open_session, setup, job.turns)
        return WorkerReport(status="ok")
    with tempfile.TemporaryDirectory(prefix="haptera-bench-") as folder:
        other = msgspec.structs.replace(setup, folder=folder)
        await _add_turns(open_session, other, 1)
        await _add_turns(open_session, other, 1)
    start = time.process_time()
    async with open_session(setup) as session:
        opened = time.process_time()
        await session.add_turn(_TURN_PROMPT.format(number=job.turns + 1))
        seconds = time.process_time() - start
        messages = await session.count()
    if messages != 2 * (job.turns + 1):
        raise WrongAnswer(f"{messages} messages after {job.turns + 1} turns")
    extra = {"open ms": (opened - start) * 1e3}
    measure = Measure(case=job.case, value=seconds * 1e3, extra=extra)
    return WorkerReport(status="ok", measures=(measure,))


async def _add_turns(open_session: OpenSession, setup: Setup, turns: int) -> None:
    async with open_session(setup) as session:
        for number in range(turns):
            await session.add_turn(_TURN_PROMPT.format(number=number + 1))


async def run_trial(order: Order, job: TrialJob) -> WorkerReport:
    """Let a subject measure itself."""
    setup = Setup(api=order.subject.apis[0], script=job.script, base_url=order.base_url)
    trial = await order.subject.load_trial()(setup, job.size)
    measure = Measure(case=job.case, value=trial.value, extra=trial.extra)
    return WorkerReport(status="ok", measures=(measure,))


def perform(order: Order) -> WorkerReport:
    """Do the work and turn every way it can end into a report."""
    missing = order.subject.missing()
    if missing:
        return WorkerReport(status="not installed", reason=", ".join(missing))
    try:
        return _run(_choose(order), has_uvloop=order.has_uvloop)
    except NotAvailable as error:
        return WorkerReport(status="not available", reason=str(error))
    except Exception as error:  # noqa: BLE001 - the outermost loop: one subject must not end the run
        return WorkerReport(status="failed", reason=f"{type(error).__name__}: {error}")


def _choose(order: Order) -> Coroutine[None, None, WorkerReport]:
    match order.job:
        case QueryJob() as job:
            return run_queries(order, job)
        case GrowthJob() as job:
            return run_growth(order, job)
        case ReopenJob() as job:
            return run_reopening(order, job)
        case TrialJob() as job:
            return run_trial(order, job)


def _run(work: Coroutine[None, None, WorkerReport], *, has_uvloop: bool) -> WorkerReport:
    if not has_uvloop:
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


def main() -> None:
    """Read the order from standard input and write the report to the file that is named."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(perform(order)))


if __name__ == "__main__":
    main()
