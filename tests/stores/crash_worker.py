"""Writes a small session to a store and notes what it was told is durable; started by tests."""

import asyncio
import sys
from pathlib import Path

from haptera.model.ids import new_session_id
from haptera.model.operations.operation import CommandId
from haptera.testing.store_conformance.crash_sweep import note_acknowledged
from haptera.testing.store_conformance.samples import change, command, note, opening
from tests.stores.store_factories import open_store

TURNS = 3


async def write(kind: str, folder: Path, *, acks: Path, turns: int) -> None:
    """Open a session, then in each turn: a command, a blob, an append of several, one of one."""
    store = open_store(kind, folder)
    session_id = new_session_id()
    lease = await store.leases.acquire(session_id, "worker")
    await store.log.append(lease, [opening(session_id, name="crash")])
    note_acknowledged(acks, session_id, 1)
    seq = 1
    for turn in range(turns):
        await store.inbox.put(session_id, command(f"c{turn}"))
        await store.blobs.put(session_id, bytes([turn]) * 5000)
        batch = [note(seq + 1), note(seq + 2, "x" * 9000), change(seq + 3, title=f"turn {turn}")]
        await store.log.append(lease, batch, consumed=[CommandId(f"c{turn}")])
        seq += len(batch)
        note_acknowledged(acks, session_id, seq)
        await store.log.append(lease, [note(seq + 1)])
        seq += 1
        note_acknowledged(acks, session_id, seq)
    await store.close()


if __name__ == "__main__":
    where = Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    side_file = Path(sys.argv[3]) if sys.argv[3:] else where / "acks"
    how_many = int(sys.argv[4]) if sys.argv[4:] else TURNS
    asyncio.run(write(sys.argv[1], where, acks=side_file, turns=how_many))
