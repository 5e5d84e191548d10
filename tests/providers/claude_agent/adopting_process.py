"""Adopts a session of the native agent in processes that are killed, each at a later write.

`adopting_process MACHINE PLACE NATIVE_ID` prints how many of them were killed; each has a store of
its own in the place.
"""

import asyncio
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from tests.kernel.session.kill_at_call import run_until_call
from tests.providers.claude_agent.machines import Machine

_APART = 2
"""At every how manyth write a process is killed."""


async def _adopt(machine: Machine, store: Path, native_id: str) -> None:
    async with (
        machine.agent(store=f"sqlite:{store}") as agent,
        agent.session("ana", native_session_id=native_id) as session,
    ):
        assert len(session.messages) == 2


def main(folder: str, place: str, native_id: str) -> None:
    """Kill one process after the other, until one comes to its end."""
    machine = Machine.there(Path(folder))
    import_module("haptera.access.assembly.composition")  # what each would import by itself
    import_module("haptera.stores.sqlite.store")
    number = 0
    while True:
        store = Path(place) / f"{number}.db"
        adopt = partial(_adopt, machine, store, native_id)
        ended = run_until_call(lambda adopt=adopt: asyncio.run(adopt()), 1 + _APART * number)  # type: ignore[misc]
        if ended.code != -9:
            break
        number += 1
    if ended.code:
        sys.exit(f"it ended with {ended.code}")
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
