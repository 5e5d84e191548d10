"""Transcripts of native sessions in our stores: the package's own contracts, and what can fail."""

import gc
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk.testing import run_session_store_conformance

from haptera.model.errors import ErrorCode, StoreError
from haptera.ports.session_store import Store
from haptera.providers.claude_agent.transcript_copies import LocalTranscripts
from haptera.providers.claude_agent.transcripts import TranscriptStore
from haptera.stores.memory import MemoryStore
from haptera.stores.postgresql.store import PostgresStore
from haptera.system.clock import SystemClock
from tests.providers.claude_agent.children import (
    FIRST,
    USER,
    Child,
    agent_of,
    emit,
    init,
    result,
    text,
)
from tests.stores.postgresql.server import PostgresServer
from tests.stores.store_factories import STORE_FACTORIES, open_store

pytestmark = pytest.mark.slow


class Stores:
    """Makes stores of one kind, each in a place of its own, and closes them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._made: list[Store] = []

    def store(self) -> Store:
        store = open_store(self._kind, self._folder / str(len(self._made)))
        self._made.append(store)
        return store

    def transcripts(self) -> TranscriptStore:
        store = self.store()
        return TranscriptStore(lambda: store, owner="local", clock=SystemClock())

    async def close(self) -> None:
        for store in self._made:
            await store.close()


@pytest.fixture(params=list(STORE_FACTORIES))
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    made = Stores(request.param, tmp_path)
    yield made
    await made.close()


async def test_the_fourteen_contracts_of_the_package_hold_on_every_store(stores: Stores) -> None:
    make: Any = stores.transcripts
    await run_session_store_conformance(make)


async def test_the_fourteen_contracts_hold_on_postgresql(
    postgres: PostgresServer, emptied_database: str
) -> None:
    store = PostgresStore(postgres.url(emptied_database))
    owners = itertools.count()

    def make() -> Any:  # each in a place of its own: owners do not see each other
        owner = f"owner-{next(owners)}"
        return TranscriptStore(lambda: store, owner=owner, clock=SystemClock())

    await run_session_store_conformance(make)
    await store.close()


async def test_a_line_that_was_stored_is_not_stored_again(stores: Stores) -> None:
    store = stores.store()
    key = {"project_key": "p", "session_id": FIRST}
    first = TranscriptStore(lambda: store, owner="local", clock=SystemClock())
    await first.append(key, [{"type": "user", "uuid": "1"}, {"type": "title"}])
    later = TranscriptStore(lambda: store, owner="local", clock=SystemClock())
    await later.append(key, [{"type": "user", "uuid": "1"}, {"type": "user", "uuid": "2"}])
    kept = await later.load(key)
    assert kept == [{"type": "user", "uuid": "1"}, {"type": "title"}, {"type": "user", "uuid": "2"}]


async def test_transcripts_of_other_owners_are_not_found(stores: Stores) -> None:
    store = stores.store()
    key = {"project_key": "p", "session_id": FIRST}
    ana, ben = (
        TranscriptStore(lambda: store, owner=owner, clock=SystemClock()) for owner in ("ana", "ben")
    )
    await ana.append(key, [{"type": "user", "uuid": "1"}])
    assert await ben.load(key) is None
    assert await ben.list_sessions("p") == []
    await ben.delete(key)
    assert await ana.load(key) is not None


async def test_a_transcript_is_written_where_the_cli_looks_with_its_sub_agents(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    transcripts = TranscriptStore(lambda: store, owner="o", clock=SystemClock(), scope="sessions")
    key = {"project_key": "/somewhere/else", "session_id": FIRST}
    await transcripts.append(key, [{"type": "user", "uuid": "1"}])
    await transcripts.append(
        {**key, "subpath": "subagents/agent-1"}, [{"type": "user", "uuid": "2"}]
    )
    await transcripts.append({**key, "subpath": "../../../evil"}, [{"type": "user", "uuid": "3"}])
    local = LocalTranscripts(tmp_path / "config", tmp_path)
    assert not local.has(FIRST)
    assert await local.restore(transcripts, FIRST)
    assert local.has(FIRST)
    written = sorted(path.name for path in tmp_path.rglob("*.jsonl"))
    assert written == [f"{FIRST}.jsonl", "agent-1.jsonl"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize("session_id", ["../../etc/passwd", "", "nope", "*"])
async def test_an_id_that_is_none_of_the_clis_is_no_path(tmp_path: Path, session_id: str) -> None:
    local = LocalTranscripts(tmp_path, tmp_path)
    store = MemoryStore()
    transcripts = TranscriptStore(lambda: store, owner="o", clock=SystemClock())
    assert not local.has(session_id)
    assert not await local.restore(transcripts, session_id)


class NoTranscripts(MemoryStore):
    """A store that takes sessions, and no transcripts."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0
        append = self.log.append

        async def refuse(lease: Any, entries: Any, **more: Any) -> None:
            if any(entry.kind == "transcript.mirrored" for entry in entries):
                self.refused += 1
                raise StoreError(ErrorCode.FULL, "no space for transcripts")
            await append(lease, entries, **more)

        self.log.append = refuse  # type: ignore[method-assign]


