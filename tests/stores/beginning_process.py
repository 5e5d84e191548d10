"""Answers prompts in new sessions of a jsonl store and says what each did to files; for tests."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from haptera.testing import says
from tests.scripted_agents import make_agent


class FileUse:
    """Counts what is opened in a folder, and what is synced there."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._counts: Counter[str] = Counter()
        sys.addaudithook(self._note_opening)
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._noting(name, getattr(os, name)))

    def taken(self) -> Counter[str]:
        """Return what was counted since the last call."""
        counts, self._counts = self._counts, Counter()
        return counts

    def _note_opening(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            self._count("open", str(arguments[0]))

    def _noting(self, name: str, sync: Callable[[int], None]) -> Callable[[int], None]:
        def sync_and_note(descriptor: int) -> None:
            sync(descriptor)
            self._count(name, str(Path(f"/proc/self/fd/{descriptor}").readlink()))

        return sync_and_note

    def _count(self, what: str, path: str) -> None:
        # The inbox is looked at by a thread of its own, as often as time allows.
        if path.startswith(str(self._root)) and "/inbox" not in path:
            name, _, is_inside = path.removeprefix(str(self._root)).strip("/").partition("/")
            self._counts[f"{what} {name}{'/*' * bool(is_inside)}"] += 1


async def answer(folder: Path, sessions: int) -> None:
    """Print the counts of each session, the first one excepted: it makes the folders."""
    used, counts = FileUse(folder), []
    agent, _ = make_agent([says("fine")] * sessions, store=f"jsonl:{folder}")
    async with agent:
        for _ in range(sessions):
            await agent.run("go")
            counts.append(used.taken())
    sys.stdout.write(json.dumps(counts[1:]))


if __name__ == "__main__":
    asyncio.run(answer(Path(sys.argv[1]), int(sys.argv[2])))
