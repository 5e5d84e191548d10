"""Whatever a column of SQLite or a field of a lock file holds, every read returns the rest."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from haptera.model.ids import SessionId
from haptera.ports.session_store import Store
from haptera.stores.jsonl.store import JsonlStore
from haptera.stores.sqlite.store import SqliteStore
from haptera.testing.store_conformance.samples import new_session, opened, prompt
from tests.planted_values import EXTREMES, read_everything
from tests.scripted_agents import make_agent

COLUMNS = (
    *("owner", "project", "name", "title", "model", "parent", "native_session_id", "created"),
    *("updated", "head", "epoch", "indexed", "details", "deleted", "noted", "spawned_by"),
)
_READ, _WRITE = "SELECT", "UPDATE session SET"
NUMBERS = (2**63 - 1, -(2**63), -1, 1.5, float("inf"), None, "x", b"\xff", b"[]", b"{}")
DETAILS = tuple(
    b'{"%s":%s}' % (name.encode(), value)
    for name in ("archived", "deleted", "notes", "compacted", "shares", "status", "metadata")
    for value in (b"9223372036854775808", b'"x"', b"[1e300]", b"[[1,2]]", b"-1", b"{}")
)


async def filled(store: Store, name: str) -> SessionId:
    lease = await new_session(store, name=name)
    await store.log.append(lease, [prompt(2, "some words")])
    await store.leases.release(lease)
    return lease.session_id


async def read_around(store: Store, victim: SessionId, neighbour: SessionId) -> None:
    """Read both sessions and the lists: the neighbour is in all of them."""
    agent, _ = make_agent([], store=store, project="p", owner="ana")
    assert neighbour in {each.id for each in await agent.sessions.list(everywhere=True)}
    found = await agent.sessions.search("words", everywhere=True)
    assert neighbour in {each.session.id for each in found}
    await read_everything(agent, victim)
    await read_everything(agent, neighbour)
    assert (await agent.sessions.stats(neighbour)).messages == 1


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_sqlite_spoils_no_other_session(column: str, tmp_path: Path) -> None:
    place = tmp_path / "s.db"

    async def scenario() -> None:
        async with opened(lambda: SqliteStore(place)) as store:
            victim, neighbour = await filled(store, "a"), await filled(store, "b")
            planted = 0
            for value in (*NUMBERS, *(DETAILS if column == "details" else ())):
                with contextlib.closing(apsw.Connection(str(place))) as connection:
                    select = f"{_READ} {column} FROM session WHERE id = ?"
                    before = connection.execute(select, (victim,)).get
                    statement = f"{_WRITE} {column} = ? WHERE id = ?"
                    # The table refuses some values, as it does from any program.
                    with contextlib.suppress(apsw.ConstraintError):
                        connection.execute(statement, (value, victim))
                        planted += 1
                    await read_around(store, victim, neighbour)
                    connection.execute(statement, (before, victim))
            assert planted > 1

    asyncio.run(scenario())


def _states(state: dict[str, object]) -> Iterator[dict[str, object]]:
    record = state["record"]
    assert isinstance(record, dict)
    for name in ("created", "updated", "head", "archived", "deleted", "tags", "shares", "status"):
        for value in EXTREMES:
            yield state | {"record": record | {name: value}}
    for name in ("epoch", "until", "head", "size"):
        for value in EXTREMES:
            yield state | {name: value}


def test_a_field_of_a_lock_file_spoils_no_other_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(lambda: JsonlStore(tmp_path)) as store:
            victim, neighbour = await filled(store, "a"), await filled(store, "b")
        files = [path for path in tmp_path.rglob(f"{victim}*") if path.is_file()]
        (lock,) = [path for path in files if path.suffix != ".jsonl"]
        state = msgspec.json.decode(lock.read_bytes().partition(b"\n")[0])
        for number, planted in enumerate(_states(state)):
            if number % 3:
                continue
            lock.write_bytes(msgspec.json.encode(planted) + b"\n")
            async with opened(lambda: JsonlStore(tmp_path)) as store:
                await read_around(store, victim, neighbour)

    asyncio.run(scenario())


@pytest.mark.parametrize("after", [2**70, 2**63 - 1, 2**32, -1, -(2**70)])
@pytest.mark.parametrize("make", [SqliteStore, JsonlStore])
def test_any_number_can_be_read_after(
    make: Callable[[Path], Store], after: int, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(lambda: make(tmp_path / "s")) as store:
            session_id = await filled(store, "a")
            await filled(store, "b")
            found = [each.seq for each in await store.log.read(session_id, after=after)]
            assert found == ([1, 2] if after < 0 else [])

    asyncio.run(scenario())
