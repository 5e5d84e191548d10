"""Imports under attack: whatever a file holds, it is a conversation to read and nothing else."""

import io
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast import Agent, AgentError, AgentSession, ErrorCode, SessionError, tool
from holdfast.administration.worker import SessionWorker, can_go_on
from holdfast.cli.session_texts import short_time, shown_part
from holdfast.cli.terminal import safe_line
from holdfast.ports.session_store import Store
from holdfast.serialization.exchange.formats import FORMATS
from holdfast.serialization.exchange.imported_entries import KEPT_SETTINGS
from holdfast.testing import FakeClock
from holdfast.testing.scripted_provider import ScriptedProvider
from holdfast.vocabulary.settings import Settings
from tests.attacks.hostile_imports import hostile_log, packed
from tests.scripted_agents import make_agent
from tests.stores.store_factories import open_store

PROJECT = "/home/ana/house"
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
    messages = await agent.sessions.messages(session_id)
    lines = [f"{safe_line(found.title)}  ({found.id}, {found.model})"]
    for each in messages:
        lines += [short_time(each.time), *map(shown_part, each.message.parts)]
    assert not _CONTROL & set("".join(lines))
    for name in ("archive", *random.sample(sorted(FORMATS), 2)):
        async for _ in agent.sessions.export(session_id, to=name):
            pass


async def restarts_without_work(agent: Agent) -> None:
    worker = SessionWorker(agent.sessions, lambda query: agent.session(query.session_id))
    assert await worker.look() == 0
    await worker.close()
    found = await agent.sessions.list(everywhere=True)
    assert {each.status for each in found} <= {"idle", "failed"}


@asynccontextmanager
async def a_store(kind: str, folder: Path) -> AsyncIterator[Store]:
    store = open_store(kind, folder)
    try:
        yield store
    finally:
        await store.close()


async def survive(watch: Watch, kind: str, folder: Path, seeds: range) -> int:
    """Import hostile logs into one store; returns how many were taken in."""
    canary = folder.parent / f"{folder.name}-canary"
    canary.write_text("untouched")
    taken = 0
    async with a_store(kind, folder) as store:
        agent, provider = agent_on(store, folder)
        later = FakeClock(start_ms=FakeClock().time_ms() + 60_000)
        again, _ = agent_on(store, folder, clock=later)  # it reads its configuration now
        plain = packed(hostile_log(Random(0), str(canary), lambda *_: None))
        first = await imported(agent, plain)
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


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl"])
async def test_no_import_does_anything(kind: str, tmp_path: Path, watch: Watch) -> None:
    taken = await survive(watch, kind, tmp_path / kind, range(100))
    assert taken > 60


@pytest.mark.soak
async def test_no_import_of_very_many_does_anything(tmp_path: Path, watch: Watch) -> None:
    taken = 0
    for first in range(0, 100_000, 500):
        kind = sorted({"memory", "sqlite", "jsonl"})[first // 500 % 3]
        taken += await survive(watch, kind, tmp_path / str(first), range(first, first + 500))
    assert taken > 60_000
