"""MCP servers as tools of an agent: calls, results, progress, questions, restarts and closing."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from haptera import (
    AbortController,
    AgentError,
    ApprovalRequest,
    Approve,
    Deny,
    ErrorCode,
    MediaPart,
    TextPart,
    ToolProgress,
    tool,
)
from haptera.testing import FakeClock, calls, says
from haptera.testing.clocks import one_turn
from haptera.tools.mcp import McpServer, server_process, supervision
from haptera.tools.mcp.supervision import CHECK_AFTER
from tests.scripted_agents import (
    events_of,
    failure_of,
    make_agent,
    outcomes_in,
    playing,
    tasks_left,
)
from tests.tools.mcp.mcp_agents import (
    names_offered,
    notes_in,
    pid_in,
    raw_server,
    results_of,
    state_of,
)

pytestmark = pytest.mark.slow


async def test_a_server_is_started_by_the_first_query_and_ended_with_the_agent(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    server = raw_server(log=log)
    steps = [calls(("raw__echo", {"a": [1, "ü"]})), says("done"), says("again")]
    agent, provider = make_agent(steps, tools=[server])
    async with agent, agent.session() as session:
        assert (server.status.state, notes_in(log)) == ("stopped", [])
        await session.chat("go")
        await session.chat("more")
        assert server.status.state == "running"
        assert server.status.server == "raw 1"
        assert server.status.instructions == "be kind"
    assert state_of(server) == "stopped"
    assert tasks_left() == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid_in(log), 0)
    assert len([line for line in notes_in(log) if line.startswith("started")]) == 1
    assert outcomes_in(provider.requests[1]) == [("raw__echo", "ok", '{"a": [1, "\\u00fc"]}')]


async def test_results_of_every_kind_become_parts() -> None:
    results, _ = await results_of(
        ("raw__media", {}), ("raw__structured", {}), ("raw__fail", {}), ("raw__binary", {}),
        server=raw_server(),
    )  # fmt: skip
    media, structured, failed, binary = results
    assert [type(part) for part in media.content] == [
        *(TextPart, MediaPart, MediaPart, TextPart, TextPart, TextPart, TextPart)
    ]
    assert [part.mime for part in media.content if isinstance(part, MediaPart)] == [
        *("image/png", "audio/wav")
    ]
    assert [part.text for part in media.content if isinstance(part, TextPart)] == [
        "see",
        "[image is left out: it is not base64]",
        "[resource file:///a.txt]\ninside",
        "[resource file:///b: application/zip, about 33 bytes, not shown]",
        "[resource file:///c (text/plain): linked]",
    ]
    assert structured.text == '{"degrees":7}'
    assert (failed.outcome, failed.text) == ("error", "McpError: it went wrong")
    assert binary.text == "[image of 9437184 bytes is left out: too large]"


async def test_a_result_of_ten_megabytes_is_cut_kept_and_paged_through() -> None:
    results, provider = await results_of(("raw__big", {}), server=raw_server())
    (result,) = results
    assert len(result.text) < 31_000
    assert "of 10000000 characters are left out here" in result.text
    assert "mcp__read_output" in result.text
    assert "mcp__read_output" in names_offered(provider)


async def test_a_model_reads_on_in_a_long_result(tmp_path: Path) -> None:
    async with playing(
        [calls(("raw__big", {})), says("cut")],
        tools=[raw_server()],
        store=f"sqlite:{tmp_path}/s.db",
    ) as (session, provider):
        await session.chat("go")
        ((_, _, shown),) = outcomes_in(provider.requests[-1])
        name = shown.partition('name="')[2].partition('"')[0]
        session_id = session.session_id
    page = calls(("mcp__read_output", {"name": name, "offset": 9_999_990}))
    agent, provider = make_agent(
        [page, says("read")], tools=[raw_server()], store=f"sqlite:{tmp_path}/s.db"
    )
    async with agent, agent.session(session_id) as session:
        await session.chat("go on")
    assert outcomes_in(provider.requests[-1])[-1][2].startswith("0123456789\n[the end")


async def test_progress_of_a_server_is_progress_of_the_call() -> None:
    async with playing([calls(("raw__steps", {})), says("done")], tools=[raw_server()]) as (
        session,
        _,
    ):
        events = await events_of(session)
    assert [event.progress for event in events if isinstance(event, ToolProgress)] == [
        {"progress": step, "total": 3, "message": str(step)} for step in (1, 2, 3)
    ]


async def test_an_abort_cancels_the_call_at_the_server(tmp_path: Path) -> None:
    log, controller = tmp_path / "log", AbortController()
    agent, _ = make_agent([calls(("raw__slow", {}))], tools=[raw_server(log=log)])
    async with agent:
        with pytest.raises(AgentError) as caught:
            async for event in agent.stream("go", signal=controller.signal):
                if isinstance(event, ToolProgress):  # the call has reached the server
                    controller.abort()
    assert caught.value.code is ErrorCode.ABORTED
    (number,) = [line.split()[1] for line in notes_in(log) if line.startswith("slow")]
    assert f"cancelled {number}" in notes_in(log)


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    results, _ = await results_of(("raw__slow", {}), server=raw_server(log=log, timeout=0.05))
    assert (results[0].outcome, results[0].text) == (
        "timed_out",
        "the tool took longer than 0.05 s",
    )
    assert any(line.startswith("cancelled") for line in notes_in(log))


async def test_a_server_that_crashes_is_started_again_by_the_next_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    results, _ = await results_of(
        ("raw__crash", {}), ("raw__echo", {"n": 1}), server=raw_server(log=log)
    )
    crashed, echoed = results
    assert crashed.outcome == "error"
    assert "the MCP server 'raw' has ended (exit status 7)" in crashed.text
    assert crashed.text.endswith("it wrote last: about to crash")
    assert (echoed.outcome, echoed.text) == ("ok", '{"n": 1}')
    assert len([line for line in notes_in(log) if line.startswith("started")]) == 2


async def test_a_server_that_crashes_again_and_again_is_started_later_each_time(
    tmp_path: Path,
) -> None:
    clock, log = FakeClock(), tmp_path / "log"
    server = raw_server("dies", log, clock=clock)
    for seconds in (0, 0, 1, 2, 4, 8, 16, 32, 60, 60):
        if seconds:
            clock.advance(seconds - 0.5)
            early = await failure_of(server.check())
            assert "It is started again in" in early.message
            clock.advance(0.5)
        error = await failure_of(server.check())
        assert "did not start (exit status 1)" in error.message
        assert error.message.endswith("it wrote last: no licence")
    assert len(notes_in(log)) == server.status.failures == 10
    assert server.status.state == "failed"
    await server.close()
    assert server.status.failures == 0


async def test_a_server_that_was_not_used_for_a_while_is_checked_before_a_call(
    tmp_path: Path,
) -> None:
    clock, log = FakeClock(), tmp_path / "log"
    async with raw_server(log=log, clock=clock) as server:
        assert (await server.resources())[0].uri == "memo://one"
        assert "ping" not in notes_in(log)
        clock.advance(CHECK_AFTER)
        await server.resources()
        assert notes_in(log).count("ping") == 1


async def test_a_server_that_was_killed_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with raw_server(log=log) as server:
        os.kill(pid_in(log), signal.SIGKILL)
        while state_of(server) == "running":
            await one_turn()
        assert state_of(server) == "failed"
        assert len(await server.prompts()) == 1
        assert state_of(server) == "running"


async def test_a_server_that_hangs_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(server_process, "_GRACE_SECONDS", 0.05)
    clock, log = FakeClock(), tmp_path / "log"
    async with raw_server(log=log, clock=clock) as server:
        hanging = pid_in(log)
        os.kill(hanging, signal.SIGSTOP)
        clock.advance(CHECK_AFTER)
        assert len(await server.prompts()) == 1
        assert pid_in(log, -1) != hanging
        with pytest.raises(ProcessLookupError):
            os.kill(hanging, 0)


async def test_tools_are_listed_again_when_the_server_says_so() -> None:
    steps = [calls(("raw__change", {})), says("a")]
    agent, provider = make_agent([*steps, says("b")], tools=[server := raw_server()])
    async with agent, agent.session() as session:
        await session.chat("go")
        assert "raw__later0" not in names_offered(provider)
        before = server.tools()
        while server.tools() is before and "raw__later0" not in server.status.tools:
            await one_turn()
        await session.chat("more")
    assert "raw__later0" in names_offered(provider, -1)


async def test_an_unchanged_list_is_the_same_object(tmp_path: Path) -> None:
    clock = FakeClock()
    async with raw_server(clock=clock) as server:
        before = server.tools()
        await server.close()
        await server.check()
        assert server.tools() is before


async def test_a_person_fills_in_the_form_of_a_server() -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> Approve:
        asked.append(request)
        return Approve({"city": "Oslo"})

    results, _ = await results_of(("raw__ask", {}), server=raw_server(), approver=approve)
    assert json.loads(results[0].text) == {
        "action": "accept",
        "content": {"city": "Oslo", "nights": 2},
    }
    (request,) = asked
    assert (request.reason, request.asked_by) == ("the MCP server 'raw' asks you", "tool")
    assert request.tool == "raw__elicitation"
    assert request.arguments == {
        "message": "Where to?",
        "fields": {
            "city": {"type": "string", "description": "Adds red text"},
            "nights": {"type": "integer", "default": 2},
        },
    }


@pytest.mark.parametrize(
    ("approver", "action"),
    [
        (None, "decline"),
        (lambda _: Deny("no"), "decline"),
        (lambda _: Approve(), "cancel"),
        (lambda _: Approve({"city": 7}), "cancel"),
        (lambda _: Approve({"city": "Oslo", "nights": True}), "cancel"),
        (lambda _: "yes", "decline"),
    ],
)
async def test_a_question_that_no_person_answers_well_is_not_accepted(
    approver: Any, action: str
) -> None:
    results, _ = await results_of(
        ("raw__ask", {}), server=raw_server(), approver=approver, unanswered="deny"
    )
    assert json.loads(results[0].text) == {"action": action}


async def test_a_person_consents_to_a_page() -> None:
    results, _ = await results_of(
        ("raw__open_page", {}), server=raw_server(), approver=lambda _: Approve()
    )
    assert json.loads(results[0].text) == {"action": "accept"}


async def test_an_abort_withdraws_the_question_of_a_server() -> None:
    controller, seen = AbortController(), []

    async def wait_for_ever(request: ApprovalRequest) -> Approve:
        seen.append(request.tool)
        controller.abort()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("withdrawn")
        raise AssertionError

    agent, _ = make_agent([calls(("raw__ask", {}))], tools=[raw_server()], approver=wait_for_ever)
    async with agent:
        error = await failure_of(agent.run("go", signal=controller.signal))
    assert error.code is ErrorCode.ABORTED
    assert seen == ["raw__elicitation", "withdrawn"]
    assert tasks_left() == []


async def test_sampling_is_refused_politely() -> None:
    results, _ = await results_of(("raw__sample", {}), server=raw_server())
    assert "not supported" in results[0].text


async def test_annotations_say_the_effect_and_count_only_if_they_are_trusted() -> None:
    for trusted in (False, True):
        async with raw_server(trust_annotations=trusted, approval="ask") as server:
            rules = {item.spec.name: item.rules for item in server.tools()}
        effects = [rules[f"raw__{name}"].effect for name in ("look", "store", "echo")]
        assert effects == ["read", "write", "external"]
        asked = [rules[f"raw__{name}"].approval for name in ("look", "store", "echo")]
        assert asked == (["never", "ask", "ask"] if trusted else ["ask", "ask", "ask"])
        again = [rules[f"raw__{name}"].idempotent for name in ("look", "store", "echo")]
        assert again == [trusted, trusted, False]


async def test_a_person_is_asked_before_a_call_unless_a_rule_allows_it() -> None:
    server = raw_server(approval="ask")
    denied, _ = await results_of(("raw__echo", {}), server=server, approver=lambda _: Deny("no"))
    assert denied[0].outcome == "denied"
    allowed, _ = await results_of(
        ("raw__echo", {}),
        server=raw_server(approval="ask"),
        permissions={"allow": ["raw__*"]},
        approver=lambda _: Deny("no"),
    )
    assert allowed[0].outcome == "ok"


async def test_resources_and_prompts_can_be_had() -> None:
    async with raw_server() as server:
        resources = [(item.uri, item.is_template) for item in await server.resources()]
        assert resources == [("memo://one", False), ("memo://{name}", True)]
        (content,) = await server.read_resource("memo://one")
        assert isinstance(content, TextPart)
        assert content.text == "[resource memo://one]\nremember"
        (prompt,) = await server.prompts()
        assert (prompt.name, prompt.arguments[0].is_required) == ("greet", True)
        (message,) = await server.prompt("greet", {"who": "Ana"})
        assert (message.role, message.text) == ("user", "Greet Ana.")


async def test_a_model_can_read_resources() -> None:
    results, _ = await results_of(
        ("raw__list_resources", {}), ("raw__read_resource", {"uri": "memo://one"}),
        server=raw_server(),
    )  # fmt: skip
    assert json.loads(results[0].text)[0] == {
        "uri": "memo://one",
        "name": "one",
        "mime": "text/plain",
    }
    assert results[1].text == "[resource memo://one]\nremember"


async def test_no_variable_of_the_process_reaches_a_server_unless_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HAPTERA_CANARY", "canary-in-the-process")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-in-the-process")
    environment = {"AGENT_SECRET": "canary-of-the-agent", "LANG": "nb_NO.UTF-8"}
    server = raw_server(environment=environment, env={"GIVEN": "yes"})
    results, _ = await results_of(("raw__environment", {}), server=server, environment=environment)
    assert "canary" not in results[0].text
    seen = json.loads(results[0].text)
    assert (seen["GIVEN"], seen["LANG"]) == ("yes", "nb_NO.UTF-8")
    plain = McpServer("raw", command="python", approval="never")
    assert set(plain._settings.variables()) == {"PATH", "HOME", "LANG", "TERM"}


async def test_a_tool_of_the_program_wins_over_one_of_a_server() -> None:
    @tool(name="raw__echo")
    def own() -> str:
        """Say mine."""
        return "mine"

    agent, provider = make_agent(
        [calls(("raw__echo", {})), says("done")], tools=[raw_server(), own]
    )
    async with agent:
        await agent.run("go")
    assert outcomes_in(provider.requests[-1]) == [("raw__echo", "ok", "mine")]


async def test_a_query_goes_on_without_a_server_that_does_not_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, provider = make_agent([says("without")], tools=[raw_server("dies")])
    async with agent:
        assert (await agent.run("go")).text == "without"
    assert names_offered(provider) == []
    assert "did not start" in caplog.text


async def test_nothing_is_started_for_a_query_that_may_use_no_tools(tmp_path: Path) -> None:
    agent, _ = make_agent([says("a")], tools=[raw_server(log=tmp_path / "log")], allowed_tools=[])
    async with agent:
        await agent.run("go")
    assert notes_in(tmp_path / "log") == []


def test_one_server_serves_one_event_loop_after_the_other() -> None:
    server = raw_server()

    async def use() -> str:
        (message,) = await server.prompt("greet", {"who": "Bo"})
        await server.close()
        return message.text

    assert [asyncio.run(use()), asyncio.run(use())] == ["Greet Bo."] * 2


async def test_two_agents_share_a_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = raw_server(log=log)
    first, _ = make_agent([calls(("raw__echo", {})), says("a")], tools=[server])
    second, provider = make_agent([calls(("raw__echo", {})), says("b")], tools=[server])
    async with second, first:
        await asyncio.gather(first.run("go"), second.run("go"))
    assert len([line for line in notes_in(log) if line.startswith("started")]) == 1
    assert outcomes_in(provider.requests[-1]) == [("raw__echo", "ok", "{}")]
