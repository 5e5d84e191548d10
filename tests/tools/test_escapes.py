"""More than two hundred attempts to get out of the sandbox, by family, on each backend.

Every attempt is made without a sandbox first: one that fails even there would prove nothing.
"""

import asyncio
import fcntl
import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from haptera.tools import Sandbox
from haptera.tools.command_runner import CommandCall, CommandRunner
from haptera.tools.contained_paths import Root
from tests.architecture.source_tree import ROOT
from tests.fixtures_report import Report
from tests.tools.escapes.attempt import OUTCOMES, Escape, Target
from tests.tools.escapes.table import ESCAPES
from tests.tools.escapes.targets import (
    as_argument,
    end_survivors,
    look_at,
    made_targets,
    survivors,
)
from tests.tools.toolbox import INTERPRETER, PYTHON

pytestmark = pytest.mark.slow

LAYERS = {
    "full": ("namespaces", "landlock", "seccomp"),
    "without Landlock": ("namespaces", "seccomp"),
    "Landlock alone": ("landlock", "seccomp"),
}
PROGRAM = (PYTHON, "-B", "-S", "-E", "-m", "tests.tools.escapes")
FAMILIES = {
    "files outside", "attributes outside", "git", "sockets by path", "abstract sockets", "TCP",
    "UDP", "netlink", "vsock and others", "signals", "ptrace", "proc", "namespaces", "mounts",
    "bpf", "io_uring", "perf", "keyrings", "calls of root", "set-id", "TIOCSTI", "devices", "shm",
    "limits of others", "survivors",
}  # fmt: skip


class Batch(NamedTuple):
    """What came of all attempts in one place."""

    refusals: dict[str, str | None]
    """Why each was refused, by its row; None: it was not."""
    layers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    is_enough: bool = False


Batches = Mapping[str, Batch]


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Batches:
    """Return what came of all attempts on each backend, and by "none" without a sandbox.

    The attempts are made once, whichever process of a test run comes first.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    made = shared / "escapes.json"
    with (shared / "escapes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            here = [backend for backend, layers in LAYERS.items() if confining(layers) == layers]
            outcomes = {backend: make_attempts(backend) for backend in ("none", *here)}
            made.write_bytes(msgspec.json.encode(outcomes))
    return msgspec.json.decode(made.read_bytes(), type=dict[str, Batch])


def confining(layers: tuple[str, ...]) -> tuple[str, ...]:
    """Return what of some layers this kernel gives."""
    runner = CommandRunner(Root(ROOT), sandbox=Sandbox(layers=layers))
    return asyncio.run(runner.report()).layers


def make_attempts(backend: str) -> Batch:
    place = ROOT / ".cache"
    place.mkdir(exist_ok=True)
    with made_targets(place) as target:
        before = look_at(target)
        run = _run_unconfined(target) if backend == "none" else _run_in(backend, target)
        after, left = look_at(target), survivors(target)
        if backend == "none":
            end_survivors(target)
    told = dict(run.refusals)
    for escape in ESCAPES:
        # What is found outside is believed over what an attempt says.
        if escape.is_judged_outside:
            told[escape.row] = "nothing is seen of it outside"
        if escape.row in left or before[escape.row] != after[escape.row]:
            told[escape.row] = None
    return run._replace(refusals=told)


def _run_unconfined(target: Target) -> Batch:
    command = [*PROGRAM, "--keep-mounts", as_argument(target)]
    null = subprocess.DEVNULL
    subprocess.run(
        command, cwd=f"{target.root}/src", stdin=null, stdout=null, check=True,
        start_new_session=True, timeout=100,
    )  # fmt: skip
    return Batch(_read_outcomes(target))


def _read_outcomes(target: Target) -> dict[str, str | None]:
    return dict(json.loads((Path(target.root) / "src" / OUTCOMES).read_text()))


def _run_in(backend: str, target: Target) -> Batch:
    home = str(Path(target.secret).parents[1])
    sandbox = Sandbox(layers=LAYERS[backend], home=home, readable=INTERPRETER)
    runner = CommandRunner(Root(target.root), sandbox=sandbox)
    output: list[bytes] = []

    def take(piece: bytes) -> bool:
        output.append(piece)
        return True

    async def run() -> Batch:
        command = CommandCall(
            argv=(*PROGRAM, as_argument(target)),
            folder="src",
            timeout=100,
            environment={"PATH": "/usr/bin:/bin"},
            may_run_unconfined=True,
        )
        finished = await runner.run(command, take)
        assert finished.ending.code == 0, (finished, output)
        report = await runner.report()
        return Batch(_read_outcomes(target), report.layers, report.missing, report.is_available)

    return asyncio.run(run())


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.row)
def test_an_attempt_is_refused_or_said_not_to_be_held(escape: Escape, batches: Batches) -> None:
    succeeds, not_held = set(), set()
    for backend in LAYERS.keys() & batches.keys():
        refusals, _, missing, _ = batches[backend]
        if refusals[escape.row] is None:
            succeeds.add(backend)
        if escape.gap is not None and any(escape.gap in each for each in missing):
            not_held.add(backend)
    assert not_held == ({"Landlock alone"} if escape.gap else set())
    # What this machine does not let any program do is refused everywhere.
    works = batches["none"].refusals[escape.row] is None
    assert succeeds == (not_held if works else set())


def test_the_same_attempts_succeed_without_a_sandbox(batches: Batches, report: Report) -> None:
    refusals = batches["none"].refusals
    assert {escape.row: refusals[escape.row] for escape in ESCAPES if not escape.needs} == {
        escape.row: None for escape in ESCAPES if not escape.needs
    }
    absent = {escape.row: escape.needs for escape in ESCAPES if refusals[escape.row] is not None}
    report(
        f"escapes: {len(ESCAPES)} attempts, {len(ESCAPES) - len(absent)} of them succeed without a "
        f"sandbox; unavailable here: {', '.join(sorted(absent))}"
    )


def test_every_family_has_attempts_that_need_nothing_or_a_machine_that_has_it() -> None:
    families = Counter(escape.family for escape in ESCAPES)
    assert set(families) == FAMILIES
    assert families.total() >= 200
    assert len({escape.row for escape in ESCAPES}) == len(ESCAPES)


@pytest.mark.namespaces
def test_each_backend_says_what_it_does_not_hold_and_only_the_full_one_is_enough(
    batches: Batches,
) -> None:
    assert {name: batch.layers for name, batch in batches.items() if batch.layers} == LAYERS
    assert batches["full"].missing == batches["without Landlock"].missing == ()
    assert {name: batches[name].is_enough for name in LAYERS} == {
        "full": True, "without Landlock": True, "Landlock alone": False,
    }  # fmt: skip


def test_landlock_alone_names_every_gap_of_the_table(batches: Batches) -> None:
    batch = batches["Landlock alone"]
    gaps = {escape.gap for escape in ESCAPES if escape.gap is not None}
    assert {gap for gap in gaps if any(gap in each for each in batch.missing)} == gaps
    assert not batch.is_enough
