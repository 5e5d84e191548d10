"""Appends to a session of its own for some seconds and says how that went; started by tests."""

import asyncio
import sys
from pathlib import Path

from haptera.model.errors import AgentError
from haptera.testing.store_conformance.samples import new_session, note
from tests.stores.store_factories import open_store


async def hammer(kind: str, folder: Path, seconds: float) -> str:
    """Append until the time is over; return the session, how many entries, the longest wait."""
    loop = asyncio.get_running_loop()
    store = open_store(kind, folder)
    lease = await new_session(store)
    seq, longest, end = 1, 0.0, loop.time() + seconds
    while (before := loop.time()) < end:
        await store.log.append(lease, [note(seq + 1, "x" * 100)])
        seq += 1
        longest = max(longest, loop.time() - before)
    await store.close()
    return f"{lease.session_id} {seq} {longest * 1000:.0f}"


async def main() -> None:
    """Print one line, also for an error."""
    kind, folder, seconds = sys.argv[1:]
    try:
        line = await hammer(kind, Path(folder), float(seconds))
    except AgentError as error:
        line = f"failed {error.code} {error.message}"
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    asyncio.run(main())
