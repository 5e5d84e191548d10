"""Nodes are killed, stopped and cut off; the history of every session is whole all the same."""

import random
from pathlib import Path

import pytest

from tests.fixtures_report import Report
from tests.stores.postgresql.chaos.run import OF_SERVERS, ChaosRun
from tests.stores.postgresql.server import PostgresServer

SEED = 20261117


@pytest.mark.sweep
async def test_nothing_is_lost_doubled_or_left_unfinished_while_nodes_fail(
    postgres: PostgresServer, database: str, tmp_path: Path, report: Report
) -> None:
    run = ChaosRun(postgres, database, folder=tmp_path, seed=SEED)
    verdict = await run.run(30)
    report(f"chaos, 30 s: {run.happened}, {verdict}")
    assert verdict.is_clean, verdict
    assert verdict.takeovers >= 20
    assert verdict.effects >= 200


@pytest.mark.sweep
async def test_the_checker_finds_what_happens_without_the_fence(
    postgres: PostgresServer, database: str, tmp_path: Path, report: Report
) -> None:
    run = ChaosRun(postgres, database, folder=tmp_path, seed=SEED)
    run.switch_fence_off()
    verdict = await run.run(45, until_stale=True)
    report(f"chaos without the fence: {run.happened}, {len(verdict.stale)} stale writes")
    assert verdict.stale


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_nothing_is_lost_in_ten_minutes_of_failing_nodes(
    postgres: PostgresServer, database: str, tmp_path: Path, report: Report
) -> None:
    run = ChaosRun(postgres, database, folder=tmp_path, seed=random.randrange(2**32))
    verdict = await run.run(600)
    report(f"chaos, 600 s: {run.happened}, {verdict}")
    assert verdict.is_clean, verdict
    assert verdict.takeovers >= 400
    assert verdict.effects >= 4000


@pytest.mark.slow
async def test_nothing_is_lost_and_no_caller_waits_while_the_server_fails(
    postgres: PostgresServer, database: str, tmp_path: Path, report: Report
) -> None:
    await _let_the_server_fail(postgres, database, tmp_path, report=report, seconds=6)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_nothing_is_lost_in_ten_minutes_of_a_failing_server(
    postgres: PostgresServer, database: str, tmp_path: Path, report: Report
) -> None:
    await _let_the_server_fail(postgres, database, tmp_path, report=report, seconds=600)


async def _let_the_server_fail(
    postgres: PostgresServer, database: str, folder: Path, *, report: Report, seconds: float
) -> None:
    seed = random.randrange(2**32)
    run = ChaosRun(postgres, database, folder=folder, seed=seed, troubles=OF_SERVERS)
    verdict = await run.run(seconds)
    report(f"chaos of the server, {seconds:g} s: {run.happened}, {verdict}")
    assert verdict.is_clean, verdict
    assert verdict.effects >= 5 * seconds
    overtime = folder / "overtime"
    assert not overtime.exists(), overtime.read_text()
