"""A session of the native agent is adopted once, however many ask at once and wherever one dies."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from haptera.model.errors import SessionError
from tests.architecture.source_tree import ROOT
from tests.fixtures_report import Report
from tests.kernel.session.kill_at_call import is_possible
from tests.providers.claude_agent.machines import Machine

pytestmark = pytest.mark.slow

SAID = ["#one", "seen #one"]


async def test_of_those_who_adopt_a_session_at_once_one_does(tmp_path: Path) -> None:
    here = Machine(tmp_path / "a", tmp_path / "store")
    await here.say("#one")
    (path,) = here.transcripts
    async with here.agent() as agent, here.agent() as other:

        async def adopt(number: int) -> list[str]:
            by = (agent, other)[number % 2]
            busy = "wait" if number < 4 else "reject"
            named = {"busy": busy, "native_session_id": path.stem}
            async with by.session("adopted", **named) as session:  # type: ignore[arg-type]
                return [message.text for message in session.messages]

        seen = await asyncio.gather(*map(adopt, range(6)), return_exceptions=True)
        assert all(each == SAID for each in seen if not isinstance(each, SessionError)), seen
        assert seen[:4] == [SAID] * 4
        async with agent.session("adopted") as session:
            assert [message.text for message in session.messages] == SAID
            assert await session.resume_kind() == "native"


@pytest.mark.skipif(not is_possible(), reason="the calls of this machine are not known")
@pytest.mark.timeout(600)
async def test_an_adoption_that_was_cut_off_is_made_whole_by_the_next(
    tmp_path: Path, report: Report
) -> None:
    here = Machine(tmp_path / "a", tmp_path / "store")
    await here.say("#one")
    (path,) = here.transcripts
    place = tmp_path / "stores"
    place.mkdir()
    program = "tests.providers.claude_agent.adopting_process"
    words = [sys.executable, "-m", program, str(here.folder), str(place), path.stem]
    done = await asyncio.to_thread(
        subprocess.run, words, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    deaths = int(done.stdout.split()[-1])
    report(f"adoptions: {deaths} deaths")
    assert deaths >= 10
    for number in range(deaths):
        agent = here.agent(store=f"sqlite:{place / f'{number}.db'}")
        async with agent, agent.session("ana", native_session_id=path.stem) as session:
            assert [message.text for message in session.messages] == SAID
            assert await session.resume_kind() == "native"
