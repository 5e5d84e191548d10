"""The benchmarks: which scripts are played, for whom, how often."""

from benchmarks.harness import Suite
from benchmarks.jobs import GrowthJob, ImportJob, QueryJob
from benchmarks.script import APIS, Script
from benchmarks.subjects import GROWTH_SUBJECTS, QUERY_SUBJECTS, Subject

_IMPORTS = ("msgspec", "aiohttp", "holdfast", "anthropic", "openai", "agents", "langgraph.graph")


def delta(*, is_quick: bool) -> Suite:
    """Measure the CPU per streamed text delta: a burst, and one delta every 3 ms."""
    burst = Script(deltas=1000 if is_quick else 5000)
    paced = Script(deltas=40 if is_quick else 150, delay=3000)
    runs = 3 if is_quick else 7
    jobs: list[QueryJob] = []
    for api in APIS:
        case, scale = f"{api}, burst of {burst.deltas}", 1e6 / burst.deltas
        jobs.append(QueryJob(case=case, api=api, script=burst, scale=scale, warmups=2, runs=runs))
        case, scale = f"{api}, 1 every 3 ms", 1e6 / paced.deltas
        jobs.append(QueryJob(case=case, api=api, script=paced, scale=scale, runs=3))
    return Suite(
        name="delta",
        title="CPU per streamed text delta",
        unit="μs",
        floor="floor-aiohttp",
        jobs=tuple(jobs),
        subjects=QUERY_SUBJECTS,
        rounds=1 if is_quick else 5,
    )


def turn(*, is_quick: bool) -> Suite:
    """Measure the fixed CPU of a turn, and of a query with one tool call (two turns)."""
    queries, runs = (10, 3) if is_quick else (50, 5)
    jobs = [
        QueryJob(
            case=f"{api}, {what}",
            api=api,
            script=Script(deltas=1, tools=tools),
            scale=1e3,
            runs=runs,
            queries=queries,
        )
        for api in APIS
        for what, tools in (("turn", 0), ("tool query", 1))
    ]
    return Suite(
        name="turn",
        title="Fixed CPU per query of one delta, without and with one tool call",
        unit="ms",
        floor="floor-aiohttp",
        jobs=tuple(jobs),
        subjects=QUERY_SUBJECTS,
        rounds=1 if is_quick else 5,
    )


def growth(*, is_quick: bool) -> Suite:
    """Measure a persisted session as it grows: CPU per added turn, bytes on disk, reopening."""
    budget = 10.0 if is_quick else 120.0
    small = GrowthJob(
        case="short turns",
        script=Script(deltas=10, size=10),
        milestones=(10, 100) if is_quick else (10, 100, 1000, 3000),
        budget=budget,
    )
    large = GrowthJob(
        case="4 KiB turns",
        script=Script(deltas=64, size=64),
        milestones=(50,) if is_quick else (200,),
        budget=budget,
    )
    return Suite(
        name="growth",
        title="A persisted session as it grows: CPU per added turn",
        unit="ms",
        floor="floor-aiohttp + rows",
        jobs=(small, large),
        subjects=GROWTH_SUBJECTS,
        rounds=1 if is_quick else 3,
    )


def imports(*, is_quick: bool) -> Suite:
    """Measure the CPU of an import in a bare interpreter, and the modules it loads."""
    return Suite(
        name="import",
        title="Import in a bare interpreter: CPU, modules loaded, heavy ones among them",
        unit="ms",
        floor="msgspec",
        jobs=(ImportJob(case="import"),),
        subjects=tuple(Subject(name=name, target=name) for name in _IMPORTS),
        rounds=3 if is_quick else 7,
    )


SUITES = {"delta": delta, "turn": turn, "growth": growth, "import": imports}
