"""A real PostgreSQL for the tests that need one, started once in each test process."""

import shutil
from collections.abc import Iterator

import psycopg
import pytest

from haptera.stores.postgresql.migrations import grant_access, migrate
from tests.fixtures_wire import is_everything_required
from tests.stores.postgresql.pgbouncer import PgBouncer
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

_TEMPLATE = "haptera_template"
PGBOUNCER_MISSING = "pgbouncer is not installed (`apt-get install pgbouncer`; .ci/run does it)"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running server with a role that row-level security applies to."""
    server = PostgresServer(PostgresServer.new_folder())
    try:
        server.create()
        server.start()
        server.execute(f"CREATE ROLE {APP_ROLE} LOGIN", f"CREATE DATABASE {_TEMPLATE}")
        with psycopg.connect(server.url(_TEMPLATE), autocommit=True) as connection:
            migrate(connection)
            grant_access(connection, APP_ROLE)
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def _shared_database(postgres: PostgresServer) -> Iterator[str]:
    with postgres.new_database(_TEMPLATE) as name:
        yield name


@pytest.fixture
def emptied_database(postgres: PostgresServer, _shared_database: str) -> str:
    """A database without sessions, for tests that leave its tables as they are; its name."""
    postgres.execute(
        "TRUNCATE haptera.node, haptera.session, haptera.entry, haptera.command,"
        " haptera.blob, haptera.waiter, haptera.text",
        database=_shared_database,
    )
    return _shared_database


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler in transaction mode before the server."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        if is_everything_required():
            pytest.fail(PGBOUNCER_MISSING, pytrace=False)
        pytest.skip(PGBOUNCER_MISSING)
    pooler = PgBouncer(program, postgres)
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.remove()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """A database of the test's own, with all tables; its name."""
    with postgres.new_database(_TEMPLATE) as name:
        yield name


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out: a row of dots would hide it."""
    left_out = [
        outcome
        for outcome in terminalreporter.getreports("skipped")
        if PGBOUNCER_MISSING in str(outcome.longrepr)
    ]
    if left_out:
        terminalreporter.section("left out")
        terminalreporter.line(f"{len(left_out)} tests behind a pooler: {PGBOUNCER_MISSING}")
