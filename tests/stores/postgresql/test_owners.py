"""Owners are kept apart twice: by a predicate in every statement, and by row-level security.

The tests connect as a role that is neither owner of the tables nor superuser: both would bypass
row-level security. Where the predicate alone is looked at, they connect as the superuser.
"""

import contextlib
from collections.abc import Callable, Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.ids import SessionId, new_session_id
from haptera.ports.session_store import Lease
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import (
    PROJECT,
    command,
    note,
    opening,
    prompt,
)
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

TABLES = ("session", "entry", "command", "blob", "waiter", "text")
OWNERS = ("ana", "ben")


async def _fill(store: PostgresStore, owner: str) -> Lease:
    """Leave something of an owner in every table."""
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, owner)
    await store.log.append(lease, [opening(session_id, name="mine", owner=owner)])
    await store.log.append(lease, [prompt(2, f"the secret of {owner}")])
    await store.inbox.put(session_id, command("c1"))
    await store.blobs.put(session_id, owner.encode())
    await store.search.find("secret", owner=owner)
    return lease


async def _wait_in_line(store: PostgresStore, lease: Lease) -> None:
    """Leave a ticket in the waiting line, as a caller does that was killed while it waited."""
    await store._connections.readers.run(
        lambda connection: store.leases._join(connection, lease.session_id)
    )


async def _seen_of(store: PostgresStore, theirs: Lease, owner: str) -> list[str]:
    """Try every operation on a session of another owner; return those that show something."""
    session_id = theirs.session_id
    shown = {
        "read": await store.log.read(session_id),
        "inspect": await store.log.inspect(session_id),
        "find": await store.index.find(owner, PROJECT, session_id=session_id),
        "find by name": await store.index.find(owner, PROJECT, name="mine"),
        "browse": await store.index.browse(owner, PROJECT),
        "pending": await store.inbox.pending(session_id),
        "search": await store.search.find("secret", owner=owner),
    }
    refused = {
        "acquire": store.leases.acquire(session_id, theirs.holder),
        "renew": store.leases.renew(theirs),
        "append": store.log.append(theirs, [note(3)]),
        "put": store.inbox.put(session_id, command("c9")),
        "put blob": store.blobs.put(session_id, b"x"),
        "get blob": store.blobs.get(session_id, "0" * 64),
    }
    seen = [name for name, found in shown.items() if found]
    for name, attempt in refused.items():
        try:
            await attempt
        except AgentError as error:
            if error.code not in {ErrorCode.NOT_FOUND, ErrorCode.FENCED}:
                seen.append(name)
        else:
            seen.append(name)
    await store.log.delete(session_id)
    await store.leases.release(theirs)
    return seen


@pytest.mark.parametrize("role", [APP_ROLE, "postgres"], ids=["both walls", "predicate alone"])
async def test_a_store_of_one_owner_shows_and_changes_nothing_of_another(
    role: str, postgres: PostgresServer, database: str
) -> None:
    ana, ben = (PostgresStore(postgres.url(database, role=role), owner=name) for name in OWNERS)
    lease = await _fill(ana, "ana")
    assert await _seen_of(ben, lease, "ana") == []
    # Nothing was deleted, released or appended either.
    await ana.log.append(lease, [note(3)])
    assert [item.id for item in await ana.inbox.pending(lease.session_id)] == ["c1"]
    await ana.close()
    await ben.close()


async def test_a_session_of_another_owner_cannot_be_opened_through_a_store(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database, role=APP_ROLE), owner="ana")
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, "h")
    with pytest.raises(AgentError) as caught:
        await store.log.append(lease, [opening(session_id, owner="ben")])
    assert caught.value.code is ErrorCode.ACCESS_DENIED
    await store.close()


@contextlib.contextmanager
def _as_owner(url: str, owner: str | None) -> Iterator[Callable[[str], int]]:
    """Count the rows of tables in a transaction for an owner, without any predicate."""
    with psycopg.connect(url) as connection:
        if owner is not None:
            connection.execute("SELECT set_config('haptera.owner', %s, true)", (f"o:{owner}",))

        def count(table: str) -> int:
            counting = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("haptera", table))
            row = connection.execute(counting).fetchone()
            return row[0] if row else -1

        yield count


