"""Every statement keeps owners apart by itself: without its predicate, each shows or changes rows.

The statements run as the superuser, whom row-level security does not bind, for an owner who has
nothing. Each is run as it is, and then with its predicate taken out: the first must show and change
nothing of another owner's, the second must be noticed. Everything happens in transactions that are
rolled back.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from haptera.model.entry_bytes import encode_entry
from haptera.model.ids import SessionId, new_session_id
from haptera.ports.session_store import Lease
from haptera.stores.postgresql import changes, index, leases, log, search, store
from haptera.stores.postgresql.group_writer import Append, EntryRow, append_group
from haptera.stores.postgresql.store import PostgresStore
from haptera.stores.stored_records import blob_name
from haptera.testing.store_conformance.samples import command, note, opening, prompt
from tests.stores.postgresql.server import PostgresServer

MODULES = {"changes": changes, "index": index, "leases": leases, "log": log}
MODULES |= {"search": search, "store": store}
TABLES = ("session", "entry", "command", "blob", "waiter", "text")
HERS, HIS = "ana", "ben"
_PREDICATE = re.compile(r"%s::text IS NULL OR (?:\w\.)?owner = %s")
_VERBS = ("SELECT", "UPDATE", "DELETE", "INSERT")
_IN_FUNCTION = "(p_owner IS NULL OR"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The session of the owner whose rows must stay hidden."""

    id: SessionId
    lease: Lease
    node: str
    key: int
    indexed: int
    head: int
    blob: str
    ticket: int


Values = Callable[[Target], Sequence[Any]]

STATEMENTS: dict[str, Values] = {
    "changes._HEADS": lambda hers: ([hers.id], HIS, HIS),
    "changes._PENDING": lambda _hers: (HIS, HIS),
    "index._FIND": lambda hers: (HERS, None, None, HIS, HIS, hers.id, "mine", hers.id),
    "index._BROWSE": lambda _hers: (HERS, None, None, HIS, HIS),
    "index._KEYS": lambda _hers: (HERS, None, None, HIS, HIS),
    "index._SAVE": lambda hers: (
        *(HERS, "p", "other", "t", "m", None, None, 1, 1, hers.head, "{}", False, False, 0),
        *(hers.id, hers.head, HIS, HIS),
    ),
    "index._ALL": lambda _hers: (HIS, HIS),
    "index._HEAD": lambda hers: (hers.id, HIS, HIS),
    "leases._HOLDER": lambda hers: (hers.lease.epoch, hers.lease.holder, hers.id, HIS, HIS),
    "log._READ": lambda hers: (hers.id, 0, HIS, HIS, HIS, HIS, 10),
    "log._COMMANDS": lambda hers: (hers.id, HIS, HIS),
    "log._HEAD": lambda hers: (hers.id, HIS, HIS),
    "search._BEHIND": lambda _hers: (HERS, None, None, HIS, HIS),
    "search._FIND": lambda _hers: (
        *("'secret'", HERS, HERS, None, None, HIS, HIS, "'secret'", 10),
    ),
    "store._PENDING": lambda hers: (hers.id, HIS, HIS, HIS, HIS),
    "store._BLOB": lambda hers: (hers.id, hers.blob, HIS, HIS, HIS, HIS),
}
"""Every statement of the store with a predicate, and values that ask for another owner's rows."""

Connection = psycopg.Connection[Any]
Probe = Callable[[Connection, Target], bool]


def _calling(call: str, values: Values, *, hidden: Any = None) -> Probe:
    """Return a probe that calls a function; it shows something unless its value is `hidden`."""

    def probe(connection: Connection, hers: Target) -> bool:
        row = connection.execute(call.encode(), values(hers)).fetchone()
        return row is not None and row[0] != hidden

    return probe


def _append(connection: Connection, hers: Target) -> bool:
    entry = note(hers.head + 1)
    row = EntryRow(entry.seq, entry.id, entry.kind, entry.time, False, encode_entry(entry))
    append_group(connection, HIS, [Append(lease=hers.lease, rows=[row])], again=False)
    return False  # what it writes is seen in the tables


