"""What the harness hands to a worker process and what it gets back."""

from typing import Literal

import msgspec

from benchmarks.script import Api, Script
from benchmarks.subjects import Subject

Status = Literal["ok", "not installed", "not available", "stopped early", "failed"]


class QueryJob(msgspec.Struct, frozen=True, kw_only=True, tag="query"):
    """Ask the same prompt again and again, each time in a new conversation."""

    case: str
    api: Api
    script: Script
    scale: float
    """What the CPU seconds of one query are multiplied by to give the benchmark's unit."""
    warmups: int = 1
    runs: int = 5
    queries: int = 1
    """Queries in one timed run."""


class GrowthJob(msgspec.Struct, frozen=True, kw_only=True, tag="growth"):
    """Add turns to one persisted session; measure at its milestones."""

    case: str
    script: Script
    milestones: tuple[int, ...]
    budget: float
    """Seconds of wall time after which no turn is added any more."""
    max_bytes: int = 2_000_000_000
    """Size on disk beyond which no turn is added any more."""


class ReopenJob(msgspec.Struct, frozen=True, kw_only=True, tag="reopen"):
    """Open a session of many turns in a new process and send the next prompt."""

    case: str
    script: Script
    turns: int


class TrialJob(msgspec.Struct, frozen=True, kw_only=True, tag="trial"):
    """Let the subject measure something of its own, `size` times or in that size."""

    case: str
    script: Script
    size: int


class StartJob(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """Start a process that sends one prompt; the server notes when the request arrives."""

    case: str
    is_help: bool = False
    """Whether a command prints its help instead and sends nothing."""


class ImportJob(msgspec.Struct, frozen=True, kw_only=True, tag="import"):
    """Import one module in a bare interpreter."""

    case: str


OrderedJob = QueryJob | GrowthJob | ReopenJob | TrialJob
"""What a worker does."""
Job = OrderedJob | StartJob | ImportJob


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's work."""

    job: OrderedJob
    subject: Subject
    base_url: str
    has_uvloop: bool = False
    folder: str = ""
    """Of a `ReopenJob`: where the session is."""
    must_grow: bool = False
    """Of a `ReopenJob`: make the session instead of opening it."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One number of one subject in one round, with what else was seen."""

    case: str
    value: float
    extra: dict[str, float] = {}


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker brings back; `reason` is empty when the status is ok."""

    status: Status
    reason: str = ""
    measures: tuple[Measure, ...] = ()
