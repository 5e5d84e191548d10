"""Many sessions and a long one: finding, listing, searching and opening, per store.

`python -m benchmarks.catalogue [--sessions N] [--entries N] [--store jsonl|sqlite]` fills a store
with generated sessions, then measures each operation in a fresh process: wall time, CPU of all
threads, by how much the peak memory exceeds that of a process with an open store, and for how long
the event loop stood still at most. Operations on a session that is open are measured without its
opening. `--only NAME` measures one operation; with `PYTHONPATH` naming another tree, that of it.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from haptera import Agent, AgentSession, SessionError
from haptera.access.assembly.store_strings import make_store
from haptera.model.ids import (
    MessageId,
    PartId,
    QueryId,
    SessionId,
    TurnId,
    new_entry_id,
    new_session_id,
)
from haptera.model.log.entry import Entry
from haptera.model.log.queries import QueryEnded, QueryStarted
from haptera.model.log.session_fold import SessionFold
from haptera.model.log.sessions import FOLDED, SessionChanged, SessionOpened
from haptera.model.log.stored_state import state_to_store
from haptera.model.log.turns import PartEnded, PartStarted, TurnEnded, TurnStarted
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart
from haptera.model.settings import Settings
from haptera.model.usage import Usage
from haptera.ports.session_store import Lease, Store
from haptera.testing import ScriptedProvider, says

PROJECT = "bench"
_EXCHANGES = 3
"""In each of the many sessions; an exchange is six entries."""
_AT_ONCE = 64
_BATCH = 6_000
_LONG = "long"
_RARE = "quokka"
"""A word in every thousandth session."""

_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re")
_WORDS = tuple(f"{one}{two}r{three}" for one in _SYLLABLES for two in _SYLLABLES for three in "aeo")


def exchange(chance: random.Random, number: int, *, seq: int, word: str = "") -> list[Entry]:
    """Make the six entries of a prompt and its answer, beginning with `seq`."""
    query, turn = QueryId(f"qry_{number}"), TurnId(f"trn_{number}")
    message, part = MessageId(f"msg_{number}a"), PartId(f"prt_{number}")
    asked = " ".join(chance.choices(_WORDS, k=12)) + f" {word}".rstrip()
    said = TextPart(text=" ".join(chance.choices(_WORDS, k=60)))
    prompt = UserMessage(id=MessageId(f"msg_{number}u"), parts=(TextPart(text=asked),))
    usage = Usage(input=100, output=60)

    def stamp(place: int) -> dict[str, Any]:
        return {"id": new_entry_id(), "time": number, "seq": seq + place, "query_id": query}

    return [
        QueryStarted(**stamp(0), message=prompt),
        TurnStarted(**stamp(1), turn_id=turn, message_id=message, provider="x", model="y"),
        PartStarted(**stamp(2), turn_id=turn, part_id=part, part_kind="text"),
        PartEnded(**stamp(3), turn_id=turn, part_id=part, part=said),
        TurnEnded(**stamp(4), turn_id=turn, message_id=message, finish="stop", usage=usage),
        QueryEnded(**stamp(5), stop_reason="complete", turns=1, message_id=message),
    ]


async def _begin(store: Store, name: str) -> tuple[Lease, SessionOpened]:
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, "bench")
    opened = SessionOpened(
        id=new_entry_id(),
        time=1,
        seq=1,
        session_id=SessionId(session_id),
        project=PROJECT,
        name=name,
        settings=Settings(model="scripted/one"),
    )
    return lease, opened


async def fill(location: str, *, sessions: int, entries: int) -> None:
    """Write many short sessions and a long one."""
    store = make_store(location, owner="local")
    slots = asyncio.Semaphore(_AT_ONCE)

    async def write(number: int) -> None:
        chance, word = random.Random(number), _RARE if number % 1000 == 0 else ""
        async with slots:
            lease, opened = await _begin(store, f"session-{number}")
            written: list[Entry] = [opened]
            for place in range(_EXCHANGES):
                written += exchange(chance, place, seq=2 + 6 * place, word=word)
            await store.log.append(lease, written)
            await store.leases.release(lease)

    await asyncio.gather(*(write(number) for number in range(sessions)))
    if entries:
        await _write_long(store, entries)
    await store.close()


async def _write_long(store: Store, entries: int) -> None:
    chance = random.Random(0)
    lease, opened = await _begin(store, _LONG)
    batch: list[Entry] = [opened]
    fold, seq = SessionFold(), 1
    fold.apply(opened)
    for number in range((entries - 1) // 6):
        written = exchange(chance, number, seq=seq + 1)
        for entry in written:
            fold.apply(entry)
        # As a session records what it is when a query has ended.
        if (state := state_to_store(fold)) is not None:
            changes: dict[str, Any] = {FOLDED: state}
            written.append(
                SessionChanged(id=new_entry_id(), time=number, seq=fold.head + 1, changes=changes)
            )
            fold.apply(written[-1])
        batch, seq = batch + written, fold.head
        if len(batch) >= _BATCH:
            await store.log.append(lease, batch)
            batch = []
    await store.log.append(lease, batch)
    await store.leases.release(lease)


Operation = Callable[[Agent], Awaitable[object]]


async def _listed(agent: Agent) -> object:
    return len(await agent.sessions.list(limit=50))


async def _listed_twice(agent: Agent) -> object:
    page = await agent.sessions.list(limit=50)
    return len(await agent.sessions.list(limit=50, after=page[-1].id))


async def _found(agent: Agent) -> object:
    return (await agent.sessions.get("session-77")).name


async def _not_found(agent: Agent) -> object:
    try:
        return await agent.session("unheard-of", must_exist=True).open()
    except SessionError as error:
        return error.code.name


async def _searched(agent: Agent) -> object:
    return len(await agent.sessions.search(_RARE))


async def _searched_often(agent: Agent) -> object:
    return len(await agent.sessions.search("bacera", limit=20))


async def _made(agent: Agent) -> object:
    async with agent.session("fresh-one") as session:
        return bool(session.session_id)


async def _opened_long(agent: Agent) -> object:
    async with agent.session(_LONG) as session:
        return len(session.messages)


async def _read_long(agent: Agent) -> object:
    return len(await agent.sessions.messages(_LONG, limit=50))


async def _counted_long(agent: Agent) -> object:
    return (await agent.sessions.stats(_LONG)).messages


async def _rewound(session: AgentSession) -> object:
    await session.rewind(to=session.messages[-20].id)
    return len(session.messages)


async def _rewound_and_undone(session: AgentSession) -> object:
    await session.rewind(to=session.messages[-20].id)
    await session.undo_rewind()
    return len(session.messages)


async def _rewound_far(session: AgentSession) -> object:
    await session.rewind(to=session.messages[len(session.messages) // 2].id)
    return len(session.messages)


async def _rewound_far_and_undone(session: AgentSession) -> object:
    await _rewound_far(session)
    await session.undo_rewind()
    return len(session.messages)


async def _forked(session: AgentSession) -> object:
    async with await session.fork() as other:
        return bool(other.session_id)


async def _asked(session: AgentSession) -> object:
    return (await session.chat("And now?")).text


async def _looked_at(agent: Agent) -> object:
    return type(await (await agent.remote(_LONG)).status()).__name__


async def _found_fork(agent: Agent) -> object:
    remote = await agent.remote(_LONG)
    composition = agent._composition  # noqa: SLF001 - what `sessions.fork` asks before it opens one
    return (await composition.stored.read_fork(remote.session_id, None)).forked_at


async def _rewound_elsewhere(agent: Agent) -> object:
    return await _rewound_to(agent, 1.0)


async def _rewound_far_elsewhere(agent: Agent) -> object:
    return await _rewound_to(agent, 0.5)


async def _rewound_to(agent: Agent, share: float) -> object:
    """Rewind the session that no process holds to a message, and take that back."""
    remote = await agent.remote(_LONG)
    record = await agent._composition.stored.require(remote.session_id)  # noqa: SLF001 - its head
    number = int(share * record.head * 4_999 / 5_000 / 6) - 10
    await remote.rewind(to=f"msg_{number}a")
    await remote.undo_rewind()
    return number


async def _told_status(session: AgentSession) -> object:
    return type(session.status).__name__


OPEN: dict[str, Callable[[AgentSession], Awaitable[object]]] = {
    "open: rewind by 20 messages": _rewound,
    "open: rewind by 20 messages, undo": _rewound_and_undone,
    "open: rewind to the middle": _rewound_far,
    "open: to the middle, undo": _rewound_far_and_undone,
    "open: fork, and open the fork": _forked,
    "open: its status": _told_status,
    "open: a prompt": _asked,
}
"""Operations on the long session once it is open."""

MANY: dict[str, Operation] = {
    "list 50": _listed,
    "the second page": _listed_twice,
    "find a name": _found,
    "a name that there is none of": _not_found,
    "a new named session": _made,
    "search a rare word, first time": _searched,
    "search a rare word": _searched,
    "search a common word": _searched_often,
}
LONG: dict[str, Operation] = {
    "held by none: rewind by 20, undo": _rewound_elsewhere,
    "held by none: to the middle, undo": _rewound_far_elsewhere,
    "open the long session": _opened_long,
    "its first 50 messages": _read_long,
    "its statistics": _counted_long,
}
LOOKS: dict[str, Operation] = {
    "its status, from elsewhere": _looked_at,
    "where a fork of it begins": _found_fork,
}
"""After a prompt: what it was then is stored."""
OPERATIONS = MANY | LONG | OPEN | LOOKS


async def measure(location: str, name: str) -> dict[str, Any]:
    """Run one operation in this process, on a store that was opened and not used."""
    provider = ScriptedProvider([says("fine")])
    async with Agent(
        "scripted/one", store=location, project=PROJECT, providers=[provider], environment={}
    ) as agent:
        agent.sessions.on(print)()  # loads the code, and asks nothing
        if name in OPEN:
            async with agent.session(_LONG) as session:
                return await _measured(OPEN[name](session))
        return await _measured((MANY | LONG | LOOKS)[name](agent))


async def _measured(work: Awaitable[object]) -> dict[str, Any]:
    memory, loop = _forget_peak(), asyncio.get_running_loop()
    wall, cpu = time.perf_counter(), time.process_time()
    stop, last = 0.0, wall

    ended = False

    def tick() -> None:
        nonlocal stop, last
        now = time.perf_counter()
        stop, last = max(stop, now - last), now
        if not ended:
            loop.call_later(0.001, tick)

    loop.call_later(0.001, tick)
    result = await work
    ended = True
    return {
        "wall": (time.perf_counter() - wall) * 1e3,
        "cpu": (time.process_time() - cpu) * 1e3,
        "memory": _peak() - memory,
        "stop": max(stop, time.perf_counter() - last) * 1e3,
        "result": result,
    }


def _peak() -> float:
    """Return the peak memory of this process in MB; the one of `getrusage` may be its parent's."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _forget_peak() -> float:
    """Let the peak begin anew, and return it."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _in_a_process(arguments: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.catalogue", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    measured: dict[str, Any] = json.loads(output)
    return measured


def _run(kind: str, *, sessions: int, entries: int, only: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="haptera-bench-") as folder:
        location = f"{kind}:{folder}/{'store.db' if kind == 'sqlite' else 'store'}"
        start = time.perf_counter()
        asyncio.run(fill(location, sessions=sessions, entries=entries))
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        print(f"\n{kind}: filled in {seconds:.0f} s, {size / 1e6:,.0f} MB", flush=True)
        print("| operation | wall ms | CPU ms | memory MB | loop stop ms | result |")
        print("|---|---|---|---|---|---|")
        for name in only or (OPERATIONS if entries else MANY):
            row = _in_a_process(["--measure", name, "--at", location])
            numbers = " | ".join(f"{row[each]:,.0f}" for each in ("wall", "cpu", "memory", "stop"))
            print(f"| {name} | {numbers} | {row['result']} |", flush=True)


def main() -> None:
    """Fill and measure, or (with `--measure`) measure one operation and print it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalogue", description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=1_000_000, help="of the long session")
    parser.add_argument("--store", choices=("jsonl", "sqlite"), action="append")
    parser.add_argument("--only", choices=OPERATIONS, action="append", default=[])
    parser.add_argument("--measure", choices=OPERATIONS, help=argparse.SUPPRESS)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(measure(options.at, options.measure))))
        return
    for kind in options.store or ("jsonl", "sqlite"):
        _run(kind, sessions=options.sessions, entries=options.entries, only=options.only)


if __name__ == "__main__":
    main()
