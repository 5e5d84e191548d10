"""Whole recorded loops, through an agent: every step read rightly, every request acceptable."""

import json
from pathlib import Path

from haptera import TextDelta
from tests.fixtures_report import Report
from tests.providers.faulty_server import FaultyServer
from tests.providers.grammar.judges import faults_of
from tests.providers.replay_server import Recorded, recorded, replay_server
from tests.providers.vendors_by_recording import CalledTools, agent_for, specs_of


def loops(wire: Path) -> list[list[Recorded]]:
    root = wire / "open"
    sequences = json.loads((root / "sequences.json").read_text(encoding="utf-8"))
    return [[recorded(root / case) for case in sequence["cases"]] for sequence in sequences]


def is_cut(step: Recorded) -> bool:
    return any("without a stop reason" in each for each in step.expect.get("caution") or ())


def queries(steps: list[Recorded]) -> list[list[Recorded]]:
    """Return the steps of each prompt: an answer without calls is the last one."""
    found: list[list[Recorded]] = [[]]
    for step in steps:
        found[-1].append(step)
        if not step.expect["result"]["tool_calls"]:
            found.append([])
    return [query for query in found if query]


async def replay(steps: list[Recorded], server: FaultyServer) -> CalledTools:
    """Have the conversation again that was recorded; return the calls that were made in it."""
    first = steps[0]
    called = CalledTools()
    tools = [called.tool(spec) for spec in specs_of(first.request)]
    made = agent_for(first.api, server.url, model=first.model, tools=tools)
    async with made as agent, agent.session() as session:
        for query in queries(steps):
            pieces = [
                event.text
                async for event in session.stream("Go on, please.")
                if isinstance(event, TextDelta)
            ]
            said = [step.expect["result"]["text"] for step in query if not is_cut(step)]
            assert "".join(pieces) == "".join(said)
            assert session.messages[-1].text == said[-1]
    return called


async def test_every_recorded_loop_is_had_again(wire: Path, report: Report) -> None:
    found = loops(wire)
    requests = 0
    for steps in found:
        async with replay_server(steps) as server:
            called = await replay(steps, server)
        expected = [
            (call["name"], call["arguments"])
            for step in steps
            if not is_cut(step)
            for call in step.expect["result"]["tool_calls"]
        ]
        assert sorted(map(repr, called.calls)) == sorted(map(repr, expected))
        assert len(server.requests) == len(steps)
        for request in server.requests:
            body = json.loads(request.body)
            assert faults_of(steps[0].api, body, model=steps[0].model) == []
            requests += 1
    report(f"recorded loops: {len(found)} of {len(found)}, {requests} requests, 0 refused")
    assert found


async def test_a_call_of_a_stream_that_broke_off_is_not_made_and_the_turn_is_asked_again(
    wire: Path,
) -> None:
    (steps,) = (steps for steps in loops(wire) if any(map(is_cut, steps)))
    async with replay_server(steps) as server:
        called = await replay(steps, server)
    assert called.calls == []
    first, second = (json.loads(request.body)["messages"] for request in server.requests)
    assert first == second
