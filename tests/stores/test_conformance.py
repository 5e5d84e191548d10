"""Every store keeps every promise of the store ports."""

from pathlib import Path

import pytest

from haptera.model.log.entry import Entry
from haptera.ports.session_store import Lease
from haptera.stores.memory import MemoryLog, MemoryStore
from haptera.testing.store_conformance import CHECKS, Check, run_store_conformance
from haptera.testing.store_conformance.samples import OpenStore
from tests.stores.store_factories import STORE_FACTORIES, memory_factory

pytestmark = pytest.mark.slow

NOT_IN_MEMORY = "check_a_closed_store_says_so"
"""Memory has nothing to let go of: it lives as long as it is referenced."""


_RUNS = [
    pytest.param(kind, check, id=f"{kind}-{check.__name__.removeprefix('check_')}")
    for kind in STORE_FACTORIES
    for check in CHECKS
    if (kind, check.__name__) != ("memory", NOT_IN_MEMORY)
]


@pytest.mark.parametrize(("kind", "check"), _RUNS)
async def test_the_store_keeps_its_promise(kind: str, check: Check, tmp_path: Path) -> None:
    await check(STORE_FACTORIES[kind](tmp_path))


async def test_a_report_names_what_was_kept_and_what_was_skipped(tmp_path: Path) -> None:
    report = await run_store_conformance(lambda: memory_factory(tmp_path), skip=[NOT_IN_MEMORY])
    assert report.is_passed, report
    assert len(report.passed) == len(CHECKS) - 1
    assert report.skipped == (NOT_IN_MEMORY,)


async def test_a_store_that_does_not_fence_fails_the_checks() -> None:
    class Unfenced(MemoryLog):
        async def append(self, lease: Lease, entries: list[Entry], **more: object) -> None:  # type: ignore[override]
            session = self._sessions.get_or_create(lease.session_id)
            newest = Lease(session_id=lease.session_id, holder="", epoch=session.epoch)
            self.append_now(newest, entries)

    def unfenced() -> OpenStore:
        store = MemoryStore()
        store.log = Unfenced(store._sessions)
        return lambda: store

    report = await run_store_conformance(unfenced, skip=[NOT_IN_MEMORY])
    broken = {check.name for check in report.failed}
    assert "check_an_old_lease_is_fenced" in broken
    assert "check_an_append_consumes_commands_in_one_step" in broken


async def test_a_check_that_does_not_exist_cannot_be_skipped(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="check_nothing"):
        await run_store_conformance(lambda: memory_factory(tmp_path), skip=["check_nothing"])
