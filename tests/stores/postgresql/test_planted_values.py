"""Whatever a column of PostgreSQL holds, and however long a value is, reads return the rest."""

import random
import subprocess
import sys
import threading

import psycopg
import pytest
from psycopg import sql

from haptera import Agent, AgentError, ErrorCode
from haptera.model.ids import SessionId
from haptera.ports.session_store import Store
from haptera.stores.postgresql.changes import ChangeHints
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import new_session, opened, prompt
from tests.planted_values import planted_logs, read_everything
from tests.scripted_agents import make_agent
from tests.stores.postgresql.server import PostgresServer

NUMBERS = (2**63 - 1, -(2**63), -1, None)
TEXTS = (None, "", "x" * 5000, "\x1a", "\x1a0", "é")
DETAILS = (
    *("[]", "7", '"x"', "null", "{}", '{"notes": 5}', '{"notes": ["x", 1, null]}'),
    *('{"note 1": "x", "note 2": 2}', '{"share 1": 7}', '{"share 1": {"id": 1}}'),
    *(f'{{"archived": 1{"0" * 5000}}}', '{"deleted": "x"}', '{"status": 7}', '{"tags": 7}'),
    *(f'{{"archived": 1{"0" * 30}}}', '{"compacted": [-1, 99999999999999999999999]}'),
)
COLUMNS: dict[tuple[str, str], tuple[object, ...]] = {
    **{("session", each): NUMBERS for each in ("created", "updated", "head", "indexed", "epoch")},
    **{("session", each): TEXTS for each in ("name", "title", "model", "parent", "project")},
    ("session", "details"): DETAILS,
    ("entry", "seq"): NUMBERS,
    ("entry", "body"): (b"", b"[]", b"{", b"\xff", b'{"kind":"x","id":"y","time":1e30,"seq":1}'),
    ("text", "seq"): NUMBERS,
    ("text", "message_id"): TEXTS,
}


async def filled(store: Store, name: str) -> SessionId:
    lease = await new_session(store, name=name)
    await store.log.append(lease, [prompt(2, "some words")])
    await store.leases.release(lease)
    return lease.session_id


async def read_around(agent: Agent, victim: SessionId, neighbour: SessionId) -> None:
    """Read both sessions and the lists: the neighbour is in all of them."""
    assert neighbour in {each.id for each in await agent.sessions.list(everywhere=True)}
    found = await agent.sessions.search("words", everywhere=True)
    assert neighbour in {each.session.id for each in found}
    await read_everything(agent, victim)
    assert (await agent.sessions.stats(neighbour)).messages == 1


@pytest.mark.parametrize("place", COLUMNS, ids=".".join)
async def test_a_column_spoils_no_other_session(
    place: tuple[str, str], postgres: PostgresServer, emptied_database: str
) -> None:
    table, column = map(sql.Identifier, place)
    url = postgres.url(emptied_database)
    read = sql.SQL("SELECT {} FROM haptera.{} WHERE {} = %s").format
    # The last entry: both cannot have one place.
    last = sql.SQL(" AND seq > 1" if place[0] == "entry" else "")
    write = sql.SQL("UPDATE haptera.{} SET {} = %s WHERE {} = %s{}").format
    planted = 0
    async with opened(lambda: PostgresStore(url)) as store:
        victim, neighbour = await filled(store, "a"), await filled(store, "b")
        agent, _ = make_agent([], store=store, owner="ana", project="p")
        await agent.sessions.search("words", everywhere=True)  # the index has both now
        for value in COLUMNS[place]:
            with psycopg.connect(url, autocommit=True) as connection:
                find = "SELECT key FROM haptera.session WHERE id = %s"
                (key,) = connection.execute(find, (victim,)).fetchone() or (None,)
                session = sql.Identifier("key" if place[0] == "session" else "session")
                (before,) = connection.execute(read(column, table, session), (key,)).fetchone() or (
                    None,
                )
                if place == ("session", "details"):
                    before = "{}"
                try:
                    connection.execute(write(table, column, session, last), (value, key))
                    planted += 1
                except psycopg.Error:
                    continue  # the table refuses it, as it does from any program
                await read_around(agent, victim, neighbour)
                if planted and place[0] != "entry":
                    connection.execute(write(table, column, session, last), (before, key))
    assert planted


async def test_every_read_answers_whatever_a_field_holds(
    postgres: PostgresServer, emptied_database: str
) -> None:
    async with opened(lambda: PostgresStore(postgres.url(emptied_database))) as store:
        agent, _ = make_agent([], store=store, project="p")
        kept = set()
        for planted in planted_logs(sample=199):
            lease = await store.leases.acquire(planted.session_id, "test")
            await store.log.append(lease, planted.entries)
            await store.leases.release(lease)
            kept.add(planted.session_id)
        listed = await agent.sessions.list(limit=None, children=True)
        archived = await agent.sessions.list(limit=None, children=True, archived=True)
        assert len({each.id for each in (*listed, *archived)}) > len(kept) * 0.9
        await agent.sessions.search("ba")
        for session_id in kept:
            await read_everything(agent, session_id)


async def test_a_project_that_no_index_takes_is_refused_by_its_name(
    postgres: PostgresServer, emptied_database: str
) -> None:
    project = random.Random(1).randbytes(3000).hex()
    async with opened(lambda: PostgresStore(postgres.url(emptied_database))) as store:
        with pytest.raises(AgentError) as refused:
            await new_session(store, name="a", project=project)
    assert refused.value.code is ErrorCode.CONFIG_INVALID


async def test_a_word_behind_many_others_is_found(
    postgres: PostgresServer, emptied_database: str
) -> None:
    many = " ".join(f"w{number:09d}" for number in range(70_000))
    async with opened(lambda: PostgresStore(postgres.url(emptied_database))) as store:
        lease = await new_session(store, name="a")
        await store.log.append(lease, [prompt(2, f"first {many} hidden"), prompt(3, "hidden")])
        found = await store.search.find("hidden", owner="ana")
        assert {each.seq for each in found} == {2, 3}
        assert [each.seq for each in await store.search.find("first hidden", owner="ana")] == [2]


UNCLOSED = """
import asyncio, sys
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import new_session, prompt

async def leave():
    store = PostgresStore(sys.argv[1])
    lease = await new_session(store, name="a")
    for seq in range(2, 40):
        await store.log.append(lease, [prompt(seq, "x")])

asyncio.run(leave())
"""


def test_a_store_that_is_never_closed_ends_without_a_traceback(
    postgres: PostgresServer, emptied_database: str
) -> None:
    for _ in range(3):
        command = [sys.executable, "-c", UNCLOSED, postgres.url(emptied_database)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        postgres.execute("TRUNCATE haptera.session, haptera.entry", database=emptied_database)
        assert "Traceback" not in ended.stderr, ended.stderr


def test_hints_end_with_a_program_that_does_not_close_its_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)

    def submit(_: object) -> None:
        # What an executor says once the interpreter shuts down.
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    hints = ChangeHints(submit)
    hints.send("e", ["a"])
    assert hints._thread is not None
    hints._thread.join(10)
    assert not hints._thread.is_alive()
    assert raised == []
