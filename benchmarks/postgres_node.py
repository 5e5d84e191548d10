"""A process of `benchmarks.postgres sessions`: holds idle sessions and queries that run.

python -m benchmarks.postgres_node URL NUMBER IDLE ACTIVE
"""

import asyncio
import sys
import time
from pathlib import Path

from haptera import Agent
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing import Gate, ScriptedProvider, says

OWNER = "ana"
_AT_ONCE = 50
_PAGE = 4096


async def main(url: str, number: str, *counts: str) -> None:
    """Open the sessions, say what they cost, and hold them until killed."""
    idle, active = map(int, counts)
    store = PostgresStore(url, owner=OWNER)
    provider = ScriptedProvider([[*says("so far")[:-2], Gate()] for _ in range(active)])
    agent = Agent(
        "scripted/m", providers=[provider], environment={}, store=store, owner=OWNER, project="p"
    )
    first = _resident()
    names = iter(range(idle + active))
    sessions = []

    async def open_some() -> None:
        for name in names:
            session = await agent.session(f"{number}-{name}").open()
            sessions.append(session)
            if name < active:
                await session.send("go")

    await asyncio.gather(*(open_some() for _ in range(_AT_ONCE)))
    opened = _resident()
    # What an idle process costs while it only renews its lease and looks for commands.
    cpu = time.process_time()
    await asyncio.sleep(10)
    cpu = time.process_time() - cpu
    per_session = (opened - first) / len(sessions) / 1024
    sys.stdout.write(
        f"process {number}: {len(sessions)} sessions, {opened / 2**20:.0f} MiB"
        f" ({per_session:.0f} KiB a session), {cpu / 10 * 1000:.0f} ms of CPU a second\n"
    )
    sys.stdout.flush()
    await asyncio.Event().wait()


def _resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
