"""Looks a name up in a jsonl store and says which logs it opened for that; started by tests."""

import asyncio
import json
import sys
from pathlib import Path

from haptera.stores.jsonl.store import JsonlStore


async def find(folder: Path, name: str, owner: str, project: str) -> None:
    """Print the id of the session that has the name, and the files that were opened."""
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    store = JsonlStore(folder)
    record = await store.index.find(owner, project, name=name)
    read = sorted(Path(path).name for path in opened if "/sessions/" in path)
    sys.stdout.write(json.dumps([record and record.id, read]))
    await store.close()


if __name__ == "__main__":
    asyncio.run(find(Path(sys.argv[1]), *sys.argv[2:]))
