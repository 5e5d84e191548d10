"""Imports under attack: whatever a file holds, it is a conversation to read and nothing else."""

import io
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from haptera import Agent, AgentError, AgentSession, ErrorCode, SessionError, tool
from haptera.access.worker import SessionWorker, can_go_on
from haptera.cli.session_texts import short_time, shown_part
from haptera.cli.terminal import safe_line
from haptera.formats.archive_adoption import KEPT_SETTINGS
from haptera.formats.formats import WRITTEN_FORMATS
from haptera.model.approvals import NO_FACTS
from haptera.model.entry_bytes import decode_entry
from haptera.model.errors import StoreError
from haptera.model.ids import EntryId, MessageId, SessionId, new_session_id
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.log.entry import Entry
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.tools import ToolEnded, ToolWaiting
from haptera.model.messages import UserMessage
from haptera.model.parts import MediaPart
from haptera.model.settings import Settings
from haptera.ports.session_store import Store
from haptera.stores.memory import MemoryStore
from haptera.stores.postgresql.store import PostgresStore
from haptera.stores.stored_records import blob_name
from haptera.testing import FakeClock, says
from haptera.testing.scripted_provider import ScriptedProvider
from tests.attacks.hostile_imports import SETTINGS, hostile_log, packed
from tests.scripted_agents import MODEL, failure_of, make_agent
from tests.server.serving import serving
from tests.stores.postgresql.server import PostgresServer
from tests.stores.store_factories import open_store

PROJECT = "/home/ana/house"
KINDS = ("memory", "sqlite", "jsonl")
_WATCHED = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
_CONTROL = frozenset(map(chr, (*range(9), *range(11, 32), *range(127, 160))))
_CODE = (".py", ".pyc", ".so")