def _join_line(connection: Connection, hers: Target) -> bool:
    """Look whether a ticket that is long out of date is removed.

    The function finds no session of another owner's by itself, so that is broken here, too.
    """
    with _planted(connection, "session_key"):
        connection.execute(
            "INSERT INTO haptera.waiter (session, owner, seen)"
            " VALUES (%s, %s, clock_timestamp() - interval '2 hours')",
            (hers.key, HERS),
        )
        connection.execute("SELECT haptera.join_line(%s, %s)", (HIS, hers.id))
        row = connection.execute(
            "SELECT count(*) FROM haptera.waiter WHERE seen < clock_timestamp() - interval '1 h'"
        ).fetchone()
        # What this added is no change of hers.
        connection.execute("DELETE FROM haptera.waiter WHERE ticket > %s", (hers.ticket,))
    return row is None or row[0] == 0


FUNCTIONS: dict[str, Probe] = {
    "session_key": _calling("SELECT haptera.session_key(%s, %s)", lambda hers: (HIS, hers.id)),
    "renew_node": _calling(
        "SELECT held FROM haptera.renew_node(%s, %s, 'p', 10, 99)",
        lambda hers: (HIS, hers.node),
        hidden=[],
    ),
    "acquire": _calling(
        "SELECT verdict FROM haptera.acquire(%s, %s, 'h', 'n', NULL, NULL, 1)",
        lambda hers: (HIS, hers.id),
        hidden="foreign",
    ),
    "renew_leases": _calling(
        "SELECT held FROM haptera.renew_leases(%s, %s, 'p', 10, 'another')",
        lambda hers: (HIS, hers.node),
        hidden=[],
    ),
    "acquire_lease": _calling(
        "SELECT verdict FROM haptera.acquire_lease(%s, %s, 'h', 'n', 'r', NULL, NULL, 1)",
        lambda hers: (HIS, hers.id),
        hidden="foreign",
    ),
    "release_lease": _calling(
        "SELECT haptera.release_lease(%s, %s, %s)",
        lambda hers: (HIS, hers.id, hers.lease.epoch),
        hidden=True,
    ),
    "join_line": _join_line,
    "append": _append,
    "claim_unowned": _calling(
        "SELECT id FROM haptera.claim_unowned(%s, 10, 10, 1, 1, NULL)", lambda _hers: (HIS,)
    ),
    "delete_session": _calling(
        "SELECT haptera.delete_session(%s, %s)", lambda hers: (HIS, hers.id), hidden=""
    ),
    "put_command": _calling(
        "SELECT haptera.put_command(%s, %s, 'command', '')",
        lambda hers: (HIS, hers.id),
        hidden=False,
    ),
    "index_texts": _calling(
        "SELECT haptera.index_texts(%s, %s, %s, %s, '{}', '{}', '{}', '{}', '{}')",
        lambda hers: (HIS, hers.key, hers.indexed, hers.head),
        hidden=False,
    ),
}
"""Every function with a predicate of its own, and what shows that it keeps to it."""


def _statement(name: str) -> str:
    module, _, constant = name.partition(".")
    text: str = getattr(MODULES[module], constant)
    return text


def _definition(connection: Connection, function: str) -> str:
    row = connection.execute(
        "SELECT pg_get_functiondef(%s::regproc)", (f"haptera.{function}",)
    ).fetchone()
    assert row is not None
    text: str = row[0]
    return text


@contextmanager
def _planted(connection: Connection, function: str) -> Iterator[None]:
    """Take the predicate out of a function."""
    whole = _definition(connection, function)
    without = whole.replace(_IN_FUNCTION, "(true OR p_owner IS NULL OR")
    assert without != whole
    connection.execute(without.encode())
    yield
    connection.execute(whole.encode())


def _rows_of_hers(connection: Connection) -> list[Any]:
    counting = sql.SQL(
        "SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {} t WHERE owner = 'ana'"
    )
    tables = [sql.Identifier("haptera", table) for table in TABLES]
    return [connection.execute(counting.format(table)).fetchone() for table in tables]


