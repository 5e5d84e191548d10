"""The benchmarks: which scripts are played, for whom, how often."""

from benchmarks.harness import Suite
from benchmarks.jobs import GrowthJob, ImportJob, QueryJob, ReopenJob, StartJob, TrialJob
from benchmarks.script import APIS, Script
from benchmarks.subjects import (
    GROWTH_SUBJECTS,
    ONE_SHOT_SUBJECTS,
    QUERY_SUBJECTS,
    STORE_SUBJECTS,
    Subject,
    trial_subjects,
)

_IMPORTS = ("msgspec", "aiohttp", "haptera", "anthropic", "openai", "agents", "langgraph.graph")


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
        floor="floor + rows",
        jobs=(small, large),
        subjects=GROWTH_SUBJECTS,
        rounds=1 if is_quick else 3,
    )


def oneshot(*, is_quick: bool) -> Suite:
    """Measure a query in a new persisted session."""
    queries, runs = (5, 2) if is_quick else (30, 5)
    job = QueryJob(
        case="one-shot in a new session",
        api="anthropic",
        script=Script(deltas=1),
        scale=1e3,
        runs=runs,
        queries=queries,
    )
    return Suite(
        name="oneshot",
        title="CPU of a query in a new persisted session",
        unit="ms",
        floor="floor + rows",
        jobs=(job,),
        subjects=ONE_SHOT_SUBJECTS,
        rounds=1 if is_quick else 5,
    )


def reopen(*, is_quick: bool) -> Suite:
    """Measure opening a long session in a new process, with the next prompt."""
    script = Script(deltas=10, size=10)
    return Suite(
        name="reopen",
        title="CPU of opening a session in a new process and sending the next prompt",
        unit="ms",
        floor="floor + rows",
        jobs=tuple(
            ReopenJob(case=f"after {turns} turns", script=script, turns=turns)
            for turns in ((20,) if is_quick else (1000, 3000))
        ),
        subjects=STORE_SUBJECTS,
        rounds=1 if is_quick else 5,
    )


def start(*, is_quick: bool) -> Suite:
    """Measure a process that sends one prompt and ends, and when its request arrives."""
    return Suite(
        name="start",
        title="A process that sends one prompt: CPU; milliseconds until the request arrives",
        unit="ms",
        floor="floor-aiohttp",
        jobs=(StartJob(case="cold start"),),
        subjects=(
            Subject(name="floor-aiohttp", target="floor"),
            Subject(name="haptera", target="haptera"),
        ),
        rounds=2 if is_quick else 7,
    )


def command(*, is_quick: bool) -> Suite:
    """Measure the command lines: their help, and one prompt until its request arrives."""
    return Suite(
        name="command",
        title="A command line: CPU; milliseconds until it has ended, or its request arrives",
        unit="ms",
        floor="llm",
        jobs=(StartJob(case="--help", is_help=True), StartJob(case="one prompt")),
        subjects=(
            Subject(name="llm", target="llm-command"),
            Subject(name="haptera", target="haptera-command"),
        ),
        rounds=2 if is_quick else 7,
    )


def streams(*, is_quick: bool) -> Suite:
    """Measure many streams side by side in one process."""
    size, deltas = (20, 20) if is_quick else (500, 200)
    script = Script(deltas=deltas, delay=20_000)
    job = TrialJob(case=f"{size} streams of {deltas} deltas 20 ms apart", script=script, size=size)
    return _trial("streams", job, unit="s", is_quick=is_quick)


def conversation(*, is_quick: bool) -> Suite:
    """Measure the CPU and the memory of a long conversation."""
    size = 40 if is_quick else 2000
    script = Script(deltas=10, size=50)
    job = TrialJob(case=f"CPU of a conversation of {size} messages", script=script, size=size)
    return _trial("conversation", job, unit="s", is_quick=is_quick)


def idle(*, is_quick: bool) -> Suite:
    """Measure the memory of a session that is open and does nothing."""
    size = 20 if is_quick else 500
    job = TrialJob(case="memory of an idle session", script=Script(deltas=1), size=size)
    return _trial("idle", job, unit="kB", is_quick=is_quick)


def abort(*, is_quick: bool) -> Suite:
    """Measure the time from an abort until the server sees the connection closed."""
    size = 3 if is_quick else 30
    script = Script(deltas=200, delay=5000)
    job = TrialJob(case="abort, until the server sees it", script=script, size=size)
    return _trial("abort", job, unit="ms", is_quick=is_quick)


