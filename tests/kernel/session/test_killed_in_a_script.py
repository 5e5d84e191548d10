"""A process that dies anywhere while it answers, steers, goes back, forks or recovers."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from haptera.model.ids import new_session_id
from haptera.model.log.approvals import ApprovalSettled
from haptera.ports.session_store import Store
from haptera.stores.memory import MemoryStore
from haptera.testing.promises import (
    PromiseBrokenError,
    require,
    require_same,
)
from tests.fixtures_report import Report
from tests.kernel.session.crash_check import Aftermath, Expectations, Tally, effects_in
from tests.kernel.session.crash_script import ACTS, CUT_OFF, LEFT_RUNNING, WRITTEN, Act, Script
from tests.kernel.session.kill_at_call import is_possible
from tests.kernel.session.noting_session import Acknowledged, Deed, Notes
from tests.samples import sampled
from tests.stores.store_factories import DURABLE, open_store
from tests.stores.workers import command_without_other_writes

pytestmark = pytest.mark.slow

needs_tracing = pytest.mark.skipif(not is_possible(), reason="processes cannot be traced here")


class Point(msgspec.Struct, frozen=True):
    """The n-th write or sync of an act."""

    act: Act
    number: int

    def __str__(self) -> str:
        return f"{self.act}-{self.number}"


class CrashSweep:
    """Kills players of the script on a store of one kind, and checks what each leaves.

    The script is played once as a whole. What is in the folder before each act is kept, and every
    process that is to be killed plays one act in a copy of it.
    """

    def __init__(self, kind: str, folder: Path, server: asyncio.subprocess.Process) -> None:
        self._kind = kind
        self._folder = folder
        self._server = server
        self.points: list[Point] = []
        self.killed = 0
        self.tally = Tally()

    async def prepare(self) -> None:
        """Play the whole script, and find the points at which it could die."""
        place = self._folder / "whole"
        place.mkdir()
        for act in ACTS:
            shutil.copytree(place, self._before(act))
            calls = await self._play(act, place)
            self.points += [Point(act, number) for number in range(1, calls + 1)]
        require_same(set(effects_in(place)), WRITTEN | LEFT_RUNNING, "what is written in the end")
        await self._check(place, branches_first=False)

    async def kill_at(self, points: Sequence[Point], *, in_both_ways: bool) -> None:
        """Kill a process at each of these points, and go on from what it leaves.

        In both ways that there are to go on, or in one after the other. Raises PromiseBrokenError
        naming the point.
        """
        for turn, point in enumerate(points):
            place = self._folder / str(point)
            shutil.copytree(self._before(point.act), place)
            try:
                calls = await self._play(point.act, place, kill_at=point.number)
                for branches_first in (False, True) if in_both_ways else (turn % 2 == 1,):
                    await self._check(place, branches_first=branches_first)
            except PromiseBrokenError as error:
                raise PromiseBrokenError(f"after a crash at {point}: {error}") from error
            self.killed += calls == point.number
            shutil.rmtree(place)

    def summary(self) -> str:
        """Say what was survived."""
        fates = ", ".join(f"{count} {fate}" for fate, count in sorted(self.tally.fates.items()))
        tally, acts = self.tally, ", ".join(dict.fromkeys(point.act for point in self.points))
        return (
            f"{self._kind}: {acts} killed at {self.killed} of {len(self.points)} points: 0 of "
            f"{tally.acknowledged} acknowledged prompts, answers, moves and forks lost, 0 of "
            f"{tally.effects} effects twice, 0 of {tally.answers} answers twice, all opened and "
            f"went on (calls found: {fates})"
        )

    def _before(self, act: Act) -> Path:
        return self._folder / f"before-{act}"

    async def _play(self, act: Act, place: Path, *, kill_at: int = 0) -> int:
        """Have an act played by a process of its own; returns how many counted calls it made."""
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(f"{kill_at} {act} {place}\n".encode())
        answer = await server.stdout.readline()
        require(answer, "the player of acts lives")
        code, calls = map(int, answer.split())
        is_death = act == CUT_OFF or calls == kill_at
        require_same(code, -signal.SIGKILL if is_death else 0, f"the end of act {act}")
        return calls

    async def _check(self, place: Path, *, branches_first: bool) -> None:
        """Go on in a copy of what was left."""
        copy = place.with_name(f"{place.name}-again")
        shutil.copytree(place, copy)
        store = open_store(self._kind, copy)
        try:
            await Aftermath(store, copy, self.tally, branches_first=branches_first).check()
        finally:
            await store.close()
        shutil.rmtree(copy)


@asynccontextmanager
async def _sweeping(kind: str, folder: Path) -> AsyncIterator[CrashSweep]:
    """Play the script once, and be ready to kill its players."""
    server = await asyncio.create_subprocess_exec(
        *[*command_without_other_writes("tests.kernel.session.crash_script"), kind],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        sweep = CrashSweep(kind, folder, server)
        await sweep.prepare()
        yield sweep
    finally:
        assert server.stdin is not None
        server.stdin.close()
        await server.wait()


@needs_tracing
@pytest.mark.slow
@pytest.mark.timeout(300)
@sampled(4, 24)
@pytest.mark.parametrize("kind", DURABLE)
async def test_kill_nine_at_some_points_of_a_script_keeps_every_promise(
    kind: str, sample: int, tmp_path: Path, report: Report
) -> None:
    async with _sweeping(kind, tmp_path) as sweep:
        step = len(sweep.points) // sample
        await sweep.kill_at(sweep.points[step // 2 :: step], in_both_ways=False)
    assert sweep.killed > sample // 2
    report(sweep.summary())


@needs_tracing
@pytest.mark.soak
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("kind", DURABLE)
async def test_kill_nine_at_every_point_of_an_act_keeps_every_promise(
    kind: str, act: Act, tmp_path: Path, report: Report
) -> None:
    async with _sweeping(kind, tmp_path) as sweep:
        sweep.points = [point for point in sweep.points if point.act == act]
        await sweep.kill_at(sweep.points, in_both_ways=True)
    assert sweep.killed > len(sweep.points) * 0.9
    report(sweep.summary())


async def _play_in_memory(folder: Path) -> Store:
    store = MemoryStore()
    for act in ACTS:
        if act != CUT_OFF:
            await Script(store, folder).play(act)
    return store


@pytest.mark.parametrize("branches_first", [False, True])
async def test_a_script_that_nothing_interrupts_keeps_every_promise(
    branches_first: bool, tmp_path: Path
) -> None:
    store = await _play_in_memory(tmp_path)
    assert effects_in(tmp_path) == dict.fromkeys(WRITTEN, 1)
    tally = Tally()
    await Aftermath(store, tmp_path, tally, branches_first=branches_first).check()
    assert tally.acknowledged > 30
    assert effects_in(tmp_path) == dict.fromkeys(WRITTEN, 1)


Forge = Callable[[Path, Expectations], None]


def _forged_note(deed: Deed, subject: str) -> Forge:
    def forge(folder: Path, found: Expectations) -> None:
        session_id = found.acknowledged[0].session_id
        Notes(folder).add(Acknowledged(deed=deed, session_id=session_id, subject=subject))

    return forge


def _other_answer(folder: Path, found: Expectations) -> None:
    settled = next(entry for entry in found.entries() if isinstance(entry, ApprovalSettled))
    _forged_note("denied", settled.approval_id)(folder, found)


def _forged_effect(line: str) -> Forge:
    def forge(folder: Path, _found: Expectations) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{line}\n")

    return forge


@pytest.mark.parametrize(
    ("forge", "complaint"),
    [
        (_forged_note("prompt", "write nothing"), "is in the log"),
        (_forged_note("approved", "apr_none"), "the answer to"),
        (_other_answer, "the answer to"),
        (_forged_note("undo", ""), "moves"),
        (_forged_note("fork", new_session_id()), "is there"),
        (_forged_note("configured", "0.25"), "is in the log"),
        (_forged_effect("a"), "came twice"),
        (_forged_effect("c"), "start of 'c'"),
    ],
    ids=[
        "prompt",
        "answer",
        "decision",
        "move",
        "fork",
        "setting",
        "effect twice",
        "effect unasked",
    ],
)
async def test_a_broken_promise_would_be_noticed(
    forge: Forge, complaint: str, tmp_path: Path
) -> None:
    store = await _play_in_memory(tmp_path)
    forge(tmp_path, await Expectations.gather(store, tmp_path))
    with pytest.raises(PromiseBrokenError, match=complaint):
        await Aftermath(store, tmp_path, Tally()).check()
