"""Connections and servers fail in the middle of appends: nothing acknowledged is lost."""

import asyncio
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from haptera import Agent
from haptera.model.errors import AgentError, ConfigError, ErrorCode, StoreError
from haptera.model.ids import SessionId
from haptera.model.operations.operation import CommandId
from haptera.ports.session_store import Store
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing import Gate, ScriptedProvider, says
from haptera.testing.store_conformance.samples import (
    OWNER,
    PROJECT,
    command,
    new_session,
    note,
    notes,
    prompt,
    seqs_of,
)
from tests.scripted_agents import MODEL
from tests.stores.postgresql.cutting_proxy import CuttingProxy
from tests.stores.postgresql.server import PostgresServer

SESSIONS, APPENDS = 8, 40


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="haptera-proxy-") as name:
        yield Path(name)


async def _fill(store: Store, progress: list[int]) -> SessionId:
    """Append one entry after the other; every one of them is acknowledged or raises."""
    lease = await new_session(store)
    for seq in range(2, APPENDS + 2):
        await store.log.append(lease, [note(seq)])
        progress.append(seq)
    return lease.session_id


async def _reach(progress: list[int], count: int) -> None:
    while len(progress) < count:
        await asyncio.sleep(0.001)  # noqa: TID251 - looks at a count that other tasks raise


async def _check_all(store: Store, sessions: list[SessionId]) -> None:
    for session_id in sessions:
        assert await seqs_of(store, session_id) == list(range(1, APPENDS + 2))
        assert await store.log.inspect(session_id) == ()