async def test_row_level_security_hides_rows_from_statements_without_a_predicate(
    postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database, role=APP_ROLE)
    stores = {owner: PostgresStore(url, owner=owner) for owner in (*OWNERS, "")}
    for owner, store in stores.items():
        lease = await _fill(store, owner)
        await _wait_in_line(store, lease)
    for owner in (*OWNERS, ""):
        with _as_owner(url, owner) as count:
            found = {table: count(table) for table in TABLES}
        assert found == dict.fromkeys(TABLES, 1) | {"entry": 2}, owner
    for stranger in (None, "carl"):
        with _as_owner(url, stranger) as count:
            assert {table: count(table) for table in TABLES} == dict.fromkeys(TABLES, 0)
    with psycopg.connect(url) as connection:
        # After a transaction with an owner the setting is empty, not unset.
        connection.execute("SELECT set_config('haptera.owner', 'o:ana', true)")
        connection.commit()
        row = connection.execute("SELECT count(*) FROM haptera.session").fetchone()
        assert row == (0,)
    for store in stores.values():
        await store.close()


@pytest.mark.parametrize("table", TABLES)
async def test_without_its_policy_a_table_shows_rows_of_others(
    table: str, postgres: PostgresServer, database: str
) -> None:
    """The test above can fail: row-level security is what hides the rows."""
    store = PostgresStore(postgres.url(database, role=APP_ROLE), owner="ana")
    lease = await _fill(store, "ana")
    await _wait_in_line(store, lease)
    await store.close()
    postgres.execute(f"ALTER TABLE haptera.{table} DISABLE ROW LEVEL SECURITY", database=database)
    with _as_owner(postgres.url(database, role=APP_ROLE), "ben") as count:
        assert count(table) > 0


_CALLS = st.lists(
    st.tuples(
        st.sampled_from(OWNERS),
        st.sampled_from(["open", "append", "put", "blob", "delete", "release", "look"]),
        st.integers(0, 3),
    ),
    max_size=25,
)


class _TwoOwners:
    """The sessions of two owners in one database, each reached through the store of either."""

    def __init__(self, url: str) -> None:
        self.stores = {owner: PostgresStore(url, owner=owner) for owner in OWNERS}
        self.project = new_session_id()
        self.leases: dict[Lease, str] = {}
        self.heads: dict[SessionId, int] = {}

    async def call(self, owner: str, name: str, number: int) -> None:
        """Do something as one owner, to a session of any."""
        store = self.stores[owner]
        if name == "open":
            session_id = new_session_id()
            lease = await store.leases.acquire(session_id, owner)
            entry = opening(session_id, owner=owner, project=self.project)
            await store.log.append(lease, [entry])
            self.leases[lease], self.heads[session_id] = owner, 1
            return
        for lease in list(self.leases)[number:][:1]:
            with contextlib.suppress(AgentError):
                await self._touch(store, name, lease, mine=self.leases[lease] == owner)

    async def _touch(self, store: PostgresStore, name: str, lease: Lease, *, mine: bool) -> None:
        session_id = lease.session_id
        is_gone = self.heads[session_id] == 0
        match name:
            case "append":
                await store.log.append(lease, [note(self.heads[session_id] + 1)])
                self.heads[session_id] += 1
                assert mine
            case "put":
                await store.inbox.put(session_id, command("c"))
                assert mine or is_gone
            case "blob":
                await store.blobs.put(session_id, b"x")
                assert mine or is_gone
            case "delete":
                await store.log.delete(session_id)
                self.heads[session_id] *= not mine
            case "release":
                await store.leases.release(lease)
            case _:
                assert mine or not await store.log.read(session_id)

    async def check(self) -> None:
        """Each owner sees all of its own sessions, and nothing of the other's."""
        for owner, store in self.stores.items():
            records = await store.index.browse(owner, self.project)
            own = {lease.session_id for lease, of in self.leases.items() if of == owner}
            assert {item.id for item in records} == {item for item in own if self.heads[item]}
            for lease, of in self.leases.items():
                seqs = [entry.seq for entry in await store.log.read(lease.session_id)]
                head = self.heads[lease.session_id] if of == owner else 0
                assert seqs == list(range(1, head + 1))

    async def close(self) -> None:
        for store in self.stores.values():
            await store.close()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=_CALLS)
async def test_no_sequence_of_calls_shows_one_owner_anything_of_another(
    calls: list[tuple[str, str, int]], postgres: PostgresServer, database: str
) -> None:
    owners = _TwoOwners(postgres.url(database, role=APP_ROLE))
    try:
        for owner, name, number in calls:
            await owners.call(owner, name, number)
        await owners.check()
    finally:
        await owners.close()
