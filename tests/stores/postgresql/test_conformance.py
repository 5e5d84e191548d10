"""The PostgreSQL store keeps every promise of the store ports."""

import contextlib

import psycopg
import pytest

from haptera.model.ids import SessionId
from haptera.stores.postgresql import leases
from haptera.stores.postgresql.changes import ChangeWatch
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance import CHECKS, Check
from haptera.testing.store_conformance.samples import OWNER, new_session, note
from tests.stores.postgresql.pgbouncer import PgBouncer
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

OTHER_OWNERS = {
    "check_owners_and_projects_are_kept_apart",
    "check_falsy_values_come_back",
    "check_search_stays_with_its_owner_and_project",
}
"""Checks that open sessions of several owners through one store, which one that is bound to an
owner refuses."""

_NAMES = {check.__name__: check for check in CHECKS}
_BOUND = [check for name, check in _NAMES.items() if name not in OTHER_OWNERS]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass over no waiting caller that a busy machine keeps from showing itself."""
    monkeypatch.setattr(leases, "PASS_OVER_SECONDS", 60.0)


def _id(check: Check) -> str:
    return check.__name__.removeprefix("check_")


@pytest.mark.parametrize("check", CHECKS, ids=_id)
async def test_a_store_for_all_owners_keeps_its_promise(
    check: Check, postgres: PostgresServer, emptied_database: str
) -> None:
    await check(lambda: PostgresStore(postgres.url(emptied_database)))


@pytest.mark.parametrize("check", _BOUND, ids=_id)
async def test_a_store_bound_to_one_owner_keeps_its_promise(
    check: Check, postgres: PostgresServer, emptied_database: str
) -> None:
    url = postgres.url(emptied_database, role=APP_ROLE)
    await check(lambda: PostgresStore(url, owner=OWNER))


@pytest.mark.parametrize("check", _BOUND, ids=_id)
async def test_a_store_behind_a_pooler_in_transaction_mode_keeps_its_promise(
    check: Check, pgbouncer: PgBouncer, emptied_database: str
) -> None:
    url = pgbouncer.url(emptied_database, role=APP_ROLE)
    await check(lambda: PostgresStore(url, owner=OWNER))


async def test_behind_a_pooler_nothing_is_left_on_a_connection(
    pgbouncer: PgBouncer, emptied_database: str
) -> None:
    url = pgbouncer.url(emptied_database, role=APP_ROLE)
    store, watcher = PostgresStore(url, owner=OWNER), PostgresStore(url, owner=OWNER)
    lease = await new_session(store)
    async with contextlib.aclosing(watcher.log.follow(lease.session_id)) as pages:
        assert [entry.seq for entry in await anext(pages)] == [1]
        await store.log.append(lease, [note(2)])
        assert [entry.seq for entry in await anext(pages)] == [2]
    assert not watcher._connections.watch.hears_notifications
    with psycopg.connect(pgbouncer.url(emptied_database, role=APP_ROLE)) as connection:
        for statement in (
            "SELECT name FROM pg_prepared_statements",
            "SELECT * FROM pg_listening_channels()",
            "SELECT 1 WHERE coalesce(current_setting('haptera.owner', true), '') <> ''",
        ):
            assert connection.execute(statement.encode()).fetchall() == []
    await store.close()
    await watcher.close()


@pytest.mark.parametrize("text", ["a zero \0", "an escape \x1a0", "half a pair \ud800"])
async def test_a_session_id_that_the_database_cannot_keep_is_of_no_session(
    text: str, postgres: PostgresServer, emptied_database: str
) -> None:
    store, session_id = PostgresStore(postgres.url(emptied_database)), SessionId(text)
    assert await store.log.read(session_id) == []
    assert await store.log.inspect(session_id) == ()
    assert [page async for page in store.log.follow(session_id, after=1)] == []
    assert await store.inbox.pending(session_id) == ()
    assert await store.index.find(OWNER, None, session_id=session_id) is None
    # The first answer names who has come to watch, the second one what has changed since. The
    # store's own watch is polled by its notifiers, too.
    watch = ChangeWatch(store._connections.database)
    assert set(watch.poll_entries([session_id])) == {session_id}
    assert not watch.poll_entries([session_id])
    watch.close()
    await store.log.delete(session_id)
    await store.close()
