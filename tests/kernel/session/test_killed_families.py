"""A process that dies anywhere while sub-agents work: the next one finds and carries on each."""

import asyncio
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from haptera import Agent, AgentSession
from haptera.access.descriptions import SessionTree
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.testing.promises import PromiseBrokenError, require, require_same
from tests.architecture.source_tree import ROOT
from tests.fixtures_report import Report
from tests.forked_processes import ForkedProcess
from tests.kernel.session.family_worker import EFFECTS, FINAL, LINES, NAME, bring_to_end, family
from tests.samples import sampled
from tests.stores.store_factories import DURABLE, open_store
from tests.stores.workers import worker_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Mortuary:
    """Kills families on a store of one kind, and checks what each leaves."""

    def __init__(self, kind: str, approver: str, folder: Path) -> None:
        self._kind, self._approver, self._folder = kind, approver, folder
        self.killed = 0

    async def points(self) -> list[str]:
        """Let a family live, and return the points at which it could have died."""
        place = self._folder / "whole"
        place.mkdir()
        code, appends = await self._play("-", place)
        require_same(code, 0, "the end of a family that is not killed")
        require_same(_effects(place), Counter(EFFECTS), "what is written in the end")
        return [f"{when}{number}" for number in range(1, appends + 1) for when in "ba"]

    async def kill_at(self, point: str, *, is_resumed: bool = True) -> None:
        """Kill a family at a point, and go on from what it leaves, or with something else."""
        place = self._folder / point
        place.mkdir()
        code, _ = await self._play(point, place)
        self.killed += code == -signal.SIGKILL
        try:
            await (self._check(place) if is_resumed else self._check_left(place))
        except PromiseBrokenError as error:
            raise PromiseBrokenError(f"after a crash at {point}: {error}") from error

    async def _play(self, point: str, place: Path) -> tuple[int, int]:
        """Return how a family ended, and how many appends it made if it was not killed."""
        command = (
            "tests.kernel.session.family_worker",
            point,
            self._kind,
            self._approver,
            str(place),
        )
        with ForkedProcess(
            *command, cwd=ROOT, env=worker_environment(), stdout=subprocess.PIPE
        ) as process:
            made, _ = await asyncio.to_thread(process.communicate)
        return process.returncode, int(made or b"0")

    async def _check(self, place: Path) -> None:
        store = open_store(self._kind, place)
        agent = family(place, store, has_approver=self._approver == "yes")
        before = _effects(place)
        try:
            async with agent, agent.session(NAME) as session:
                known = await _children_in(agent, session)
                require((await bring_to_end(session)).endswith(FINAL), "the query goes on")
                after = _effects(place)
                require(set(before) <= set(after), "nothing is unwritten")
                require(all(count == 1 for count in after.values()), f"effects: {after}")
                tree = await agent.sessions.tree(NAME)
                require(known <= {item.session.id for item in tree.children}, "no child is left")
                await _check_children(agent, tree, after)
        finally:
            await store.close()

    async def _check_left(self, place: Path) -> None:
        """Say something else instead of carrying the query on: every query has an end then."""
        store = open_store(self._kind, place)
        agent = family(place, store, has_approver=self._approver == "yes")
        try:
            async with agent, agent.session(NAME) as session:
                await session.chat("something else")
                await bring_to_end(session)
                tree = await agent.sessions.tree(NAME)
            for each in (tree, *tree.children):
                entries = await store.log.read(each.session.id)
                started = {item.query_id for item in entries if isinstance(item, QueryStarted)}
                ended = {item.query_id for item in entries if isinstance(item, QueryEnded)}
                require_same(started - ended, set(), "queries without an end")
                require_same(each.session.phase, "idle", "what a session does in the end")
        finally:
            await store.close()


async def _children_in(agent: Agent, session: AgentSession) -> set[str]:
    return {str(each.id) for each in await agent.sessions.children(str(session.session_id))}


async def _check_children(agent: Agent, tree: SessionTree, effects: Counter[str]) -> None:
    """One child for each call; each did what its log says, and nothing else."""
    require_same(len(tree.children), len(LINES), "one session for each call")
    for child in tree.children:
        entries = await agent.sessions._composition.store.log.read(child.session.id)
        opened = entries[0]
        assert isinstance(opened, SessionOpened)
        require_same(opened.spawned_by, tree.session.id, "the parent of a child")
        started = Counter(item.call_id for item in entries if isinstance(item, ToolStarted))
        require(all(count == 1 for count in started.values()), "each call is started once")
        for item in entries:
            if isinstance(item, ToolEnded) and item.outcome == "ok":
                require_same(effects[item.call_id.removeprefix("call_")], 1, "an effect")
        require_same(child.session.phase, "idle", "the end of a child")


def _effects(place: Path) -> Counter[str]:
    file = place / "effects"
    return Counter(file.read_text().split() if file.exists() else ())


@sampled(4, 12)
@pytest.mark.parametrize("approver", ["yes", "no"])
@pytest.mark.parametrize("kind", DURABLE)
async def test_kill_nine_while_sub_agents_work_repeats_nothing(
    kind: str, approver: str, sample: int, tmp_path: Path, report: Report
) -> None:
    mortuary = Mortuary(kind, approver, tmp_path)
    points = await mortuary.points()
    for point in points[3 :: len(points) // sample]:
        await mortuary.kill_at(point)
    assert mortuary.killed >= sample - 1
    report(f"{kind}: a parent with two sub-agents killed at {mortuary.killed} points: all went on")


@sampled(4, 12)
@pytest.mark.parametrize("approver", ["yes", "no"])
@pytest.mark.parametrize("kind", DURABLE)
async def test_after_kill_nine_a_new_prompt_ends_what_sub_agents_left(
    kind: str, approver: str, sample: int, tmp_path: Path
) -> None:
    mortuary = Mortuary(kind, approver, tmp_path)
    points = await mortuary.points()
    for point in points[5 :: len(points) // sample]:
        await mortuary.kill_at(point, is_resumed=False)
    assert mortuary.killed >= sample - 1


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("approver", ["yes", "no"])
async def test_after_kill_nine_at_every_append_a_new_prompt_ends_what_sub_agents_left(
    approver: str, tmp_path: Path
) -> None:
    mortuary = Mortuary("jsonl", approver, tmp_path)
    for point in await mortuary.points():
        await mortuary.kill_at(point, is_resumed=False)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("approver", ["yes", "no"])
@pytest.mark.parametrize("kind", DURABLE)
async def test_kill_nine_at_every_append_of_a_family_repeats_nothing(
    kind: str, approver: str, tmp_path: Path, report: Report
) -> None:
    mortuary = Mortuary(kind, approver, tmp_path)
    points = await mortuary.points()
    for point in points:
        await mortuary.kill_at(point)
    assert mortuary.killed > len(points) * 0.8
    report(f"{kind}: killed at {mortuary.killed} of {len(points)} points: 0 effects twice")
