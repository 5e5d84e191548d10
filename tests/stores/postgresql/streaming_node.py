"""Owns a session and streams into it; started by tests.

    python -m tests.stores.postgresql.streaming_node URL first|second

The first one stops in the middle of its answer and says so; it is killed there. The second one
carries the query on and ends.
"""

import asyncio
import sys

from haptera import Agent
from haptera.model.settings import RuntimeSettings
from haptera.stores.postgresql.store import PostgresStore
from haptera.testing import Gate, ScriptedProvider, says
from haptera.testing.scripted_provider import Beat

OWNER, NAME = "ana", "watched"
PIECES = 18


def pieces(which: str) -> list[str]:
    """Return what an owner streams."""
    return [f"{which} piece {number}; " for number in range(PIECES)]


def _script(which: str) -> list[Beat]:
    whole = says(*pieces(which))
    beats: list[Beat] = [[part] for part in whole]
    return beats if which == "second" else [*beats[:-3], Gate()]


async def main(url: str, which: str) -> None:
    """Stream."""
    store = PostgresStore(url, owner=OWNER)
    agent = Agent(
        "scripted/m",
        providers=[ScriptedProvider([_script(which)])],
        environment={},
        store=store,
        owner=OWNER,
        project="p",
        runtime=RuntimeSettings(checkpoint_bytes=1),
    )
    session = agent.session(NAME, busy="wait")
    if which == "first":
        async for event in session.stream("tell me"):
            if f"piece {PIECES - 2}" in getattr(event, "text", ""):
                sys.stdout.write("half\n")
                sys.stdout.flush()
        return
    async with agent, session:
        await session.resume()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
