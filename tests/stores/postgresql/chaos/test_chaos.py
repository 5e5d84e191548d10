"""Nodes are killed, stopped and cut off; the history of every session is whole all the same."""

import random
from pathlib import Path

import psycopg
import pytest

from haptera.stores.postgresql.migrations import grant_access, migrate
from tests.fixtures_report import Report
from tests.stores.postgresql.chaos.run import OF_PAIRS, OF_SERVERS, ChaosRun
from tests.stores.postgresql.replicas import ReplicatedServer
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

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


@pytest.mark.sweep
async def test_the_checker_finds_a_node_that_gives_nothing_back(
    postgres: PostgresServer, database: str, tmp_path: Path, report: Report
) -> None:
    run = ChaosRun(postgres, database, folder=tmp_path, seed=SEED, fence="keeping")
    verdict = await run.run(5)
    report(f"chaos of nodes that give nothing back: {len(verdict.stuck)} sessions are stuck")
    assert verdict.stuck


@pytest.mark.sweep
async def test_nothing_is_lost_when_servers_are_lost(tmp_path: Path, report: Report) -> None:
    await _lose_servers(tmp_path, report, seconds=20)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_nothing_is_lost_in_ten_minutes_of_lost_servers(
    tmp_path: Path, report: Report
) -> None:
    await _lose_servers(tmp_path, report, seconds=600)


async def _lose_servers(folder: Path, report: Report, *, seconds: float) -> None:
    """Let servers be lost whose commits wait for a replica, and that replica be promoted."""
    seed = random.randrange(2**32)
    with ReplicatedServer.running(synchronous=True) as pair:
        pair.primary.execute(f"CREATE ROLE {APP_ROLE} LOGIN")
        with psycopg.connect(pair.primary.url(), autocommit=True) as connection:
            migrate(connection)
            grant_access(connection, APP_ROLE)
        run = ChaosRun(
            pair.primary, "postgres", folder=folder, seed=seed, troubles=OF_PAIRS, pair=pair
        )
        verdict = await run.run(seconds)
    report(f"chaos of lost servers, {seconds:g} s: {run.happened}, {verdict}")
    assert verdict.is_clean, verdict
    assert run.happened["fail over"]
    assert verdict.effects >= seconds
    overtime = folder / "overtime"
    assert not overtime.exists(), overtime.read_text()


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
