"""MCP servers that misbehave: what they list, write and send is bounded and made harmless."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import AbortController, ErrorCode
from haptera.testing import says
from haptera.testing.clocks import one_turn
from haptera.tools.mcp import connection, server_process
from haptera.tools.mcp.offered_tools import clean, offered_name
from tests.scripted_agents import failure_of, make_agent, tasks_left
from tests.tools.mcp.mcp_agents import names_offered, notes_in, pid_in, raw_server, results_of

pytestmark = pytest.mark.slow


async def test_a_hostile_list_is_offered_without_harm(tmp_path: Path) -> None:
    agent, provider = make_agent(
        [says("a")], tools=[raw_server("hostile")], workspace=tmp_path, cwd=tmp_path
    )
    async with agent:
        await agent.run("go")
    specs = {spec.name: spec for spec in provider.requests[0].tools}
    of_server = [name for name in specs if name.startswith("raw__")]
    assert [name for name in of_server if name != "raw__list_resources"] == [
        "raw__shell",
        offered_name("raw", "a.b/c d"),
        "raw__a_b_c_d",
        offered_name("raw", "x" * 300),
        "raw__evil",
        "raw__read_resource",
    ]
    assert "Run a command" in specs["shell"].description  # ours is ours
    assert specs["raw__shell"].description == "The tool shell"
    evil = specs["raw__evil"]
    assert evil.description.startswith("Adds red textyyy")
    assert len(evil.description) == 8000
    assert evil.input_schema["properties"]["text"]["description"] == "Adds red text"
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in specs)


async def test_a_name_that_was_mapped_reaches_the_server_as_it_was() -> None:
    results, _ = await results_of(
        (offered_name("raw", "a.b/c d"), {}), server=raw_server("hostile")
    )
    assert results[0].text.endswith("answered with an error: no tool a.b/c d")


async def test_a_schema_that_is_too_deep_to_be_read_costs_its_tool_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with raw_server("deep") as server:
        tools = [name for name in server.status.tools if "resource" not in name]
    assert tools == ["raw__before", "raw__after"]
    for name in ("raw__deep", "raw__deeper"):
        assert f"the schema of {name} is not usable" in caplog.text


async def test_a_list_that_is_not_valid_is_an_error_that_says_where() -> None:
    server = raw_server("invalid")
    error = await failure_of(server.check())
    assert "sent an invalid answer" in error.message
    assert "tools.1.inputSchema.type" in error.message


async def test_a_server_whose_templates_are_not_valid_offers_everything_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with raw_server("invalid-templates") as server:
        assert "raw__echo" in server.status.tools
        assert [found.uri for found in await server.resources()] == ["memo://one"]
    assert "its templates cannot be listed" in caplog.text
    assert "resourceTemplates.0.name" in caplog.text


async def test_a_list_without_end_is_asked_for_so_many_pages_only(tmp_path: Path) -> None:
    async with raw_server("endless", tmp_path / "log") as server:
        assert len(server.status.tools) <= 60
    pages = [line for line in notes_in(tmp_path / "log") if line.startswith("page")]
    assert len(pages) == 50


async def test_a_server_that_says_all_the_time_that_its_list_has_changed_is_asked_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_REFRESH_PAUSE", 1000.0)
    log = tmp_path / "log"
    calls = [("raw__change", {"times": 200})] * 3
    await results_of(*calls, server=raw_server(log=log))
    assert notes_in(log).count("tools/list") <= 2


async def test_an_abort_does_not_wait_for_a_server_that_never_answers(tmp_path: Path) -> None:
    log, controller = tmp_path / "log", AbortController()
    agent, _ = make_agent([], tools=[raw_server("silent", log)])
    async with agent, agent.session() as session:
        query = asyncio.ensure_future(failure_of(session.chat("go", signal=controller.signal)))
        while not notes_in(log):
            await one_turn()
        controller.abort()
        assert (await query).code is ErrorCode.ABORTED
    assert tasks_left() == []


async def test_closing_ends_a_server_that_is_starting(tmp_path: Path) -> None:
    log, server = tmp_path / "log", raw_server("silent", tmp_path / "log")
    waiting = asyncio.ensure_future(failure_of(server.check()))
    while not notes_in(log):
        await one_turn()
    await server.close()
    assert (await waiting).message == "the MCP server 'raw' was closed"
    assert tasks_left() == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid_in(log), 0)


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = raw_server("silent", log, connect_timeout=0.3)
    error = await failure_of(server.check())
    assert (error.code, error.message) == (
        ErrorCode.TOOL_TIMEOUT,
        "the MCP server 'raw' was not ready within 0.3 s",
    )
    assert server.status.state == "failed"
    assert tasks_left() == []
    for line in notes_in(log):  # on a busy machine it may not even have begun
        with pytest.raises(ProcessLookupError):
            os.kill(int(line.split()[1]), 0)


async def test_garbage_between_messages_is_passed_over_and_shown_in_errors() -> None:
    async with raw_server("garbage") as server:
        (message,) = await server.prompt("greet", {"who": "Ana"})
        assert message.text == "Greet Ana."
        assert "[not a message: this is no message]" in server.stderr


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("floods", "it writes what is no MCP to its standard output"),
        ("endless-line", "it sent a message of more than 1 MiB"),
    ],
)
async def test_a_server_that_writes_without_end_is_ended(
    mode: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_process, "MOST_MESSAGE", 1 << 20)
    server = raw_server(mode)
    error = await failure_of(server.check())
    assert reason in error.message
    assert len(error.message) < 5_000
    assert tasks_left() == []


async def test_an_answer_to_a_call_of_no_tool_is_a_failed_result() -> None:
    results, _ = await results_of(("raw__nothing", {}), server=raw_server())
    assert (results[0].outcome, results[0].text) == ("error", "there is no tool 'raw__nothing'")


@given(st.text(max_size=200))
def test_any_name_of_a_tool_becomes_one_that_providers_accept(name: str) -> None:
    assert re.fullmatch(r"time__[A-Za-z0-9_-]{1,58}", offered_name("time", name))


@given(st.lists(st.text(max_size=80), unique=True, max_size=20))
def test_two_tools_of_a_server_never_get_the_same_name(names: list[str]) -> None:
    assert len({offered_name("time", name) for name in names}) == len(names)


@given(st.text(alphabet=st.sampled_from("ab\x1b[]m0;\x07\x9b\n\t\u202e\u200b\x00\\"), max_size=60))
def test_no_control_character_is_left_in_a_text(text: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]", clean(text))


async def test_the_tools_of_a_server_are_named_in_the_order_of_its_list() -> None:
    async with raw_server() as server:
        assert server.status.tools[:2] == ("raw__echo", "raw__fail")
    agent, provider = make_agent([says("a")], tools=[raw_server()])
    async with agent:
        await agent.run("go")
    assert names_offered(provider)[:2] == ["raw__echo", "raw__fail"]
