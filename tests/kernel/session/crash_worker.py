"""Runs a query of three turns and notes every entry that it is shown; started by tests to die."""

import asyncio
import sys
from pathlib import Path

from haptera.model.log.entry import Entry
from haptera.testing.store_conformance.crash_sweep import note_acknowledged
from tests.kernel.session.three_turns import ThreeTurns, durable_agent

NAME = "crash"
PROMPTS = 5


async def run(kind: str, folder: Path) -> None:
    """Send one prompt and note what comes."""
    async with (
        durable_agent(kind, folder, ThreeTurns()) as agent,
        agent.session(NAME) as session,
    ):
        assert session.session_id is not None
        note_acknowledged(folder / "acks", session.session_id, 1)
        async for event in session.stream("Write two lines."):
            if isinstance(event, Entry):
                note_acknowledged(folder / "acks", session.session_id, event.seq)


async def chat(kind: str, folder: Path) -> None:
    """Send a few prompts and note only that each was answered: nothing is under way then."""
    async with (
        durable_agent(kind, folder, ThreeTurns()) as agent,
        agent.session(NAME) as session,
    ):
        for _ in range(PROMPTS):
            await session.chat("next")
            assert session.session_id is not None
            note_acknowledged(folder / "acks", session.session_id, 0)


if __name__ == "__main__":
    where = Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    work = chat if sys.argv[3:] == ["chat"] else run
    asyncio.run(work(sys.argv[1], where))
