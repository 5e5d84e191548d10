"""Where `/proc` does not show everything: no living process is taken for dead.

A service that systemd starts with `ProcSubset=pid`, and some containers, have no `/proc/sys`.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from haptera.model.ids import SessionId, new_session_id
from haptera.system.processes import (
    ProcessIdentity,
    is_of_this_machine,
    process_state,
    this_process,
)
from tests.architecture.source_tree import ROOT
from tests.stores.store_factories import DURABLE
from tests.stores.workers import NEW_INTERPRETER, worker, worker_environment

CALLERS = 4

CONFORMANCE = """
import asyncio, sys
from pathlib import Path
from haptera.testing.store_conformance import run_store_conformance
from tests.stores.store_factories import STORE_FACTORIES
kind, folder = sys.argv[1], Path(sys.argv[2])
numbers = iter(range(10_000))
def factory():
    place = folder / str(next(numbers))
    place.mkdir()
    return STORE_FACTORIES[kind](place)
print(asyncio.run(run_store_conformance(factory)).failed)
"""


def hiding(folder: str) -> Sequence[str]:
    """Return what to run a command under so that a folder of `/proc` is empty for it."""
    hide = f'mount -t tmpfs none {folder} && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", hide, "sh")


def can_hide() -> bool:
    """Return whether this machine lets us mount."""
    with contextlib.suppress(OSError):
        return subprocess.run([*hiding("/proc/sys"), "true"], check=False).returncode == 0
    return False


needs_mounts = pytest.mark.skipif(not can_hide(), reason="file systems cannot be mounted here")


@pytest.fixture
def session_id() -> SessionId:
    return new_session_id()


@needs_mounts
@pytest.mark.slow
@pytest.mark.parametrize("kind", DURABLE)
@pytest.mark.parametrize("hidden", ["holder", "caller", "both"])
async def test_who_sees_no_boot_takes_no_lease_of_the_living_and_gives_none_away(
    kind: str, tmp_path: Path, *, hidden: str, session_id: SessionId
) -> None:
    blind = hiding("/proc/sys")
    of_holder = NEW_INTERPRETER if hidden == "caller" else blind
    of_caller = NEW_INTERPRETER if hidden == "holder" else blind
    async with (
        worker(f"patient {kind}", tmp_path, session_id, under=of_holder) as holder,
        worker(kind, tmp_path, session_id, under=of_caller) as caller,
    ):
        await holder.must("acquire")
        await holder.must("append", 1)
        assert (await caller.ask("acquire")).startswith("BUSY")
        await holder.must("append", 2)
        await holder.must("release")
        await caller.must("acquire")
        await caller.must("append", 3)
        assert (await holder.ask("acquire")).startswith("BUSY")
    # One that has ended is found to have ended, also by who sees no boot.
    async with worker(kind, tmp_path, session_id, under=blind) as heir:
        await heir.must("acquire")
        await heir.must("append", 4)


@needs_mounts
@pytest.mark.slow
@pytest.mark.parametrize("kind", DURABLE)
async def test_every_promise_is_kept_without_the_number_of_the_boot(
    kind: str, tmp_path: Path
) -> None:
    said = await _run_hiding("/proc/sys", CONFORMANCE, kind, tmp_path)
    assert said == "()"


@needs_mounts
@pytest.mark.slow
@pytest.mark.parametrize("kind", DURABLE)
async def test_without_any_proc_no_caller_becomes_the_writer(
    kind: str, tmp_path: Path, session_id: SessionId
) -> None:
    async with contextlib.AsyncExitStack() as left:
        callers = [
            await left.enter_async_context(
                worker(kind, tmp_path, session_id, under=hiding("/proc"))
            )
            for _ in range(CALLERS)
        ]
        for caller in callers:
            answered = await caller.ask("acquire")
            assert answered.startswith("CONFIG_INVALID")
            assert "/proc" in answered


async def _run_hiding(folder: str, script: str, *arguments: object) -> str:
    process = await asyncio.create_subprocess_exec(
        *(*hiding(folder), sys.executable, "-c", script, *map(str, arguments)),
        cwd=ROOT,
        env=worker_environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    return said.decode().strip()


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "alive"),
        ({"boot": "unknown"}, "alive"),
        ({"boot": "another"}, "dead"),
        ({"namespace": "1"}, "unknown"),
        ({"namespace": "1", "boot": "unknown"}, "unknown"),
        ({"started": 1}, "dead"),
        # Written by a version that could not read it.
        ({"started": -1}, "unknown"),
        ({"started": -1, "namespace": "0", "boot": "unknown"}, "unknown"),
        ({"pid": 4194305}, "dead"),
        ({"pid": 4194305, "boot": "unknown"}, "dead"),
    ],
)
def test_only_what_is_known_to_have_ended_counts_as_dead(
    changes: dict[str, object], state: str
) -> None:
    here = this_process()
    fields = {name: getattr(here, name) for name in ProcessIdentity.__struct_fields__}
    assert process_state(ProcessIdentity(**{**fields, **changes})) == state


def test_a_process_whose_boot_is_unknown_may_be_of_any_machine() -> None:
    here = this_process()
    unknown = ProcessIdentity(
        pid=here.pid, started=here.started, namespace=here.namespace, boot="unknown"
    )
    assert is_of_this_machine(here)
    assert not is_of_this_machine(unknown)
