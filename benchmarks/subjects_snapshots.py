"""What a turn that changes one file of a large tree costs, with and without snapshots.

The floor takes a snapshot before and after the change with `git add -A` and `git write-tree`, in a
repository of its own. CPU time is that of this process and of every git that it ran.
"""

import resource
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.subjects import Setup, Trial
from haptera import Agent, tool
from haptera.testing import ScriptedProvider, calls, says

_FOLDERS = 100
_TURNS = 10


def _make_tree(folder: Path, files: int) -> None:
    for number in range(files):
        path = folder / f"package{number % _FOLDERS}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"VALUE = {number}\n" * 40)


def _change(folder: Path, number: int) -> None:
    (folder / f"package{number}" / f"module{number}.py").write_text(f"CHANGED = {number}\n")


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


async def _measure(turn: Callable[[int], Awaitable[object]]) -> Trial:
    """Run the turns; the first one takes the whole tree in, and is told apart."""
    begun = time.monotonic()
    await turn(0)
    first = time.monotonic() - begun
    start, begun = _cpu(), time.monotonic()
    for number in range(1, _TURNS + 1):
        await turn(number)
    wall = (time.monotonic() - begun) / _TURNS
    cpu = (_cpu() - start) / _TURNS
    return Trial(value=cpu * 1e3, extra={"wall ms": wall * 1e3, "first turn ms": first * 1e3})


async def floor(_setup: Setup, size: int) -> Trial:
    """Run `git add -A` and `git write-tree` before and after each change."""
    with tempfile.TemporaryDirectory(prefix="haptera-bench-") as place:
        folder = Path(place)
        _make_tree(folder, size)

        def git(*words: str) -> None:
            subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)

        git("init", "--quiet")

        async def turn(number: int) -> None:
            for change in (None, number):
                if change is not None:
                    _change(folder, change)
                git("add", "-A")
                git("write-tree")

        return await _measure(turn)


async def with_snapshots(_setup: Setup, size: int) -> Trial:
    """Run turns of an agent that takes snapshots."""
    return await _run_agent(size, has_snapshots=True)


async def without_snapshots(_setup: Setup, size: int) -> Trial:
    """Run the same turns without snapshots."""
    return await _run_agent(size, has_snapshots=False)


async def _run_agent(size: int, *, has_snapshots: bool) -> Trial:
    with tempfile.TemporaryDirectory(prefix="haptera-bench-") as place:
        folder = Path(place) / "project"
        _make_tree(folder, size)

        @tool(effect="write")
        async def change(number: int) -> str:
            """Change one file."""
            _change(folder, number)
            return "changed"

        steps = [
            step
            for number in range(_TURNS + 1)
            for step in (calls(("change", {"number": number})), says("Done."))
        ]
        agent = Agent(
            "scripted/one",
            providers=[ScriptedProvider(steps)],
            environment={"HAPTERA_HOME": str(Path(place) / "home")},
            workspace=folder,
            tools=[change],
            snapshots=has_snapshots,
        )
        async with agent, agent.session() as session:
            return await _measure(lambda _: session.chat("go"))