def _is_noticed(connection: Connection, probe: Probe, hers: Target) -> bool:
    """Whether a probe shows something of hers, or changes it; it is undone."""
    with connection.transaction(force_rollback=True):
        before = _rows_of_hers(connection)
        shows = probe(connection, hers)
        return shows or _rows_of_hers(connection) != before


async def _fill(url: str) -> Target:
    """Leave something of hers in every table: unfinished, unindexed, its holder gone."""
    hers = PostgresStore(url, owner=HERS)
    session_id = new_session_id()
    lease = await hers.leases.acquire(session_id, HERS)
    await hers.log.append(lease, [opening(session_id, name="mine", owner=HERS)])
    await hers.log.append(lease, [prompt(2, "the secret of hers")])
    await hers.inbox.put(session_id, command("c1"))
    await hers.blobs.put(session_id, b"hers")
    await hers.search.find("secret", owner=HERS)
    await hers.log.append(lease, [note(3)])
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT key, indexed, head, lease_node FROM haptera.session WHERE id = %s",
            (session_id,),
        ).fetchone()
        assert row is not None
        waiter = connection.execute(
            "INSERT INTO haptera.waiter (session, owner, seen) VALUES (%s, %s, clock_timestamp())"
            " RETURNING ticket",
            (row[0], HERS),
        ).fetchone()
        assert waiter is not None
        await hers.close()
        # As it was while she held it, except that her node has gone.
        connection.execute(
            "UPDATE haptera.session SET lease_holder = %s, lease_node = %s WHERE id = %s",
            (lease.holder, row[3], session_id),
        )
    return Target(
        id=session_id,
        lease=lease,
        node=row[3],
        key=row[0],
        indexed=row[1],
        head=row[2],
        blob=blob_name(b"hers"),
        ticket=waiter[0],
    )


def _running(statement: str, values: Values) -> Probe:
    def probe(connection: Connection, hers: Target) -> bool:
        cursor = connection.execute(statement.encode(), values(hers))
        return cursor.description is not None and bool(cursor.fetchall())

    return probe


async def test_each_statement_keeps_owners_apart_and_none_does_without_its_predicate(
    postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database)
    hers = await _fill(url)
    with psycopg.connect(url) as connection:
        for name, values in STATEMENTS.items():
            whole = _statement(name)
            without = whole.replace("%s::text IS NULL OR", "true OR %s::text IS NULL OR")
            assert not _is_noticed(connection, _running(whole, values), hers), name
            assert _is_noticed(connection, _running(without, values), hers), f"{name}, planted"


async def test_each_function_keeps_owners_apart_and_none_does_without_its_predicate(
    postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database)
    hers = await _fill(url)
    with psycopg.connect(url) as connection:
        for name, probe in FUNCTIONS.items():
            assert not _is_noticed(connection, probe, hers), name
            assert _is_noticed(connection, _with_fault(name), hers), f"{name}, planted"


def _with_fault(function: str) -> Probe:
    def probe(connection: Connection, hers: Target) -> bool:
        with _planted(connection, function):
            return FUNCTIONS[function](connection, hers)

    return probe


def test_every_statement_with_a_predicate_is_tried() -> None:
    """A new statement, in any module of the store, must be added above."""
    found = {
        f"{name}.{constant}"
        for name, module in MODULES.items()
        for constant, text in vars(module).items()
        if isinstance(text, str) and text.startswith(_VERBS) and _PREDICATE.search(text)
    }
    assert found == set(STATEMENTS)
    for path in Path(store.__file__).parent.glob("*.py"):
        if path.stem not in MODULES:
            assert not _PREDICATE.search(path.read_text("utf-8")), path.stem


def test_every_function_with_a_predicate_is_tried(postgres: PostgresServer, database: str) -> None:
    with psycopg.connect(postgres.url(database)) as connection:
        rows = connection.execute(
            "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'haptera' AND position(%s IN p.prosrc) > 0",
            (_IN_FUNCTION,),
        ).fetchall()
    assert {row[0] for row in rows} == set(FUNCTIONS)
