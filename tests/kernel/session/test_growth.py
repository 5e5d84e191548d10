"""A long session: its text is stored once, and a turn writes as much at the end as at the start."""

from pathlib import Path

import pytest

from haptera import AgentSession
from haptera.model.entry_bytes import encode_entry
from haptera.testing import ScriptedProvider, says
from tests.fixtures_report import Report
from tests.kernel.session.three_turns import durable_agent
from tests.scripted_agents import live_of
from tests.stores.store_factories import STORE_FACTORIES

pytestmark = pytest.mark.slow

TURNS = 60
PIECE = "Sixty-four bytes of an answer which are not like any of others. "


async def _sizes(session: AgentSession) -> list[int]:
    live = await live_of(session)
    return [len(encode_entry(entry)) for entry in await live.store.log.read(live.session_id)]


@pytest.mark.parametrize("kind", list(STORE_FACTORIES))
async def test_text_is_stored_once(kind: str, tmp_path: Path, report: Report) -> None:
    provider = ScriptedProvider()
    pieces = [PIECE] * 64
    async with durable_agent(kind, tmp_path, provider) as agent, agent.session() as session:
        for turn in range(TURNS):
            provider.add([[part] for part in says(*pieces)])
            await session.chat(f"Turn {turn}.")
        sizes = await _sizes(session)
    text = TURNS * len(PIECE) * len(pieces)
    report(f"{kind}: {sum(sizes) / text:.2f} bytes stored for a byte of text, in 4 KiB turns")
    assert sum(sizes) <= 1.5 * text


async def test_a_turn_writes_no_more_in_a_long_session_than_in_a_short_one(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    written = []
    async with durable_agent("sqlite", tmp_path, provider) as agent, agent.session() as session:
        for turn in range(TURNS):
            before = len(await _sizes(session))
            provider.add(says("The same answer every time."))
            await session.chat(f"Turn {turn:03}.")
            sizes = (await _sizes(session))[before:]
            written.append((len(sizes), sum(sizes)))
    # Numbers in an entry, such as its `seq` and how long it took, may have a digit more.
    assert written[-1][0] == written[0][0]
    assert written[-1][1] - written[0][1] <= 8 * written[0][0]