def mirrored(child: Path) -> dict[str, Any]:
    path = child / "home" / ".claude" / "projects" / "x" / f"{FIRST}.jsonl"
    return emit(
        type="transcript_mirror", filePath=str(path), entries=[{"type": "user", "uuid": "u1"}]
    )


@pytest.mark.slow
async def test_a_transcript_that_cannot_be_stored_breaks_no_query(tmp_path: Path) -> None:
    store = NoTranscripts()
    steps = [USER, init(), mirrored(tmp_path), *text("Hello."), result("Hello.")]
    async with agent_of(Child(tmp_path, steps), store=store) as agent:
        answer = await agent.run("Hi")
    assert answer.text == "Hello."
    assert store.refused >= 1


async def test_a_log_that_cannot_be_written_does_break_it(tmp_path: Path) -> None:
    store = MemoryStore()
    append = store.log.append

    async def refuse(lease: Any, entries: Any, **more: Any) -> None:
        if any(entry.kind == "turn.started" for entry in entries):
            raise StoreError(ErrorCode.FULL, "no space at all")
        await append(lease, entries, **more)

    store.log.append = refuse  # type: ignore[method-assign]
    child = Child(tmp_path, [USER, init(), *text("Hello."), result("Hello.")])
    async with agent_of(child, store=store) as agent:
        with pytest.raises(StoreError):
            await agent.run("Hi")


async def test_a_transcript_is_in_the_store_when_the_query_has_ended(tmp_path: Path) -> None:
    store = MemoryStore()
    steps = [USER, init(), mirrored(tmp_path), *text("Hello."), result("Hello.")]
    agent = agent_of(Child(tmp_path, steps), store=store)
    async with agent, agent.session("ana") as session:
        await session.chat("Hi")
        kept = TranscriptStore(lambda: store, owner="local", clock=SystemClock(), scope="sessions")
        lines = await kept.load({"project_key": "", "session_id": FIRST})
    assert lines == [{"type": "user", "uuid": "u1"}]


async def test_an_agent_knows_nothing_of_the_transcripts_of_sessions_that_were_closed(
    tmp_path: Path,
) -> None:
    def known() -> list[TranscriptStore]:
        gc.collect()
        return [thing for thing in gc.get_objects() if isinstance(thing, TranscriptStore)]

    before = len(known())
    steps = [USER, init(), mirrored(tmp_path), *text("Hello."), result("Hello.")]
    async with agent_of(Child(tmp_path, steps), store=MemoryStore()) as agent:
        async with agent.session("ana") as session:
            await session.chat("Hi")
            assert len(known()) > before
        del session
        assert len(known()) <= before


async def test_deleting_a_session_deletes_its_transcript(tmp_path: Path) -> None:
    store = MemoryStore()
    steps = [USER, init(), mirrored(tmp_path), *text("Hello."), result("Hello.")]
    agent = agent_of(Child(tmp_path, steps), store=store)
    kept = TranscriptStore(lambda: store, owner="local", clock=SystemClock(), scope="sessions")
    async with agent, agent.session("ana") as session:
        await session.chat("Hi")
        assert await kept.load({"project_key": "", "session_id": FIRST}) is not None
        await session.delete()
    assert await kept.load({"project_key": "", "session_id": FIRST}) is None
