"""A real PostgreSQL for the tests that need one, started once in each test process."""

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.stores.postgresql.migrations import grant_access, migrate
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

_TEMPLATE = "holdfast_template"


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


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """A database of the test's own, with all tables; its name."""
    with postgres.new_database(_TEMPLATE) as name:
        yield name
