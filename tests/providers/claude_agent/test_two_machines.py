"""A native agent on two machines with one store: nothing is lost, done twice or stuck."""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from haptera.model.parts import TextPart
from tests.providers.claude_agent.loopback_server import LoopbackServer, serving
from tests.providers.claude_agent.machines import STEPS, Machine

pytestmark = pytest.mark.slow


def machines(folder: Path) -> tuple[Machine, Machine]:
    store = folder / "store"
    return Machine(folder / "a", store), Machine(folder / "b", store)


async def test_two_machines_in_turn_know_each_others_turns(tmp_path: Path) -> None:
    here, there = machines(tmp_path)
    await here.say("#one")
    await there.say("#two")
    (third,) = await here.say("#three")
    (fourth,) = await there.say("#four")
    assert third.text == "seen #one #three #two"
    assert fourth.text == "seen #four #one #three #two"
    assert (third.resume, fourth.resume) == ("native", "native")


async def test_a_transcript_that_was_cut_in_half_is_not_gone_on_with(tmp_path: Path) -> None:
    here, _ = machines(tmp_path)
    await here.say("#one", "#two")
    (path,) = here.transcripts
    path.write_bytes(path.read_bytes()[:-90])
    (third,) = await here.say("#three")
    assert third.text == "seen #one #three #two"
    assert third.resume == "native"
    assert len(path.read_text().splitlines()) == 6


async def test_a_transcript_that_another_program_went_on_with_is_not_taken_for_ours(
    tmp_path: Path,
) -> None:
    here, _ = machines(tmp_path)
    await here.say("#one")
    (path,) = here.transcripts
    with path.open("a") as file:
        file.write('{"type":"user","uuid":"x","message":{"role":"user","content":"#foreign"}}\n')
    (second,) = await here.say("#two")
    assert second.text == "seen #one #two"
    assert second.resume == "native", "the copy in the store is what the log says"


async def check(folder: Path, plan: list[tuple[str, int]], last: int, *, resumes: bool) -> None:
    """Kill machines at steps, carry on at the last one, and look at everything."""
    both = machines(folder)
    await both[0].say("#one")
    await both[1].say("#two")
    for number, (step, where) in enumerate(plan):
        both[where].die_at(step, () if number else ("pay #cut",))
    async with asyncio.timeout(20):
        if resumes:
            await both[last].carry_on()
        (view,) = await both[last].say("#last")
        (other,) = await both[1 - last].say("#other")
    wanted = {"#one", "#two", "#cut", "#last"}
    assert wanted <= set(view.text.split()), (plan, view.resume, view.text)
    assert wanted | {"#other"} <= set(other.text.split()), (plan, other.resume, other.text)
    paid = (folder / "paid").read_text() if (folder / "paid").exists() else ""
    assert len(paid.splitlines()) <= 1, "the tool ran twice"
    async with both[0].agent() as agent, agent.session("ana") as session:
        prompts = [
            part.text
            for message in session.messages
            for part in message.parts
            if message.role == "user" and isinstance(part, TextPart)
        ]
        assert not session.unfinished.query_id
        answer = [message.text for message in session.messages if message.role == "assistant"]
    assert prompts == ["#one", "#two", "pay #cut", "#last", "#other"]
    if resumes:
        assert any("#cut" in said and "#last" not in said for said in answer), answer


@pytest.mark.parametrize("step", STEPS)
async def test_a_query_that_was_cut_off_here_is_carried_on_there(tmp_path: Path, step: str) -> None:
    await check(tmp_path, [(step, 0)], 1, resumes=True)


@pytest.mark.parametrize("step", ["kept", "mirrored", "ran", "wrote"])
async def test_a_query_that_was_cut_off_is_carried_on_where_it_was(
    tmp_path: Path, step: str
) -> None:
    await check(tmp_path, [(step, 0)], 0, resumes=True)


@pytest.mark.parametrize("step", ["kept", "ran"])
async def test_a_query_that_is_left_behind_is_told_with_the_next_prompt(
    tmp_path: Path, step: str
) -> None:
    await check(tmp_path, [(step, 0)], 1, resumes=False)


async def test_a_query_that_is_cut_off_twice_is_carried_on_by_the_first(tmp_path: Path) -> None:
    await check(tmp_path, [("told", 0), ("got", 1)], 0, resumes=True)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(60))
async def test_machines_that_die_at_random_steps_lose_nothing(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    early = ("got", "kept", "began", "mirrored", "told", "said", "wrote")
    plan = [(choose.choice(early), choose.randrange(2))]
    if choose.random() < 0.6:
        plan.append(("got", choose.randrange(2)))
    await check(tmp_path, plan, choose.randrange(2), resumes=choose.random() < 0.7)


PAYS = 'call mcp__haptera__pay {"mark": "#dies"}'
SAYS = "slow #half"


async def cut_off(machine: Machine, server: LoopbackServer, prompt: str) -> None:
    """Let a machine die while its model answers, or inside a tool."""
    server.streaming.clear()
    server.go_on.clear()
    process = machine.started(prompt)
    if prompt == SAYS:
        assert await asyncio.to_thread(server.streaming.wait, 30)
        os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.join, 30)
    assert process.exitcode == -signal.SIGKILL
    server.go_on.set()


REAL = [
    (prompt, first, last, resumes)
    for prompt in (SAYS, PAYS)
    for first, last, resumes in (
        (0, 1, True),
        (0, 0, True),
        (1, 0, True),
        (0, 1, False),
        (0, 0, False),
    )
]


@pytest.mark.parametrize(
    ("prompt", "first", "last", "resumes"),
    [
        pytest.param(*case, marks=() if case in (REAL[0], REAL[6]) else pytest.mark.soak)
        for case in REAL
    ],
)
async def test_the_real_cli_on_two_machines(
    tmp_path: Path, prompt: str, first: int, last: int, *, resumes: bool
) -> None:
    with serving() as server:
        both = [Machine(tmp_path / name, tmp_path / "store", url=server.url) for name in "ab"]
        await both[0].say("#one: say Yes one.")
        (second,) = await both[1].say("#two: say Yes two.")
        assert second.resume == "native"
        await cut_off(both[first], server, prompt)
        if resumes:
            result = await both[last].carry_on()
            assert result.stop_reason == "complete"
        (after,) = await both[last].say("#last: say Last.")
        (other,) = await both[1 - last].say("#other: say Other.")
        assert after.text == "Last."
        assert other.text == "Other."
        seen = server.last
    mark = "#half" if prompt == SAYS else "#dies"
    assert all(each in seen for each in ("#one", "#two", mark, "#last", "#other"))
    if prompt == PAYS:
        assert (tmp_path / "paid").read_text() == "#dies\n"