async def test_appends_go_on_when_every_connection_is_cut_again_and_again(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    progress: list[int] = []
    async with asyncio.TaskGroup() as group:
        filling = [group.create_task(_fill(store, progress)) for _ in range(SESSIONS)]
        for share in range(1, 9):
            await _reach(progress, share * SESSIONS * APPENDS // 10)
            await asyncio.to_thread(postgres.kill_backends, database)
    await _check_all(store, [task.result() for task in filling])
    await store.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
async def test_appends_go_on_when_the_server_restarts(
    how: signal.Signals, postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    progress: list[int] = []
    async with asyncio.TaskGroup() as group:
        filling = [group.create_task(_fill(store, progress)) for _ in range(SESSIONS)]
        await _reach(progress, SESSIONS * APPENDS // 2)
        await asyncio.to_thread(postgres.stop, how)
        await asyncio.to_thread(postgres.start)
    await _check_all(store, [task.result() for task in filling])
    await store.close()


async def test_an_append_whose_answer_was_lost_is_stored_once(
    postgres: PostgresServer, database: str, socket_folder: Path
) -> None:
    async with CuttingProxy(postgres.folder, socket_folder) as proxy:
        store = PostgresStore(proxy.url(database))
        lease = await new_session(store)
        await store.inbox.put(lease.session_id, command("c1"))
        proxy.lose_replies_after = b"haptera.append"
        await store.log.append(lease, notes(2, 4), consumed=[CommandId("c1")])
        assert proxy.cuts == 1
        assert await seqs_of(store, lease.session_id) == [1, 2, 3, 4]
        assert await store.inbox.pending(lease.session_id) == ()
        await store.close()


async def test_an_append_whose_answer_was_lost_counts_although_the_session_was_taken_over(
    postgres: PostgresServer, database: str, socket_folder: Path
) -> None:
    async with CuttingProxy(postgres.folder, socket_folder) as proxy:
        store, other = PostgresStore(proxy.url(database)), PostgresStore(postgres.url(database))
        lease = await new_session(store)
        proxy.lose_replies_after = b"haptera.append"
        # The statement waits for this lock, so that the take-over comes right behind it.
        with psycopg.connect(postgres.url(database)) as blocker:
            blocker.execute("SELECT 1 FROM haptera.session FOR UPDATE")
            appending = asyncio.ensure_future(store.log.append(lease, [note(2)]))
            await _until_waiting(postgres, database)
            taking = asyncio.ensure_future(_take_over(postgres, database))
            await _until_waiting(postgres, database, count=2)
        await taking
        await appending
        assert await seqs_of(other, lease.session_id) == [1, 2]
        with pytest.raises(StoreError) as caught:
            await store.log.append(lease, [note(3)])
        assert caught.value.code is ErrorCode.FENCED
        await store.close()
        await other.close()


async def _until_waiting(postgres: PostgresServer, database: str, *, count: int = 1) -> None:
    """Wait until statements wait for a lock."""
    waiting = 0
    while waiting < count:
        await asyncio.sleep(0.001)  # noqa: TID251 - asks the server until it is so
        with psycopg.connect(postgres.url(database)) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
            waiting = row[0] if row else 0


async def _take_over(postgres: PostgresServer, database: str) -> None:
    """Give the session to another holder, as after the expiry of its lease."""
    await asyncio.to_thread(
        postgres.execute,
        "UPDATE haptera.session SET epoch = epoch + 1, lease_holder = 'another'",
        database=database,
    )


async def test_a_database_that_cannot_be_reached_is_unavailable(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptera.stores.postgresql.database.TOTAL_WAIT_SECONDS", 0.05)
    store = PostgresStore(f"postgresql://ana:hunter2@/nowhere?host={socket_folder}")
    with pytest.raises(AgentError) as caught:
        await store.log.read(SessionId("x"))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.retryable
    assert "hunter2" not in caught.value.message
    await store.close()


def test_a_url_that_is_none_is_refused_without_showing_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        PostgresStore("postgresql://ana:hunter2@host:port:5/db?nonsense=1")
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert "hunter2" not in str(caught.value)


async def test_a_damaged_entry_harms_itself_alone(postgres: PostgresServer, database: str) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store)
    await store.log.append(lease, notes(2, 6))
    postgres.execute(
        r"UPDATE haptera.entry SET body = '\x7b00ff' WHERE seq = 3",
        "DELETE FROM haptera.entry WHERE seq = 5",
        r"INSERT INTO haptera.command (session, id, body) SELECT key, 'c', '\xff'"
        " FROM haptera.session",
        database=database,
    )
    assert await seqs_of(store, lease.session_id) == [1, 2, 4, 6]
    assert len(await store.log.read(lease.session_id, limit=3)) == 3
    assert await store.inbox.pending(lease.session_id) == ()
    places = [damage.place for damage in await store.log.inspect(lease.session_id)]
    assert places[:2] == ["row 3", "row 6"]
    assert places[2].startswith("command ")
    await store.log.append(lease, [note(7)])
    await store.close()


async def test_an_append_that_the_database_refuses_harms_no_other_of_its_group(
    postgres: PostgresServer, database: str
) -> None:
    postgres.execute(
        "ALTER TABLE haptera.entry ADD CHECK (position('refused'::bytea IN body) = 0)",
        database=database,
    )
    store = PostgresStore(postgres.url(database))
    leases = [await new_session(store) for _ in range(6)]
    with psycopg.connect(postgres.url(database)) as blocker:
        # The first append waits for this lock, so that the others become one group behind it.
        blocker.execute(
            "SELECT 1 FROM haptera.session WHERE id = %s FOR UPDATE", (leases[0].session_id,)
        )
        texts = ["first", "fine", "refused", "fine", "fine", "fine"]
        appends = [
            asyncio.ensure_future(store.log.append(lease, [note(2, text)]))
            for lease, text in zip(leases, texts, strict=True)
        ]
        await _until_waiting(postgres, database)
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    codes = [outcome.code if isinstance(outcome, AgentError) else None for outcome in outcomes]
    assert codes == [None, None, ErrorCode.UNAVAILABLE, None, None, None]
    for lease, code in zip(leases, codes, strict=True):
        assert await seqs_of(store, lease.session_id) == ([1, 2] if code is None else [1])
    await store.close()


async def test_a_log_that_lost_its_end_is_found_searched_and_appended_to(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database))
    lease = await new_session(store, name="cut")
    await store.log.append(lease, [prompt(2, "find me"), *notes(3, 6)])
    postgres.execute("DELETE FROM haptera.entry WHERE seq > 3", database=database)
    assert await store.index.rebuild() == 1
    record = await store.index.find(OWNER, PROJECT, name="cut")
    assert record is not None
    assert record.head == 6
    assert [hit.seq for hit in await store.search.find("find", owner=OWNER)] == [2]
    postgres.execute("UPDATE haptera.session SET indexed = 3", database=database)
    assert [hit.seq for hit in await store.search.find("me", owner=OWNER)] == [2]
    await store.log.append(lease, [note(7)])
    assert await seqs_of(store, lease.session_id) == [1, 2, 3, 7]
    assert [damage.reason for damage in await store.log.inspect(lease.session_id)] == [
        "entries 4 to 6 are missing"
    ]
    await store.close()


async def test_no_connection_is_held_while_models_answer(
    postgres: PostgresServer, database: str
) -> None:
    store = PostgresStore(postgres.url(database), owner=OWNER)
    gates = [Gate() for _ in range(20)]
    provider = ScriptedProvider([[gate, *says("done")] for gate in gates])
    agent = Agent(MODEL, providers=[provider], environment={}, store=store, owner=OWNER)
    sessions = [await agent.session(f"s{number}").open() for number in range(len(gates))]
    for session in sessions:
        await session.send("go")
    for gate in gates:
        await gate.reached.wait()
    with psycopg.connect(postgres.url(database), autocommit=True) as connection:
        # Polls and renewals are statements of a moment; none stays in a transaction.
        held = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%')"
            " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert held is not None
    assert held[0] <= 6
    assert held[1] == 0
    for gate in gates:
        gate.open()
    await agent.close()
    await store.close()
