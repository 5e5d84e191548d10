"""A session that version 0.1 began and that was cut off behind any entry is carried on.

The archive beside this file holds one session, in a folder of logs and in a database, that the
code of that version wrote. It has an entry of every kind that needs neither a native agent, a hook
nor a snapshot, so that a cut can fall behind each.
"""

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from haptera import Agent, tool
from haptera.kernel.blocks.tool_registry.tool import Tool
from haptera.testing import ScriptedProvider, says
from tests.history_grammar import violations

pytestmark = pytest.mark.slow

ARCHIVE = Path(__file__).with_name("day-by-0.1.tar.gz")


def entries() -> list[Mapping[str, Any]]:
    with tarfile.open(ARCHIVE) as archive:
        (name,) = (each for each in archive.getnames() if "/sessions/" in each)
        log = archive.extractfile(name)
        assert log is not None
        return [msgspec.json.decode(line)["entry"] for line in log]


ENTRIES = entries()


def cuts() -> Iterator[Any]:
    """Yield how many entries to leave: up to the first and the last of each kind, or any."""
    kinds = [entry["kind"] for entry in ENTRIES]
    backwards = kinds[::-1]
    ends = {kinds.index(kind) + 1 for kind in kinds}
    ends |= {len(kinds) - backwards.index(kind) for kind in kinds}
    for cut in range(1, len(kinds) + 1):
        marks = () if cut in ends else pytest.mark.sweep
        yield pytest.param(cut, marks=marks, id=f"{cut}-{kinds[cut - 1]}")


def cut_log(folder: Path, cut: int) -> str:
    """Leave the first lines of the log in a folder; return the store's name."""
    (log,) = (folder / "jsonl/logs/sessions").glob("*.jsonl")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:cut]))
    return f"jsonl:{folder / 'jsonl/logs'}"


def cut_database(folder: Path, cut: int) -> str:
    """Leave the first rows of the log in a database; return the store's name."""
    path = folder / "sqlite/chats.db"
    with apsw.Connection(str(path)) as database:
        database.execute("DELETE FROM entry WHERE place & 4294967295 > ?", (cut,))
        database.execute("UPDATE session SET head = ?", (cut,))
    return f"sqlite:{path}"


CUTTERS = {"jsonl": cut_log, "sqlite": cut_database}


def payments_due(cut: int) -> int:
    """Count the payments that were approved and not begun."""
    due: set[str] = set()
    asked: dict[str, str] = {}
    for entry in ENTRIES[:cut]:
        match entry:
            case {"kind": "approval.requested", "approval_id": approval, "call_id": call}:
                asked[approval] = call
            case {"kind": "approval.settled", "approval_id": approval, "decision": "approved"}:
                due.add(asked[approval])
            case {"kind": "tool.started", "call_id": call}:
                due.discard(call)
            case _:
                pass
    return len(due)


def tools(paid: list[int]) -> list[Tool[Any]]:
    @tool(approval="ask")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    @tool
    def look(path: str) -> str:
        """Look."""
        return f"{path} is empty"

    @tool
    def broken() -> str:
        """Break."""
        return "it works"

    return [pay, look, broken]


@pytest.mark.parametrize("cut", list(cuts()))
@pytest.mark.parametrize("kind", CUTTERS)
async def test_a_session_cut_off_behind_an_entry_is_carried_on(
    kind: str, cut: int, tmp_path: Path
) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    paid: list[int] = []
    provider = ScriptedProvider([says("Carried on.") for _ in range(4)])
    agent = Agent(
        "scripted/one",
        providers=[provider],
        tools=tools(paid),
        store=CUTTERS[kind](tmp_path, cut),
        owner="ana",
        project="fjord",
        # The folder that the approval named: in another one it would not count.
        cwd=Path("/"),
        environment={},
    )
    async with agent, agent.session("day", must_exist=True) as session:
        if session.unfinished:
            await session.resume()
        assert len(paid) == payments_due(cut)
        result = await session.chat("Are you there?")
        assert result.text == "Carried on."
        assert not session.unfinished
        assert len(paid) == payments_due(cut)
    for request in provider.requests:
        assert violations(request.messages) == []