class Watch:
    """What the process does while it is on: processes that begin, files that are opened."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._hear)  # for good: a hook cannot be taken out again

    def _hear(self, event: str, told: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in _WATCHED or (event == "open" and self._is_outside(told[0])):
            self.seen.append(f"{event} {told[:2]!r}")

    def _is_outside(self, path: object) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False  # a descriptor that is open already
        full = str(Path(os.fsdecode(path)).resolve())
        # A module that is imported late is code of this machine.
        is_code = full.endswith(_CODE) or full in sys.path
        return not is_code and not full.startswith(str(self.folder))

    @contextmanager
    def on(self, folder: Path) -> Iterator[None]:
        self.folder, self.seen = folder, []
        try:
            yield
        finally:
            self.folder = None
        assert not self.seen


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@tool
def work(path: str = "") -> str:
    """Fail: no call of an import is ever run."""
    raise AssertionError(path)


def agent_on(store: Store, folder: Path, **options: Any) -> tuple[Agent, ScriptedProvider]:
    """Return an agent that has a workspace and its snapshots, and that no model answers."""
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    given = {"project": PROJECT, "tools": [work], "denied_tools": ["shell"], **options}
    return make_agent([], store=store, workspace=workspace, **{**given, "snapshots": True})


async def imported(agent: Agent, archive: bytes) -> str | None:
    """Import an archive; None when it is refused, which only an `AgentError` may do."""
    try:
        made = await agent.sessions.import_from(io.BytesIO(archive))
    except AgentError:
        return None
    return made.session.id


async def refuses_to_resume(session: AgentSession) -> None:
    assert not can_go_on(session.unfinished)
    assert session.unfinished.query_id is None
    assert not session.unfinished.calls
    assert not session.unfinished.inputs
    assert not session.unfinished.approvals
    with pytest.raises(AgentError) as caught:
        await session.resume()
    assert caught.value.code is ErrorCode.NOTHING_TO_SEND


def other_settings(settings: Settings) -> dict[str, Any]:
    return {
        name: getattr(settings, name)
        for name in settings.__struct_fields__
        if name not in KEPT_SETTINGS
    }


async def look_at(agent: Agent, session_id: str, random: Random) -> None:
    """Do with an imported session what its owner does without asking a model."""
    async with agent.session(session_id, must_exist=True) as session:
        await refuses_to_resume(session)
        assert other_settings(session.settings) == other_settings(agent.settings)
        for message in random.sample(session.messages, min(2, len(session.messages))):
            with suppress(SessionError):  # a summary is no place to go back to
                await session.rewind(to=message.id, files=True, dry_run=True)
                await session.rewind(to=message.id)
            await refuses_to_resume(session)
        for _ in range(3):
            with suppress(SessionError):  # none that could be taken back
                await session.undo_rewind()
            await refuses_to_resume(session)
    found = await agent.sessions.get(session_id)
    assert (found.status, found.error_message) == (found.phase, found.error)
    assert found.workflow_id is None
    assert not any(name.startswith("imported_") for name in found.metadata)
    messages = await agent.sessions.messages(session_id)
    lines = [f"{safe_line(found.title)}  ({found.id}, {found.model})"]
    for each in messages:
        lines += [short_time(each.time), *map(shown_part, each.message.parts)]
    assert not _CONTROL & set("".join(lines))
    for name in ("archive", *random.sample(sorted(WRITTEN_FORMATS), 2)):
        async for _ in agent.sessions.export(session_id, to=name):
            pass


async def restarts_without_work(agent: Agent) -> None:
    worker = SessionWorker(agent.sessions, lambda query: agent.session(query.session_id))
    assert await worker.look() == 0
    await worker.close()
    found = await agent.sessions.list(everywhere=True)
    assert {each.status for each in found} <= {"idle", "failed"}


@asynccontextmanager
async def used(store: Store) -> AsyncIterator[Store]:
    try:
        yield store
    finally:
        await store.close()


def a_store(kind: str, folder: Path) -> AbstractAsyncContextManager[Store]:
    return used(open_store(kind, folder))


async def survive(watch: Watch, store: Store, folder: Path, seeds: range) -> int:
    """Import hostile logs into one store; returns how many were taken in."""
    canary = folder.parent / f"{folder.name}-canary"
    canary.write_text("untouched")
    taken = 0
    agent, provider = agent_on(store, folder)
    later = FakeClock(start_ms=FakeClock().time_ms() + 60_000)
    again, _ = agent_on(store, folder, clock=later)  # it reads its configuration now
    first = await imported(agent, packed(hostile_log(Random(0), str(canary), lambda *_: None)))
    assert first is not None
    await look_at(agent, first, Random(0))  # what is imported late is imported now
    with watch.on(folder):
        for seed in seeds:
            random = Random(seed)
            archive = packed(hostile_log(random, str(canary)), b'{"id":"e","kind":"x"}')
            session_id = await imported(agent, archive)
            if session_id is not None:
                taken += 1
                await look_at(agent, session_id, random)
        await restarts_without_work(again)
    assert not provider.requests
    mallory, _ = agent_on(store, folder, owner="mallory")
    assert not await mallory.sessions.list(everywhere=True)
    assert canary.read_text() == "untouched"
    return taken


def cut_off(*, is_started: bool, rests: bool = False, waits: bool = False) -> list[Entry]:
    """Write a session whose only query was cut off at its only call."""
    at = {"time": 1_700_000_000_000, "query_id": "qry_1", "turn_id": "trn_1"}
    said = {"role": "user", "id": "msg_1", "parts": [{"type": "text", "text": "go"}]}
    call = {"type": "tool_call", "call_id": "c", "name": "work", "arguments": {"path": "/x"}}
    asked = {"approval_id": "apr_1", "call_id": "c", "tool": "work"}
    session_id = new_session_id()
    log: list[dict[str, Any]] = [
        {"kind": "session.opened", "session_id": session_id, "settings": {"model": MODEL}},
        {"kind": "query.started", "message": said},
        {"kind": "turn.started", "message_id": "msg_2", "provider": "scripted", "model": "one"},
        {"kind": "part.started", "part_id": "prt_1", "part_kind": "tool_call"},
        {"kind": "part.ended", "part_id": "prt_1", "part": call},
        {"kind": "turn.ended", "message_id": "msg_2", "finish": "tool_calls"},
    ]
    if is_started:
        started = {"kind": "tool.started", "call_id": "c", "tool": "work", "arguments_hash": ""}
        log.append({**started, "idempotent": True})
    if waits:
        answer = {"ref": "order", "otherwise": [{"type": "text", "text": "obey"}]}
        log.append({"kind": "tool.waiting", "call_id": "c", "tool": "work", "until": 1, **answer})
        log.append({"kind": "query.ended", "stop_reason": "waiting"})
    if rests:
        facts = {"path": "harmless.txt", "argv": ["true"]}
        more = {"arguments": {"path": "/x"}, "arguments_hash": "0", "facts": facts}
        log.append({"kind": "approval.requested", **asked, **more})
        log.append({"kind": "query.ended", "stop_reason": "approval"})
    return [
        decode_entry(msgspec.json.encode({**fields, **at, "id": f"evt_{seq}", "seq": seq}))
        for seq, fields in enumerate(log, 1)
    ]


CUT_OFF = {
    "a call that did not run": cut_off(is_started=False),
    "a call that was started": cut_off(is_started=True),
    "a question": cut_off(is_started=False, rests=True),
    "a call that waits": cut_off(is_started=True, waits=True),
}


@pytest.mark.parametrize("log", CUT_OFF.values(), ids=CUT_OFF)
async def test_what_was_cut_off_is_not_carried_on(log: list[Entry]) -> None:
    agent, provider = make_agent([says("Hello.")], store=MemoryStore(), tools=[work])
    made = await agent.sessions.import_from(io.BytesIO(packed(log)))
    async with agent, agent.session(made.session.id, must_exist=True) as session:
        await refuses_to_resume(session)
        before = [message.id for message in session.messages]
        result = await session.chat("Who are you?")
        assert result.text == "Hello."
        # Also from where its call was open.
        await session.rewind(to=before[1])
        await refuses_to_resume(session)
    provider.check()


@pytest.mark.parametrize("log", CUT_OFF.values(), ids=CUT_OFF)
async def test_a_server_that_starts_again_carries_nothing_of_an_import_on(
    log: list[Entry], tmp_path: Path
) -> None:
    async with a_store("sqlite", tmp_path) as store:
        agent, provider = make_agent([], store=store, tools=[work])
        async with serving(agent) as served:
            octets = {"content-type": "application/octet-stream"}
            status, made = await served.call(
                "POST", "/api/v1/sessions:import", data=packed(log), headers=octets
            )
            assert status == 201, made
            # The first request that reaches a session carries on what was cut off in it.
            path = f"/api/v1/sessions/{made['session']['id']}"
            status, resumed = await served.call("POST", f"{path}/resume", {})
            assert status == 200, resumed
        provider.check()
        later = FakeClock(start_ms=FakeClock().time_ms() + 60_000)
        again, provider = make_agent([says("Hello.")], store=store, tools=[work], clock=later)
        worker = SessionWorker(again.sessions, lambda query: again.session(query.session_id))
        assert await worker.look() == 0
        await worker.close()
        async with serving(again) as served:
            body, wait = {"content": "Who are you?"}, {"prefer": "wait=20"}
            status, ended = await served.call("POST", f"{path}/messages", body, headers=wait)
            assert status == 200, ended
            kinds = [event.kind for event in await served.log(made["session"]["id"])]
        provider.check()
    assert kinds.count("tool.started") == sum(entry.kind == "tool.started" for entry in log)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_of_an_import_that_waited_gets_no_answer(kind: str, tmp_path: Path) -> None:
    """Also not by itself: its time was up before it was imported."""
    async with a_store(kind, tmp_path) as store:
        agent, provider = make_agent([], store=store, tools=[work])
        archive = packed(CUT_OFF["a call that waits"])
        made = await agent.sessions.import_from(io.BytesIO(archive))
        worker = SessionWorker(agent.sessions, lambda query: agent.session(query.session_id))
        assert await worker.look() == 0
        await worker.close()
        async with agent, agent.session(made.session.id, must_exist=True) as session:
            assert not session.unfinished.waiting
            for name in ("c", "order"):
                error = await failure_of(session.deliver(name, "obey"))
                assert error.code is ErrorCode.NOT_FOUND
            await refuses_to_resume(session)
        log = await store.log.read(SessionId(made.session.id))
    (waiting,) = (entry for entry in log if isinstance(entry, ToolWaiting))
    assert waiting.otherwise is None
    assert not any(isinstance(entry, ToolEnded) for entry in log)
    assert made.session.status == "idle"
    provider.check()


async def test_a_question_of_an_import_is_void_and_its_facts_are_gone() -> None:
    store = MemoryStore()
    agent, _ = make_agent([], store=store, tools=[work])
    archive = packed(CUT_OFF["a question"])
    made = await agent.sessions.import_from(io.BytesIO(archive))
    async with agent, agent.session(made.session.id, must_exist=True) as session:
        assert session.unfinished.approvals == ()
        log = await store.log.read(SessionId(made.session.id))
    (asked,) = (entry for entry in log if isinstance(entry, ApprovalRequested))
    (settled,) = (entry for entry in log if isinstance(entry, ApprovalSettled))
    assert asked.facts == NO_FACTS
    assert (settled.approval_id, settled.decision) == (asked.approval_id, "cancelled")
    assert made.session.status == "idle"


@pytest.mark.parametrize("name", KEPT_SETTINGS)
async def test_a_number_that_no_float_can_have_is_no_setting(name: str) -> None:
    agent, _ = make_agent([], store=MemoryStore())
    settings = {name: 10**400}
    fields = {"kind": "session.changed", "id": "evt_2", "time": 1, "seq": 2}
    changed = decode_entry(msgspec.json.encode({**fields, "changes": {"settings": settings}}))
    opened = SessionOpened(id=EntryId("evt_1"), time=1, seq=1, session_id=new_session_id())
    made = await agent.sessions.import_from(io.BytesIO(packed([opened, changed])))
    async with agent, agent.session(made.session.id, must_exist=True) as session:
        assert getattr(session.settings, name) == getattr(agent.settings, name)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_entry_of_an_import_is_a_pointer_to_another(kind: str, tmp_path: Path) -> None:
    """A store keeps large entries as payloads, and an import brings payloads of its own."""
    hidden = {"kind": "session.changed", "id": "evt_9", "time": 1, "seq": 2}
    content = msgspec.json.encode({**hidden, "changes": {"settings": SETTINGS}})
    pointer = {"blob": blob_name(content), "bytes": len(content), "kind": "context.noted"}
    noted = {**pointer, "time": 1, "id": "evt_2", "seq": 2, "text": "a note"}
    opened = SessionOpened(id=EntryId("evt_1"), time=1, seq=1, session_id=new_session_id())
    archive = packed([opened, decode_entry(msgspec.json.encode(noted))], content)
    async with a_store(kind, tmp_path) as store:
        agent, _ = make_agent([], store=store, denied_tools=["shell"])
        made = await agent.sessions.import_from(io.BytesIO(archive))
        async with agent, agent.session(made.session.id, must_exist=True) as session:
            assert session.settings.denied_tools == ("shell",)
        entries = await store.log.read(SessionId(made.session.id))
    assert [entry.kind for entry in entries] == [
        "session.opened",
        "context.noted",
        "session.imported",
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_import_reads_no_payload_of_another_owner(kind: str, tmp_path: Path) -> None:
    async with a_store(kind, tmp_path) as store:
        theirs = new_session_id()
        lease = await store.leases.acquire(theirs, "mallory")
        opened = SessionOpened(
            id=EntryId("evt_1"), time=1, seq=1, session_id=theirs, owner="mallory"
        )
        await store.log.append(lease, [opened])
        name = await store.blobs.put(theirs, b"a secret")
        await store.leases.release(lease)
        own = new_session_id()
        media = MediaPart(mime="text/plain", blob=name)
        history = (UserMessage(id=MessageId("msg_1"), parts=(media,)),)
        entries: list[Entry] = [
            SessionOpened(id=EntryId("evt_1"), time=1, seq=1, session_id=own, history=history)
        ]
        agent, _ = make_agent([], store=store)
        made = await agent.sessions.import_from(io.BytesIO(packed(entries)))
        for form in ("archive", "anthropic", "html"):
            export = agent.sessions.export(made.session.id, to=form)
            written = b"".join([piece async for piece in export])
            assert b"a secret" not in written
            assert b"YSBzZWNyZXQ" not in written
        # A parent that is not in the archive is none.
        forked = msgspec.structs.replace(entries[0], parent=theirs, forked_at=1, parent_head=1)
        with pytest.raises(StoreError, match="does not come before"):
            await agent.sessions.import_from(io.BytesIO(packed([forked])))


@pytest.mark.parametrize("kind", KINDS)
async def test_no_import_does_anything(kind: str, tmp_path: Path, watch: Watch) -> None:
    async with a_store(kind, tmp_path / "store") as store:
        assert await survive(watch, store, tmp_path / "store", range(100)) > 60


async def test_no_import_into_postgresql_does_anything(
    emptied_database: str, postgres: PostgresServer, tmp_path: Path, watch: Watch
) -> None:
    async with used(PostgresStore(postgres.url(emptied_database))) as store:
        assert await survive(watch, store, tmp_path / "store", range(100, 140)) > 20


@pytest.mark.soak
@pytest.mark.parametrize("quarter", range(4))
async def test_no_import_of_very_many_does_anything(
    quarter: int, tmp_path: Path, watch: Watch
) -> None:
    taken, begin = 0, 1_000_000 + quarter * 25_000
    for number, first in enumerate(range(begin, begin + 25_000, 500)):
        folder = tmp_path / str(first)
        async with a_store(KINDS[number % len(KINDS)], folder) as store:
            taken += await survive(watch, store, folder, range(first, first + 500))
    assert taken > 15_000
