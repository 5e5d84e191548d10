"""What Claude Code is told beside the prompt, which limits hold, and how its faults are named."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from haptera import AgentError, ConfigError
from haptera.building_blocks import NativeResult, make_native
from haptera.model.errors import ErrorCode
from haptera.model.events import NativeNoted
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.providers.claude_agent import connection
from tests.agent.sessions.test_native_sessions import events_of, transcript_of, turn
from tests.providers.claude_agent.children import (
    FIRST,
    MODEL,
    SECOND,
    USER,
    Child,
    agent_of,
    call,
    claude_agent,
    drain,
    emit,
    init,
    open_session,
    opening,
    result,
    text,
    tool_result,
    until,
    words,
)
from tests.scripted_agents import live_of

pytestmark = pytest.mark.slow

CUT: Any = result(subtype="error_during_execution", is_error=True, terminal_reason="aborted")[
    "emit"
]


async def test_options_of_claude_code_reach_its_command_line(tmp_path: Path) -> None:
    child = Child(tmp_path, [])
    settings: dict[str, Any] = {
        "max_budget_usd": 2.5,
        "fallback_model": "claude-haiku-4-5",
        "betas": ("context-1m", "other"),
        "skills": ("pdf", "all"),
        "file_checkpointing": True,
        "add_dirs": ("/data", "/more"),
        "sandbox": {"enabled": True},
        "settings": '{"model": "x"}',
        "plugins": ("/plug",),
        "extra_args": {"brief": None, "agent": "-x"},
    }
    session = await claude_agent(child, **settings).open(opening())
    await session.close(within=0)
    (start,) = child.of("start")
    argv, environment = start["argv"], start["env"]
    for expected in (
        "--max-budget-usd=2.5",
        "--fallback-model=claude-haiku-4-5",
        "--betas=context-1m,other",
        "--add-dir=/data",
        "--add-dir=/more",
        "--plugin-dir=/plug",
        "--brief",
        "--agent=-x",
        "--allowedTools=Skill(pdf),Skill",
    ):
        assert expected in argv, expected
    told = next(each for each in argv if each.startswith("--settings="))
    wanted = {"model": "x", "sandbox": {"enabled": True}}
    assert json.loads(told.removeprefix("--settings=")) == wanted
    assert environment["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] == "true"
    assert environment["ENABLE_TOOL_SEARCH"] == "false"


async def test_settings_that_cannot_be_read_are_configuration(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"settings": str(tmp_path / "none.json"), "sandbox": {}}
    with pytest.raises(ConfigError) as caught:
        await claude_agent(Child(tmp_path, []), **settings).open(opening())
    assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_what_executes_cannot_be_set_by_the_file_of_a_project(tmp_path: Path) -> None:
    (tmp_path / ".haptera").mkdir()
    (tmp_path / ".haptera" / "config.toml").write_text(
        '[defaults.claude_agent]\nextra_args = { "agent" = "evil" }\n'
    )
    child = Child(tmp_path, turn("Hello."))
    async with agent_of(child, workspace=tmp_path) as agent:
        await agent.run("Hi")
    assert not any("evil" in each for each in child.argv)


async def test_a_program_that_refuses_its_settings_is_a_fault_of_configuration(
    tmp_path: Path,
) -> None:
    child = Child(tmp_path, [{"say": "error: unknown option '--nope'"}, {"die": 1}], silent=ALL)
    with pytest.raises(AgentError) as caught:
        await open_session(child)
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert "--nope" in str(caught.value)


ALL = ["initialize"]


async def test_a_silent_program_is_a_timeout_that_says_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.CONNECT_SECONDS == 20
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1.0)
    child = Child(tmp_path, [{"say": "waiting for a login"}], silent=ALL)
    with pytest.raises(AgentError) as caught:
        await open_session(child)
    assert caught.value.code is ErrorCode.TIMEOUT
    assert "waiting for a login" in str(caught.value)


async def test_facts_of_the_start_and_servers_that_failed_are_events(tmp_path: Path) -> None:
    started: Any = init()
    started["emit"]["mcp_servers"] = [
        {"name": "bad", "status": "failed"},
        {"name": "good", "status": "connected"},
    ]
    started["emit"]["permissionMode"] = "default"
    child = Child(tmp_path, [USER, started, *text("Hello."), result("Hello.")])
    async with agent_of(child) as agent, agent.session() as session:
        events = await events_of(session.stream("Hi"))
    noted = {each.name: each.facts for each in events if isinstance(each, NativeNoted)}
    assert noted["init"]["permissionMode"] == "default"
    assert noted["mcp_server_failed"] == {"name": "bad", "status": "failed"}


async def test_a_changed_system_prompt_takes_effect_in_a_new_native_session(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'a.db'}"
    first = Child(tmp_path / "a", turn("One."))
    second = Child(tmp_path / "b", [*turn("Two.", 2, SECOND), *turn("Three.", 3, SECOND)])
    transcript_of(second)
    options = {"store": store, "project": "p"}
    agent = agent_of(first, system_prompt="Be brief.", **options)
    async with agent, agent.session("ana") as session:
        await session.chat("1")
    agent = agent_of(second, system_prompt="Be long.", **options)
    async with agent, agent.session("ana") as session:
        two, three = await session.chat("2"), await session.chat("3")
    assert (two.resume, three.resume) == ("replay", "native")
    assert f"--resume={FIRST}" not in second.argv


async def test_an_idle_program_that_died_is_opened_again_before_the_prompt(tmp_path: Path) -> None:
    child = Child(tmp_path / "a", turn("One."))
    transcript_of(child)
    async with agent_of(child) as agent, agent.session("ana") as session:
        await session.chat("1")
        pid = child.of("start")[-1]["pid"]
        script = (Child(tmp_path / "b", turn("Two.", 2)).folder / "script.json").read_text()
        (child.folder / "script.json").write_text(script)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        live = await live_of(session)
        await until(lambda: not live.has_native_open)
        two = await session.chat("2")
    assert (two.text, two.resume, two.resumed) == ("Two.", "native", True)


@pytest.mark.parametrize(
    ("limits", "detail"), [({"cost": 5}, "cost=5"), ({"tool_calls": 1}, "tool_calls=1")]
)
async def test_a_limit_ends_a_query_before_its_next_turn(
    tmp_path: Path, limits: dict[str, Any], detail: str
) -> None:
    (tmp_path / "config.toml").write_text(f'[prices."{MODEL}"]\ninput = 1_000_000\noutput = 0\n')
    steps = [USER, init(), *call("Read", {}), tool_result("seen"), *text("More", "msg_2")[:3]]
    child = Child(tmp_path, [*steps, {"gate": "never"}], on_interrupt=[CUT])
    async with agent_of(child, config_dir=tmp_path, limits=limits) as agent:
        answer = await agent.run("Hi")
    assert (answer.stop_reason, answer.stop_detail) == ("limit", detail)
    assert "interrupt" in child.of("control")


async def test_a_limit_of_seconds_ends_a_query(tmp_path: Path) -> None:
    steps = [USER, init(), *text("More")[:3], {"gate": "never"}]
    child = Child(tmp_path, steps, on_interrupt=[CUT])
    async with agent_of(child, limits={"seconds": 0.3}) as agent:
        answer = await agent.run("Hi")
    assert (answer.stop_reason, answer.stop_detail) == ("limit", "seconds=0.3")


async def test_prompts_that_were_answered_together_leave_no_stream_waiting(tmp_path: Path) -> None:
    def done(number: int) -> dict[str, Any]:
        return emit(type="command_lifecycle", command_uuid=str(number), state="completed")

    steps = [USER, USER, init(), *text("Both."), result("Both."), done(1), done(2)]
    session = await open_session(Child(tmp_path, steps))
    await session.send(words("1"), prompt_id="1")
    await session.send(words("2"), prompt_id="2")
    first = await drain(session)
    async with asyncio.timeout(5):
        second = await drain(session)
    assert isinstance(first[-1], NativeResult)
    assert second == []
    await session.close(within=0)


async def test_a_live_session_is_a_building_block(tmp_path: Path) -> None:
    child = Child(tmp_path, turn("Hello."))
    settings = ClaudeAgentSettings(executable=str(child.executable))
    made = make_native(
        MODEL, claude_agent=settings, environment=child.environment(), cwd=child.folder
    )
    async with made as native:
        messages = await native.prompt("Hi")
        assert isinstance(messages[-1], NativeResult)
        session = await native.open()
        assert await session.ensure_session_id(within=1) == await session.session_id()
        await session.send(words("again"))
        heard = [message async for batch in session.stream() for message in batch]
        await session.close(within=0)
        assert isinstance(heard[-1], NativeResult)
        transcript_of(child)
        later = await native.resume_session(FIRST)
        assert await later.session_id() == FIRST
        await later.close(within=0)
    assert f"--resume={FIRST}" in child.argv
