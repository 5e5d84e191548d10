"""Observers in other processes: gapless and without duplicates, wherever they are cut."""

import asyncio
import contextlib
import queue
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from haptera import Agent
from haptera.agent.remote import AgentRemote
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded
from haptera.model.log.turns import PartCheckpoint, PartEnded
from haptera.model.parts import TextPart
from haptera.stores.postgresql import changes
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing.store_conformance.samples import new_session, note
from tests.stores.postgresql.server import APP_ROLE, PostgresServer
from tests.stores.postgresql.streaming_node import NAME, OWNER, pieces

OBSERVERS = 100
ROOT = Path(__file__).resolve().parents[3]


class Observer:
    """Watches a session, leaves after every event, and comes back after the last `seq` it saw."""

    def __init__(self, remote: AgentRemote) -> None:
        self._remote = remote
        self.seqs: list[int] = []
        self.events: list[Entry] = []
        self.texts: dict[str, str] = {}
        self.cuts: list[tuple[str, str]] = []
        """Part, and its text put together, at every cut."""

    async def watch(self) -> None:
        while True:
            after = self.seqs[-1] if self.seqs else 0
            async with contextlib.aclosing(self._remote.events(after=after)) as events:
                event = await anext(events)
            assert isinstance(event, Entry)
            self.take(event)
            if isinstance(event, QueryEnded):
                return

    async def watch_cut_once(self, seen: Sequence[Entry]) -> None:
        """Have seen these before a cut, come back after the last of them, and see the rest."""
        for entry in seen:
            self.take(entry)
        after = self.seqs[-1] if self.seqs else 0
        async with contextlib.aclosing(self._remote.events(after=after)) as events:
            async for event in events:
                assert isinstance(event, Entry)
                self.take(event)
                if isinstance(event, QueryEnded):
                    return

    def take(self, event: Entry) -> None:
        """Put a text together from what is shown of it."""
        self.seqs.append(event.seq)
        self.events.append(event)
        if isinstance(event, PartCheckpoint):
            known = self.texts.get(event.part_id, "")
            assert event.offset == len(known)
            self.texts[event.part_id] = known + event.text
            self.cuts.append((event.part_id, self.texts[event.part_id]))
        elif isinstance(event, PartEnded) and isinstance(event.part, TextPart):
            self.texts[event.part_id] = event.part.text
            self.cuts.append((event.part_id, event.part.text))


async def _start_owner(url: str, which: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.stores.postgresql.streaming_node", url, which),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )


async def test_a_hundred_observers_cut_at_every_event_see_each_once_across_a_restart_of_the_owner(
    postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database, role=APP_ROLE)
    first = await _start_owner(url, "first")
    assert first.stdout is not None
    await first.stdout.readline()
    agents = [
        Agent("scripted/m", environment={}, store=url, owner=OWNER, project="p") for _ in range(4)
    ]
    remotes = [await agent.remote(NAME) for agent in agents]
    observers = [Observer(remotes[number % len(remotes)]) for number in range(OBSERVERS)]
    async with asyncio.TaskGroup() as group:
        for observer in observers:
            group.create_task(observer.watch())
        # Some of them have seen everything so far when the owner dies.
        while not any("first piece 10" in str(watching.texts) for watching in observers):
            await asyncio.sleep(0.01)  # noqa: TID251 - other tasks raise it
        first.kill()
        await first.wait()
        second = await _start_owner(url, "second")
        assert await second.wait() == 0
    final = observers[0].texts
    assert "".join(pieces("second")) in final.values()
    for observer in observers:
        assert observer.seqs == list(range(1, len(observer.seqs) + 1))
        assert observer.seqs == observers[0].seqs
        assert observer.texts == final
        for part, text in observer.cuts:
            assert final[part].startswith(text)
    cuts = sum(len(observer.seqs) for observer in observers)
    assert cuts >= OBSERVERS * 30
    # One that was cut once, at any event, puts the same final text together.
    whole = observers[0].events
    for cut in range(len(whole)):
        observer = Observer(remotes[cut % len(remotes)])
        await observer.watch_cut_once(whole[:cut])
        assert (observer.seqs, observer.texts) == (observers[0].seqs, final), f"cut after {cut}"
    for agent in agents:
        await agent.close()


async def test_notifications_are_hints_and_polling_finds_what_they_did_not_tell(
    postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database)
    store, watcher = PostgresStore(url), PostgresStore(url)
    lease = await new_session(store)
    async with contextlib.aclosing(watcher.log.follow(lease.session_id)) as pages:
        assert [entry.seq for entry in await anext(pages)] == [1]
        await store.log.append(lease, [note(2)])
        assert [entry.seq for entry in await anext(pages)] == [2]
        assert watcher._connections.watch.hears_notifications
        # A writer whose notification is lost is found by polling.
        store._connections.hints.close()
        await store.log.append(lease, [note(3)])
        assert [entry.seq for entry in await anext(pages)] == [3]
    await store.close()
    await watcher.close()


async def test_a_notification_names_no_session(postgres: PostgresServer, database: str) -> None:
    url = postgres.url(database)
    store = PostgresStore(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"LISTEN {changes.CHANNEL}".encode())
        lease = await new_session(store)
        heard = await asyncio.to_thread(
            lambda: next(connection.notifies(timeout=10, stop_after=1)).payload
        )
    assert heard.startswith("e")
    assert lease.session_id not in heard
    await store.close()


def test_one_notification_takes_along_what_changed_while_it_was_on_its_way() -> None:
    asked: queue.SimpleQueue[Callable[[Any], None]] = queue.SimpleQueue()
    sent: list[str] = []
    hints = changes.ChangeHints(asked.put)

    class Connection:
        def execute(self, _: str, values: tuple[str, str]) -> None:
            assert values[0] == changes.CHANNEL
            sent.append(values[1])

    hints.send("e", ["one", "two"])
    notify = asked.get(timeout=10)
    # Until it is sent, it takes along what comes.
    hints.send("e", ["one", "three"])
    hints.send("c", ["one"])
    notify(Connection())
    assert [len(payload.split(",")) for payload in sent] == [4]
    asked.get(timeout=10)(Connection())
    assert len(sent) == 1
    hints.send("e", [f"session {number}" for number in range(1000)])
    asked.get(timeout=10)(Connection())
    assert sent[1] == "*"
    hints.close()
