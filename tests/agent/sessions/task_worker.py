"""One half of a long coding task in a process of its own; started by `test_a_long_task`.

`python -m tests.agent.sessions.task_worker begin|finish FOLDER`: the first half is killed inside a
tool, the second one goes on with the session.
"""

import asyncio
import sys
from pathlib import Path

from haptera import Agent, ApprovalRequest, Approve, Deny, tool
from haptera.testing import ScriptedProvider, calls, says

SUMMARY = "# Objective\nFix the total.\n\n# Work done\nsrc/shop.py is right again."
_FIX = [{"old": "sum(prices) + 1", "new": "sum(prices)"}]
_SPOIL = [{"old": "sum(prices)", "new": "0"}]
_PAD = "The shop has many prices, and each of them counts. " * 300

BEGIN = [
    calls(("read", {"path": "src/shop.py"})),
    calls(("edit", {"path": "src/shop.py", "edits": _FIX})),
    calls(("shell", {"command": "printf built > out.txt"})),
    calls(("write", {"path": "secret.txt", "content": "no"})),
    says("The total is right. ", _PAD),
    says("It is a shop. ", _PAD),
    says(SUMMARY),
    calls(("read", {"path": "src/shop.py"})),
    calls(("edit", {"path": "src/shop.py", "edits": _SPOIL}), ("shell", {"command": "rm out.txt"})),
    says("It is shorter now."),
    calls(("write", {"path": "notes.md", "content": "# Notes\n"})),
    calls(("publish", {"version": "1.0"})),
]
FINISH = [says("Whether 1.0 is published has to be looked up."), says("All is well.")]


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def decide(request: ApprovalRequest) -> Approve | Deny:
    """Approve everything but secrets."""
    if "secret" in str(request.arguments):
        return Deny("no secrets", by="ana")
    return Approve(by="ana")


def make_agent(folder: Path, steps: list[object]) -> Agent:
    """Make the agent of either half, on one store."""

    @tool
    async def publish(version: str) -> str:
        """Publish a version; this takes long."""
        with (folder / "published").open("a") as file:
            file.write(version + "\n")
        _tell("publishing")
        await asyncio.Event().wait()
        return "never"

    return Agent(
        "scripted/one",
        providers=[ScriptedProvider(steps)],  # type: ignore[arg-type]  # of several kinds
        environment={"HAPTERA_HOME": str(folder / "home")},
        store=f"sqlite:{folder / 'sessions.db'}",
        workspace=folder / "project",
        cwd=folder / "project",
        tools=[publish],
        approver=decide,
    )


async def begin(folder: Path) -> None:
    """Work until the process is killed in the middle of `publish`."""
    async with make_agent(folder, [*BEGIN]) as agent, agent.session("task") as session:
        await session.chat("The total is wrong.")
        await session.chat("What is this?")
        await session.compact()
        await session.chat("Make it shorter.")
        last_good = [each for each in session.messages if each.text.startswith("It is a shop")]
        report = await session.rewind(to=last_good[-1].id, files=True)
        assert report.is_done
        await session.chat("Write notes and publish 1.0.")


async def finish(folder: Path) -> None:
    """Carry on what was killed, then say one thing more."""
    async with make_agent(folder, [*FINISH]) as agent, agent.session("task") as session:
        assert session.unfinished.query_id is not None
        _tell((await session.resume()).text)
        _tell((await session.chat("Is all well?")).text)


if __name__ == "__main__":
    asyncio.run({"begin": begin, "finish": finish}[sys.argv[1]](Path(sys.argv[2])))
