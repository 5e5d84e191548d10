"""Runs workers round-robin over the subjects and makes medians and ratios of what they bring."""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.cold_start import HELP
from benchmarks.jobs import (
    GrowthJob,
    ImportJob,
    Job,
    Measure,
    Order,
    OrderedJob,
    ReopenJob,
    StartJob,
    Status,
    WorkerReport,
)
from benchmarks.mock_server import STATS_PATH
from benchmarks.script import Script
from benchmarks.subjects import Subject

ROOT = Path(__file__).parent.parent
_TIME_LIMIT = 120.0
"""Seconds beyond a job's own budget after which a worker is given up."""


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark: its jobs, each for all subjects that can do it."""

    name: str
    title: str
    unit: str
    floor: str
    """Name of the subject that ratios are made against."""
    jobs: tuple[Job, ...]
    subjects: tuple[Subject, ...]
    rounds: int

    def pairs(self) -> Iterator[tuple[Job, Subject]]:
        """Give each job with each subject that speaks its API, in the order of one round."""
        for job in self.jobs:
            for subject in self.subjects:
                if getattr(job, "api", None) in {None, *subject.apis}:
                    yield job, subject


class Row(msgspec.Struct, kw_only=True):
    """All rounds of one subject in one case."""

    case: str
    subject: str
    status: Status
    reason: str = ""
    values: list[float] = []
    extras: list[dict[str, float]] = []
    ratios: list[float] = []
    above_floor: list[float] = []

    def median(self) -> float | None:
        """Give the middle value, if there is any."""
        return statistics.median(self.values) if self.values else None

    def extra(self) -> dict[str, float]:
        """Give the middle of each further number."""
        names = dict.fromkeys(name for extra in self.extras for name in extra)
        return {
            name: statistics.median(extra[name] for extra in self.extras if name in extra)
            for name in names
        }


class Rows:
    """Collects reports by case and subject, in the order in which they first came."""

    def __init__(self, floor: str) -> None:
        self._floor = floor
        self._rows: dict[tuple[str, str], Row] = {}

    def add(self, job: Job, subject: str, report: WorkerReport) -> None:
        """Add what one worker brought."""
        for measure in report.measures:
            row = self._row(measure.case, subject)
            row.values.append(measure.value)
            row.extras.append(measure.extra)
        if report.status != "ok":
            row = self._row(job.case, subject)
            row.status, row.reason = report.status, report.reason

    def _row(self, case: str, subject: str) -> Row:
        return self._rows.setdefault((case, subject), Row(case=case, subject=subject, status="ok"))

    def finish(self) -> list[Row]:
        """Make each round's ratio to the floor's value of the same round; group by case."""
        cases = dict.fromkeys(case for case, _ in self._rows)
        for row in self._rows.values():
            floor = self._rows.get((row.case, self._floor))
            pairs = list(zip(row.values, floor.values if floor else (), strict=False))
            row.ratios = [value / base for value, base in pairs]
            row.above_floor = [value - base for value, base in pairs]
        return [row for case in cases for row in self._rows.values() if row.case == case]


def run_suite(
    suite: Suite, *, base_url: str, has_uvloop: bool, say: Callable[[str], None]
) -> list[Row]:
    """Run all rounds of a suite; who did not finish a case is not asked again, and stays in it."""
    rows = Rows(suite.floor)
    pairs = list(suite.pairs())
    dropped: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory(prefix="haptera-bench-") as folder:
        workers = Workers(base_url, Path(folder), has_uvloop=has_uvloop)
        for number in range(suite.rounds):
            for job, subject in pairs:
                if (job.case, subject.name) in dropped:
                    continue
                place = f"round {number + 1} of {suite.rounds}"
                say(f"{suite.name}: {place}: {job.case}: {subject.name}")
                report = workers.run(job, subject)
                rows.add(job, subject.name, report)
                if report.status != "ok":
                    dropped.add((job.case, subject.name))
    return rows.finish()


class Workers:
    """Runs jobs, each in a fresh process. Owns the sessions that were grown to be opened again."""

    def __init__(self, base_url: str, folder: Path, *, has_uvloop: bool) -> None:
        self._base_url = base_url
        self._folder = folder
        self._has_uvloop = has_uvloop
        self._grown: dict[tuple[str, str], Path] = {}
        self._starts = 0

    def run(self, job: Job, subject: Subject) -> WorkerReport:
        """Run one job."""
        match job:
            case ImportJob():
                return _probe_import(job, subject)
            case StartJob():
                return self._start(job, subject)
            case ReopenJob():
                return self._reopen(job, subject)
            case _:
                return self._work(self._order(job, subject))

    def _order(self, job: OrderedJob, subject: Subject) -> Order:
        return Order(job=job, subject=subject, base_url=self._base_url, has_uvloop=self._has_uvloop)

    def _work(self, order: Order) -> WorkerReport:
        budget = order.job.budget if isinstance(order.job, GrowthJob) else 0.0
        with tempfile.TemporaryDirectory(prefix="haptera-bench-") as folder:
            target = Path(folder) / "report.json"
            command = ["-m", "benchmarks.worker", str(target)]
            _, failure = _python(
                command,
                msgspec.json.encode(order),
                timeout=budget + _TIME_LIMIT,
                source=order.subject.source,
            )
            if failure:
                return WorkerReport(status="failed", reason=failure)
            return msgspec.json.decode(target.read_bytes(), type=WorkerReport)

    def _reopen(self, job: ReopenJob, subject: Subject) -> WorkerReport:
        """Let one process grow a session, once, and another one open a copy of it."""
        order, key = self._order(job, subject), (job.case, subject.name)
        if key not in self._grown:
            grown = self._folder / str(len(self._grown))
            grown.mkdir()
            replaced = msgspec.structs.replace(order, folder=str(grown), must_grow=True)
            report = self._work(replaced)
            if report.status != "ok":
                return report
            self._grown[key] = grown
        with tempfile.TemporaryDirectory(prefix="haptera-bench-") as folder:
            copy = Path(folder) / "copy"
            shutil.copytree(self._grown[key], copy)
            return self._work(msgspec.structs.replace(order, folder=str(copy)))

    def _start(self, job: StartJob, subject: Subject) -> WorkerReport:
        """Take the time from starting a process until its request arrives at the server."""
        self._starts += 1
        script = Script(deltas=1, tag=int(time.monotonic() * 1e3) + self._starts)
        model = HELP if job.is_help else script.model
        start = time.monotonic()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["-m", "benchmarks.cold_start", subject.target, self._base_url, model]
        _, failure = _python(command, b"", timeout=_TIME_LIMIT, source=subject.source)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if failure:
            return WorkerReport(status="failed", reason=failure)
        cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        extra = {"wall ms": (time.monotonic() - start) * 1e3}
        if not job.is_help:
            with urllib.request.urlopen(self._base_url + STATS_PATH) as response:
                arrived = msgspec.json.decode(response.read())["arrived"][model]
            extra = {"first byte ms": (arrived - start) * 1e3}
        measure = Measure(case=job.case, value=cpu * 1e3, extra=extra)
        return WorkerReport(status="ok", measures=(measure,))


class _Imported(msgspec.Struct):
    seconds: float
    modules: int
    heavy: list[str]


def _probe_import(job: ImportJob, subject: Subject) -> WorkerReport:
    # -P keeps this folder off the path: its modules must not stand in for others.
    probe = ["-P", str(ROOT / "benchmarks" / "import_probe.py"), subject.target]
    source = subject.source
    # The first one compiles what is not compiled and fills the disk cache.
    _python(probe, b"", timeout=_TIME_LIMIT, source=source)
    output, failure = _python(probe, b"", timeout=_TIME_LIMIT, source=source)
    if failure:
        return WorkerReport(status="failed", reason=failure)
    imported = msgspec.json.decode(output, type=_Imported | None)
    if imported is None:
        return WorkerReport(status="not installed", reason=subject.target)
    extra = {"modules": float(imported.modules), **dict.fromkeys(imported.heavy, 1.0)}
    measure = Measure(case=job.case, value=imported.seconds * 1e3, extra=extra)
    return WorkerReport(status="ok", measures=(measure,))


def _python(
    arguments: Sequence[str], given: bytes, *, timeout: float, source: str = ""
) -> tuple[bytes, str]:
    """Run this interpreter; gives its output and, if it failed, the last line of its complaint."""
    path = os.pathsep.join([str(ROOT), source or str(ROOT / "src")])
    # The mock provider is on loopback: no proxy, and no tracing to anywhere.
    environment = os.environ | {"PYTHONPATH": path, "NO_PROXY": "127.0.0.1"}
    # Without compiled files every import would be measured as its first.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            input=given,
            capture_output=True,
            check=False,
            cwd=ROOT,
            env=environment,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return b"", f"no report within {timeout:.0f} s"
    if done.returncode == 0:
        return done.stdout, ""
    complaint = done.stderr.decode(errors="replace").strip().splitlines()
    return b"", complaint[-1] if complaint else f"exit code {done.returncode}"
