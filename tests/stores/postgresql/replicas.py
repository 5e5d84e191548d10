"""A server with a replica that every commit waits for, promoted when the server is lost."""

import contextlib
from collections.abc import Iterator
from typing import Self

import psycopg

from tests.stores.postgresql.server import PostgresServer


class ReplicatedServer:
    """A primary server and its replica; a new replica is made of the one that was promoted."""

    def __init__(self, primary: PostgresServer) -> None:
        self.primary = primary
        self.replica = primary

    @classmethod
    @contextlib.contextmanager
    def running(cls, *, synchronous: bool) -> Iterator[Self]:
        """Start both; the replica has applied everything so far."""
        pair = cls(PostgresServer(PostgresServer.new_folder()))
        try:
            pair.primary.create()
            pair.primary.start()
            pair.replicate(synchronous=synchronous)
            yield pair
        finally:
            pair.primary.remove()
            pair.replica.remove()

    def replicate(self, *, synchronous: bool = True) -> None:
        """Make a replica of the primary server."""
        self.replica = PostgresServer(PostgresServer.new_folder())
        self.primary.copy_to(self.replica)
        self.replica.start(hot_standby="on")
        if synchronous:
            self.primary.execute(
                "ALTER SYSTEM SET synchronous_standby_names = '*'",
                "ALTER SYSTEM SET synchronous_commit = 'remote_apply'",
                "SELECT pg_reload_conf()",
            )
            wait_for(self.primary, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")

    def fail_over(self) -> None:
        """Make the replica the primary server; the one before is lost."""
        lost, self.primary = self.primary, self.replica
        self.primary.promote()
        lost.remove()


def wait_for(server: PostgresServer, statement: str) -> None:
    """Ask until there is an answer."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        while not connection.execute(statement.encode()).fetchall():
            pass
