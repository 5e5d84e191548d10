"""A process that dies at any write or sync of a query: what is left, and how it goes on."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from haptera import AgentSession
from haptera.model.log.entry import Entry
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.testing.promises import (
    require,
    require_same,
)
from haptera.testing.store_conformance.crash_sweep import (
    find_crash_points,
    is_strace_here,
    read_acknowledged,
    spread,
    sweep_crashes,
)
from tests.fixtures_report import Report
from tests.history_grammar import violations
from tests.kernel.session.crash_worker import NAME
from tests.kernel.session.ends_of_queries import queries_without_end
from tests.kernel.session.three_turns import FINAL, LINES, ThreeTurns, durable_agent
from tests.samples import sampled
from tests.scripted_agents import live_of
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE
from tests.stores.workers import command_without_other_writes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_strace_here(), reason="strace is not installed"),
]


def _worker(kind: str) -> Callable[[Path], Sequence[str]]:
    # As in `worker`: an unknown kind is refused here, not in a process that only ends.
    durable_kind(kind)
    command = command_without_other_writes("tests.kernel.session.crash_worker")
    return lambda place: [*command, kind, str(place)]


def _effects(place: Path) -> Counter[str]:
    file = place / "effects"
    return Counter(file.read_text().split() if file.exists() else ())


def _checker(kind: str, fates: Counter[str]) -> Callable[[Path], Awaitable[None]]:
    """Return what is checked in the folder that a killed worker leaves.

    After every other death a prompt comes at once, without a resume.
    """
    turns = count()

    async def check(place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        provider = ThreeTurns()
        async with (
            durable_agent(kind, place, provider) as agent,
            agent.session(NAME) as session,
        ):
            entries = [event async for event in _stored(session)]
            _check_nothing_is_lost(place, session, entries)
            _check_effects(place, entries)
            fates.update(call.fate for call in session.unfinished.calls)
            await _check_it_goes_on(session, resumes=next(turns) % 2 == 0)
            left = [event async for event in _stored(session)]
            _check_effects(place, left)
            require_same(queries_without_end(left), [], "queries without an end")
        for request in provider.requests:
            require_same(violations(request.messages), [], "requests that can be sent")

    return check


async def _stored(session: AgentSession) -> AsyncIterator[Entry]:
    live = await live_of(session)
    for entry in await live.store.log.read(live.session_id):
        yield entry


def _check_nothing_is_lost(place: Path, session: AgentSession, entries: list[Entry]) -> None:
    seqs = [entry.seq for entry in entries]
    require_same(seqs, list(range(1, len(seqs) + 1)), "a log without gaps")
    for session_id, seq in read_acknowledged(place / "acks").items():
        require_same(session.session_id, session_id, "the session that was acknowledged")
        require(len(seqs) >= seq, f"entry {seq} was shown, but {len(seqs)} is the last")


def _check_effects(place: Path, entries: list[Entry]) -> None:
    """Every call took effect at most once, and exactly once when the log has its end."""
    done = _effects(place)
    require(all(count == 1 for count in done.values()), f"effects came twice: {done}")
    started = {entry.call_id for entry in entries if isinstance(entry, ToolStarted)}
    require({f"call_{line}" for line in done} <= started, "an effect without a record of its start")
    for entry in entries:
        if isinstance(entry, ToolEnded) and entry.outcome == "ok":
            line = entry.call_id.removeprefix("call_")
            require_same(done[line], 1, f"effects of {line}")


async def _check_it_goes_on(session: AgentSession, *, resumes: bool) -> None:
    if session.unfinished.query_id is not None and resumes:
        # An answer that was cut off is kept, and the model goes on after it.
        text = (await session.resume()).text
        require(text.endswith(FINAL), f"after resuming the answer was {text!r}")
    require_same((await session.chat("next")).text, "fine", "the answer to the next prompt")


def _summary(kind: str, killed: int, points: int, fates: Counter[str]) -> str:
    found = ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items()))
    return (
        f"{kind}: a query of three turns killed at {killed} of {points} points: 0 entries lost, "
        f"0 sessions unopenable, 0 effects twice, all went on (calls found: {found})"
    )


@pytest.mark.timeout(180)
@sampled(4, 12)
@pytest.mark.parametrize("kind", DURABLE)
async def test_kill_nine_at_some_points_of_a_query_loses_and_repeats_nothing(
    kind: str, sample: int, tmp_path: Path, report: Report
) -> None:
    fates: Counter[str] = Counter()
    points = await find_crash_points(_worker(kind), tmp_path / "counted")
    require_same(_effects(tmp_path / "counted" / "place"), Counter(LINES), "effects of a whole run")
    swept = await sweep_crashes(
        _worker(kind), _checker(kind, fates), folder=tmp_path, points=spread(points, sample)
    )
    assert swept.killed > sample // 2
    report(_summary(kind, swept.killed, len(points), fates))


@pytest.mark.soak
@pytest.mark.parametrize("kind", DURABLE)
async def test_kill_nine_at_every_point_of_a_query_loses_and_repeats_nothing(
    kind: str, tmp_path: Path, report: Report
) -> None:
    fates: Counter[str] = Counter()
    swept = await sweep_crashes(_worker(kind), _checker(kind, fates), folder=tmp_path)
    assert swept.killed > swept.points * 0.9
    report(_summary(kind, swept.killed, swept.points, fates))
