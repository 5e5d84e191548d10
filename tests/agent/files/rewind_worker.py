"""Processes that are killed while they bring files back, each at another step."""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

from tests.agent.files.file_worlds import agent_in, at_step, edit, fill, plain, state_of


def die() -> None:
    """End at once, as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


async def live(place: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = place / "work"
    fill(root, chance)

    def change() -> None:
        for _ in range(chance.randint(3, 9)):
            edit(root, chance, huge=False)

    agent = agent_in(root, f"sqlite:{place / 'chat.db'}", [change])
    async with agent, agent.session("killed") as session:
        await session.chat("go")
        for _ in range(chance.randint(0, 2)):
            edit(root, chance, huge=False)
        (place / "before").write_text(repr(plain(state_of(root))))
        is_undo = seed % 3 == 0
        if is_undo:
            await session.rewind(to=session.messages[0].id, files=True, force=True)
        with at_step(chance.choice((*range(1, 40, 3), *range(40, 200, 5))), die):
            if is_undo:
                await session.undo_rewind()
            else:
                await session.rewind(to=session.messages[0].id, files=True, force=True)
    die()


def main(place: Path, first: int, last: int) -> None:
    """Live once for each seed, in a process of its own."""
    for seed in range(first, last):
        (place / str(seed)).mkdir()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(live(place / str(seed), seed))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"seed {seed} was not killed")


main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
