"""Kill -9 while an answer streams: how much of what was shown is lost, and how it goes on."""

import signal
from pathlib import Path

import pytest

from haptera.model.messages import AssistantMessage
from tests.fixtures_report import Report
from tests.kernel.session.echo_provider import EchoProvider
from tests.kernel.session.three_turns import durable_agent
from tests.stores.store_factories import DURABLE
from tests.stores.workers import worker

pytestmark = pytest.mark.slow

_MOST_LOST = 4096
_NAME = "streaming"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", DURABLE)
@pytest.mark.parametrize(
    ("size", "milliseconds", "pieces"), [(200, 2, 120), (30, 20, 110)], ids=["fast", "slow"]
)
async def test_at_most_four_kibibytes_or_a_second_of_shown_text_are_lost(
    kind: str, size: int, milliseconds: int, pieces: int, tmp_path: Path, report: Report
) -> None:
    program = "tests.kernel.session.session_worker"
    async with worker(kind, tmp_path, _NAME, program=program) as process:
        process.send("open")
        await process.until("open")
        process.send("chat", "stream", size, milliseconds)
        shown = 0
        for _ in range(pieces):
            shown += int(await process.until("shown"))
        process.signal(signal.SIGKILL)
        while line := await process.reply():
            shown += int(line.removeprefix("shown ")) if line.startswith("shown ") else 0
    async with (
        durable_agent(kind, tmp_path, EchoProvider()) as agent,
        agent.session(_NAME, busy="wait") as session,
    ):
        unfinished = session.unfinished
        kept = len(unfinished.interrupted_text)
        # The slow stream never fills four KiB: what is kept of it was saved because of the time.
        assert kept > 0
        assert shown - kept <= _MOST_LOST + size
        assert unfinished.query_id is not None
        assert (await session.chat("and now?")).text == "echo and now?"
        answer = session.messages[1]
        assert isinstance(answer, AssistantMessage)
        assert answer.interrupted
        assert len(answer.text) == kept
    report(f"{kind}: killed after {shown} bytes shown, {max(0, shown - kept)} of them lost")
