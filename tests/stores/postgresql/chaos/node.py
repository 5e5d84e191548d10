"""One node of a chaos run: opens sessions, sends prompts, carries on what others left.

    python -m tests.stores.postgresql.chaos.node URL FOLDER SEED fenced|unfenced|keeping

At SIGUSR1 it ends what it does, says `quiet`, and stays: what it still holds is held for ever.

Notes what it was told is durable, and every effect of its tool, in files of the folder: a note is
one `write`, so that a kill cannot cut it.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from pathlib import Path

from haptera import Agent, AgentError, AgentSession, tool
from haptera.access.worker import SessionWorker, WorkerSettings
from haptera.model.log.entry import Entry
from haptera.model.messages import AssistantMessage, UserMessage
from haptera.model.operations.operation import CommandId
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.settings import RuntimeSettings
from haptera.model.stream_parts import StreamPart
from haptera.ports.session_store import Lease
from haptera.stores.postgresql.log import PostgresLog
from haptera.stores.postgresql.store import PostgresStore
from haptera.system.owned_tasks import OwnedTasks
from haptera.testing import calls, says

OWNER, PROJECT = "ana", "chaos"
SESSIONS = 8
LEASE_SECONDS = 0.9
EFFECTS_OF_A_PROMPT = 3
BEYOND = 1.0
"""Seconds that a caller may wait beyond its own time limit."""
_LOOK_SECONDS = 0.05
WORKER = WorkerSettings(
    pause_seconds=0.1,
    at_once=8,
    most_attempts=1000,
    first_pause_seconds=0.05,
    longest_pause_seconds=0.3,
)


class Notes:
    """Appends lines to files, each line in one write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, int] = {}

    def add(self, name: str, *words: object) -> None:
        """Note a line in a file."""
        if name not in self._files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._files[name] = os.open(self._folder / name, flags, 0o600)
        os.write(self._files[name], (" ".join(map(str, words)) + "\n").encode())


class EffectsProvider:
    """Answers `run KEY` with calls of the tool, one after the other, each with a key of its own."""

    provider = "effects"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Call the tool once more, or say that it is done."""
        key, made = "", 0
        for message in request.messages:
            if isinstance(message, UserMessage):
                for part in message.parts:
                    if isinstance(part, TextPart) and part.text.startswith("run "):
                        key, made = part.text.removeprefix("run "), 0
            elif isinstance(message, AssistantMessage):
                made += len(message.tool_calls)
        if made < EFFECTS_OF_A_PROMPT:
            yield calls(("effect", {"key": f"{key}.{made}"}), ids=(f"call_{key}.{made}",))
        else:
            yield says("done")

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count nothing."""
        del request
        return TokenCount(tokens=0, exact=False)

    async def close(self) -> None:
        """Have nothing to close."""


class NotingLog(PostgresLog):
    """Notes every entry that the store said is durable."""

    notes: Notes

    async def append(
        self, lease: Lease, entries: Sequence[Entry], *, consumed: Sequence[CommandId] = ()
    ) -> None:
        """Append, then note it."""
        await super().append(lease, entries, consumed=consumed)
        for entry in entries:
            self.notes.add("acknowledged", lease.session_id, entry.seq, entry.id, lease.epoch)


def make_node(url: str, folder: Path) -> tuple[PostgresStore, Agent, SessionWorker]:
    """Return a store that notes, an agent with a tool that has effects, and a worker."""
    notes = Notes(folder)
    store = PostgresStore(url, owner=OWNER, lease_seconds=LEASE_SECONDS)
    log = NotingLog(store._connections)
    log.notes = notes
    store.log = log

    @tool
    async def effect(key: str) -> str:
        """Have an effect."""
        notes.add("effects", key, os.getpid())
        return key

    agent = Agent(
        "effects/m",
        providers=[EffectsProvider()],
        environment={},
        store=store,
        owner=OWNER,
        project=PROJECT,
        tools=[effect],
        runtime=RuntimeSettings(close_drain_seconds=1.0),
    )
    worker = SessionWorker(
        store, lambda query: agent.session(query.session_id, must_exist=True), settings=WORKER
    )
    return store, agent, worker


async def use_sessions(agent: Agent, notes: Notes, chance: random.Random) -> None:
    """Open sessions, or reach them where they are open, and send prompts; for ever."""
    while True:
        name = f"s{chance.randrange(SESSIONS)}"
        key = f"{name}-{os.getpid()}-{chance.getrandbits(40):x}"
        # What fails is over: another prompt comes.
        with contextlib.suppress(AgentError):
            if chance.random() < 0.3:
                remote = await agent.remote(name)
                notes.add("admitted", name, await remote.send(f"run {key}"), key)
                await _pause(chance, 0.2)
                continue
            async with agent.session(name) as session:
                left = session.unfinished
                # Most clients send a prompt without resuming what was cut off.
                if left.query_id is not None and not left.resting and chance.random() < 0.25:
                    await session.resume()
                if chance.random() < 0.3:
                    await _ask_in_time(session, f"run {key}", notes, chance.uniform(0.2, 2.0))
                for part in range(chance.randrange(1, 4)):
                    await _pause(chance, 0.3)
                    # Also one who was told that a send failed may try again.
                    with contextlib.suppress(AgentError):
                        sent = await session.send(f"run {key}-{part}")
                        notes.add("admitted", name, sent, key)
                    await _pause(chance, 0.05)
                    if chance.random() < 0.5:
                        await session.wait_idle()
        await _pause(chance, 0.05)


class Standstill:
    """How long this process has stood still so far, because it was stopped or had no processor."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def watch(self) -> None:
        """Look for ever."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_LOOK_SECONDS)  # noqa: TID251 - measures real time
            self.seconds += loop.time() - before - _LOOK_SECONDS


STANDSTILL = Standstill()


async def _ask_in_time(session: AgentSession, text: str, notes: Notes, seconds: float) -> None:
    """Ask with a time limit; a caller that has to wait much longer than that is noted."""
    loop = asyncio.get_running_loop()
    began, stood = loop.time(), STANDSTILL.seconds
    try:
        await session.chat(text, total_timeout=seconds)
    finally:
        over = loop.time() - began - seconds - (STANDSTILL.seconds - stood)
        if over > BEYOND:
            notes.add("overtime", f"{seconds:.2f}", f"{over:.2f}")


async def _pause(chance: random.Random, longest: float) -> None:
    await asyncio.sleep(chance.random() * longest)  # noqa: TID251 - the schedule of the run


async def main(url: str, folder: str, seed: str, fence: str) -> None:
    """Run a node until it is killed."""
    store, agent, worker = make_node(url, Path(folder))
    if fence == "unfenced":
        # It does not ask whether its leases were taken over.
        store.leases._lose = lambda lease: None  # type: ignore[method-assign]
    elif fence == "keeping":
        store.leases._forget = lambda lease: None  # type: ignore[method-assign]
        store.leases._ask_to_release = _never  # type: ignore[method-assign, assignment]
    chance = random.Random(int(seed))
    notes = Notes(Path(folder))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, is_over.set)
    async with OwnedTasks() as tasks:
        tasks.start(STANDSTILL.watch(), name="standstill")
        users = [use_sessions(agent, notes, random.Random(chance.getrandbits(64))) for _ in "abc"]
        async with worker, OwnedTasks() as working:
            for use in users:
                working.start(use, name="user")
            await is_over.wait()
        await agent.close()
    sys.stdout.write("quiet\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def _never(_lease: Lease) -> "Future[None]":
    done: Future[None] = Future()
    done.set_result(None)
    return done


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