def snapshot(*, is_quick: bool) -> Suite:
    """Measure what snapshots of a large tree add to a turn that changes one of its files."""
    size = 200 if is_quick else 5000
    module = "benchmarks.subjects_snapshots"
    return Suite(
        name="snapshot",
        title=f"CPU of a turn that changes one file of {size}, git's own included",
        unit="ms",
        floor="git add -A; git write-tree",
        jobs=(TrialJob(case=f"one of {size} files", script=Script(), size=size),),
        subjects=(
            Subject(name="git add -A; git write-tree", target=f"{module}:floor"),
            Subject(name="haptera", target=f"{module}:with_snapshots"),
            Subject(name="haptera, snapshots off", target=f"{module}:without_snapshots"),
        ),
        rounds=1 if is_quick else 5,
    )


def finding(*, is_quick: bool) -> Suite:
    """Measure a page of sessions among many in a SQLite file."""
    size, module = 50 if is_quick else 10_000, "benchmarks.subjects_finding"
    return Suite(
        name="list",
        title=f"CPU of a page of 50 among {size:,} sessions in SQLite",
        unit="ms",
        floor="a table with an index",
        jobs=(TrialJob(case=f"{size:,} sessions", script=Script(), size=size),),
        subjects=(
            Subject(name="a table with an index", target=f"{module}:floor"),
            Subject(name="haptera, by metadata", target=f"{module}:by_metadata"),
            Subject(name="haptera, by tag", target=f"{module}:by_tag"),
            Subject(name="haptera, last updated", target=f"{module}:last_updated"),
        ),
        rounds=1,
    )


def server(*, is_quick: bool) -> Suite:
    """Measure live streams and new queries in one server process."""
    size, deltas = (10, 4) if is_quick else (500, 100)
    case = f"{size} live streams and 50 new queries a second"
    script = Script(deltas=deltas, size=32, delay=100_000 if is_quick else 200_000)
    return Suite(
        name="server",
        title="99th percentile of how late a delta reaches a client of the server",
        unit="ms",
        floor="bare ASGI",
        jobs=(TrialJob(case=case, script=script, size=size),),
        subjects=_server_subjects("streams"),
        rounds=1 if is_quick else 3,
    )


def fan_out(*, is_quick: bool) -> Suite:
    """Measure a burst of events in one session, to one subscriber and to many."""
    cases = ((1, 200), (5, 40)) if is_quick else ((1, 20_000), (500, 200))
    return Suite(
        name="fanout",
        title="CPU of the server for each event that it delivers",
        unit="μs",
        floor="bare ASGI",
        jobs=tuple(
            TrialJob(
                case=f"{deltas} events to {size} subscriber{'s' * (size > 1)}",
                script=Script(deltas=deltas, size=32),
                size=size,
            )
            for size, deltas in cases
        ),
        subjects=(
            *_server_subjects("fan_out"),
            Subject(
                name="bare ASGI, event by event",
                target="benchmarks.subjects_server:fan_out_stepwise",
                packages=("aiohttp", "uvicorn"),
            ),
        ),
        rounds=1 if is_quick else 5,
    )


def stalled(*, is_quick: bool) -> Suite:
    """Measure by how much a client that does not read makes the server grow."""
    size, deltas = (4, 2000) if is_quick else (10, 2000)
    module = "benchmarks.subjects_server"
    return Suite(
        name="stalled",
        title="By how much the server grows while it streams; the floor has no client that stalls",
        unit="MiB",
        floor="all clients read",
        jobs=(
            TrialJob(
                case=f"{size} answers of 2 MB in a session",
                script=Script(deltas=deltas, size=1024),
                size=size,
            ),
        ),
        subjects=(
            Subject(name="all clients read", target=f"{module}:reading_only"),
            Subject(name="one client stalls", target=f"{module}:stalled_reader"),
        ),
        rounds=1 if is_quick else 5,
    )


def _server_subjects(trial: str) -> tuple[Subject, ...]:
    module, packages = "benchmarks.subjects_server", ("aiohttp", "uvicorn")
    return (
        Subject(name="bare ASGI", target=f"{module}:{trial}_bare", packages=packages),
        Subject(name="haptera", target=f"{module}:{trial}_haptera", packages=packages),
    )


def _trial(name: str, job: TrialJob, *, unit: str, is_quick: bool) -> Suite:
    return Suite(
        name=name,
        title=job.case,
        unit=unit,
        floor="floor-aiohttp",
        jobs=(job,),
        subjects=trial_subjects(name),
        rounds=1 if is_quick else 5,
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


SUITES = {
    "delta": delta,
    "turn": turn,
    "oneshot": oneshot,
    "growth": growth,
    "reopen": reopen,
    "start": start,
    "command": command,
    "streams": streams,
    "conversation": conversation,
    "idle": idle,
    "abort": abort,
    "snapshot": snapshot,
    "list": finding,
    "server": server,
    "fanout": fan_out,
    "stalled": stalled,
    "import": imports,
}
