"""What was written while the project was called `holdfast`: files still open, places stay closed.

The archive and the recording beside this file were made under that name; folders and databases of
sessions are those of `test_old_logs.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from haptera import Agent, StoreError
from haptera.access.administration import project_file
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.kernel.native.native_opening import prompt_id
from haptera.model.errors import ErrorCode
from haptera.model.ids import MessageId, QueryId
from haptera.stores.recording import read_recording
from haptera.testing import ReplayClient, ScriptedProvider, says

HERE = Path(__file__).parent
EXPORTED = HERE / "exported-by-0.1.archive"
RECORDED = HERE / "recorded-by-0.1.jsonl"
QUESTION = "What is the capital of Norway?"

TWO_AGENTS = """
import haptera
for model in ("anthropic/one", "anthropic/two"):
    haptera.Agent(model)
"""


def agent_of(*answers: str, record_to: Path | None = None) -> Agent:
    provider = ScriptedProvider([says(answer) for answer in answers])
    return Agent(
        "scripted/one",
        providers=[provider],
        store="memory",
        environment={},
        record_to=record_to,
    )


async def test_an_archive_of_that_name_is_imported_and_written_with_the_new_one(
    tmp_path: Path,
) -> None:
    again = tmp_path / "again.archive"
    async with agent_of("Bergen is the second.") as agent:
        await agent.sessions.import_from(EXPORTED, name="talk")
        async with agent.session("talk", must_exist=True) as session:
            assert [message.text for message in session.messages] == [QUESTION, "Oslo."]
            await session.chat("And the second city?")
        await agent.sessions.export_to(again, "talk")
    header = again.read_bytes().splitlines()[0]
    assert header.startswith(b'{"type":"archive","haptera":1,')
    assert b"holdfast" not in header


async def test_a_later_version_of_that_name_is_refused_as_one(tmp_path: Path) -> None:
    later = tmp_path / "later.archive"
    later.write_bytes(EXPORTED.read_bytes().replace(b'"holdfast":1', b'"holdfast":2', 1))
    async with agent_of() as agent:
        with pytest.raises(StoreError) as caught:
            await agent.sessions.import_from(later)
    assert caught.value.code == ErrorCode.VERSION_UNSUPPORTED


async def test_a_recording_of_that_name_is_replayed_and_added_to(tmp_path: Path) -> None:
    replay = ReplayClient(RECORDED)
    agent = Agent("scripted/one", providers=[replay], store="memory", environment={})
    async with agent, agent.session() as session:
        assert (await session.chat(QUESTION)).text == "Oslo."
    replay.check()
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(RECORDED.read_bytes())
    async with agent_of("Bergen.", record_to=copy) as agent, agent.session() as session:
        await session.chat("And the second city?")
    assert len(read_recording(copy)[1]) == 2


def test_a_prompt_has_the_id_that_transcripts_have_of_it() -> None:
    known = "8ac1a47c-06c4-5c0e-b825-ba122fd07135"
    assert prompt_id(QueryId("query"), MessageId("message")) == known


def test_the_file_of_a_project_is_not_looked_for_under_that_name(tmp_path: Path) -> None:
    sources = ConfigurationSources(cwd=tmp_path, environment={"HOME": str(tmp_path)})
    for name, is_found in ((".holdfast", False), (".haptera", True)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text("[defaults]\n")
        assert (project_file(sources) is not None) == is_found


def test_a_variable_of_that_name_is_warned_of_once_and_not_read(tmp_path: Path) -> None:
    variables = {"HOLDFAST_STORE": "nowhere:at all", "HOLDFAST_HOME": str(tmp_path / "home")}
    variables |= {"HOLDFAST_OWNER": " ", "HOLDFAST_WIRE": str(tmp_path)}  # not set, and not ours
    command = [sys.executable, "-P", "-c", TWO_AGENTS]
    environment = {"HOME": str(tmp_path), **variables}
    done = subprocess.run(command, capture_output=True, check=True, env=environment, text=True)
    assert done.stderr.splitlines() == [
        "HOLDFAST_HOME is not read; the variable is HAPTERA_HOME now",
        "HOLDFAST_STORE is not read; the variable is HAPTERA_STORE now",
    ]
    assert not (tmp_path / "home").exists()
