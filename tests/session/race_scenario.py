"""One session under fire: everything that can happen to a query, at times drawn by chance."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast import Agent, AgentSession, ApprovalRequest, Approve, Deny, QueryEnded, tool
from holdfast.stores.memory import MemoryStore
from holdfast.testing import LoopClock, ScriptedProvider, calls, says
from holdfast.vocabulary.approvals import Decision
from holdfast.vocabulary.entries import (
    ApprovalRequested,
    ApprovalSettled,
    Entry,
    QueryStarted,
)
from holdfast.vocabulary.errors import AgentError, ErrorCode, ProviderError
from holdfast.vocabulary.parts import ToolResultPart
from holdfast.vocabulary.settings import RetrySettings
from holdfast.vocabulary.stream_parts import StreamPart
from tests.history_grammar import violations
from tests.scripted_agents import live_of

HAPPENINGS = ("abort", "close", "approve", "deny", "steer", "result", "error", "timeout")
_LONGEST = 4.0


@dataclass
class Scenario:
    """What one run is to go through, and what was seen to happen, in order."""

    chance: random.Random
    seen: list[str] = field(default_factory=list)

    def at_random(self) -> float:
        """Draw a moment of virtual time."""
        return self.chance.uniform(0, _LONGEST)

    def pause(self) -> Callable[[], Awaitable[None]]:
        """Draw a wait for the provider's script."""
        seconds = self.chance.uniform(0, 1)
        return lambda: asyncio.sleep(seconds)

    def note(self, happening: str) -> None:
        """Write down that something happened now."""
        self.seen.append(happening)


@tool(approval="ask")
async def risky(step: int) -> str:
    """Do something that must be allowed."""
    await asyncio.sleep(0.1)
    return f"step {step} done"


def _spread(scenario: Scenario, parts: list[StreamPart]) -> list[object]:
    beats: list[object] = []
    for part in parts:
        beats += [[part], scenario.pause()] if scenario.chance.random() < 0.5 else [[part]]
    return beats


def _script(scenario: Scenario) -> ScriptedProvider:
    first = _spread(scenario, calls(("risky", {"step": 1}), ("risky", {"step": 2}), text="I try."))
    second = _spread(scenario, says("It ", "is ", "done."))

    async def note_result() -> None:
        scenario.note("result")

    async def note_error() -> None:
        scenario.note("error")

    if scenario.chance.random() < 0.4:
        broken = ProviderError(ErrorCode.BAD_REQUEST, "no", basis="status")
        target = scenario.chance.choice((first, second))
        place = scenario.chance.randrange(len(target))
        target[place:] = [note_error, broken]
    second.insert(max(0, len(second) - 1), note_result)
    provider = ScriptedProvider([first, second])  # type: ignore[list-item]
    # Steering prompts may make the query, or another after it, ask more often.
    late_error = [note_error, ProviderError(ErrorCode.BAD_REQUEST, "no", basis="status")]
    provider.add(scenario.chance.choice((says("more"), late_error)))  # type: ignore[arg-type]
    provider.add(*[says(f"more {number}") for number in range(4)])
    return provider


def _approver(scenario: Scenario) -> Callable[[ApprovalRequest], Awaitable[Decision]]:
    async def decide(request: ApprovalRequest) -> Decision:
        if request.arguments == {"step": 99}:
            return Approve()
        await asyncio.sleep(scenario.chance.uniform(0, 1.5))
        if scenario.chance.random() < 0.5:
            scenario.note("approve")
            return Approve()
        scenario.note("deny")
        return Deny("not now")

    return decide


async def _disturb(scenario: Scenario, session: AgentSession, happening: str) -> None:
    await asyncio.sleep(scenario.at_random())
    scenario.note(happening)
    try:
        if happening == "abort":
            session.abort("chance")
        elif happening == "steer":
            await session.steer("faster, please")
        elif happening == "close":
            await session.close(force=scenario.chance.random() < 0.5)
        else:
            await _decide(scenario, session, happening)
    except AgentError as error:
        assert error.code in (ErrorCode.CLOSED, ErrorCode.ABORTED, ErrorCode.NOT_FOUND)


async def _decide(scenario: Scenario, session: AgentSession, happening: str) -> None:
    """Answer an approval from outside, in time or too late."""
    asked = session.unfinished.approvals
    approval_id = asked[0].id if asked else "apr_of_yesterday"
    if happening == "approve":
        await session.approve(approval_id)
    else:
        await session.deny(approval_id, "no")


async def _note_at(scenario: Scenario, happening: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    scenario.note(happening)


async def _consume(session: AgentSession, timeout: float | None) -> None:
    ends = 0
    try:
        async for event in session.stream("go", total_timeout=timeout):
            assert ends == 0, "an event came after the terminal one"
            ends += isinstance(event, QueryEnded)
    except AgentError as error:
        if error.code is ErrorCode.CLOSED:
            return  # the session was closed before the prompt was taken in
    assert ends == 1, f"{ends} terminal events"


async def play(seed: int) -> Scenario:
    """Run one scenario and check what must hold whatever happened."""
    scenario, _ = await _play(seed)
    return scenario


async def play_log(seed: int) -> list[Entry]:
    """Run one scenario and return the log that it leaves."""
    _, log = await _play(seed)
    return log


async def _play(seed: int) -> tuple[Scenario, list[Entry]]:
    scenario = Scenario(random.Random(seed))
    provider, store = _script(scenario), MemoryStore()
    agent = Agent(
        "scripted/m",
        providers=[provider],
        tools=[risky],
        store=store,
        approver=_approver(scenario),
        clock=LoopClock(),
        retry=RetrySettings(max_retries=0),
    )
    outside = ("abort", "steer", "close", "approve", "deny")
    wanted = [name for name in outside if scenario.chance.random() < 0.4]
    timeout = scenario.at_random() + 0.01 if scenario.chance.random() < 0.3 else None
    session = agent.session()
    session_id = (await live_of(session)).session_id
    async with asyncio.TaskGroup() as group:
        group.create_task(_consume(session, timeout))
        if timeout is not None:
            group.create_task(_note_at(scenario, "timeout", timeout))
        for name in wanted:
            group.create_task(_disturb(scenario, session, name))
    if "close" not in scenario.seen:
        await _check_next_query(session, provider)
    await agent.close()
    log = await store.log.read(session_id)
    _check_log(log)
    assert provider.open_streams == 0
    return scenario, log


async def _check_next_query(session: AgentSession, provider: ScriptedProvider) -> None:
    """Whatever came before, the next query runs: its tool is approved and its answer kept."""
    await session.wait_idle()
    provider.replace_rest(calls(("risky", {"step": 99}), ids=["last"]), says("all is well"))
    asked = len(provider.requests)
    result = await session.chat("still there?")
    assert result.text == "all is well"
    outcomes = [
        part.outcome
        for message in result.messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    assert outcomes == ["ok"]
    for request in provider.requests[asked:]:
        assert violations(request.messages) == []


def _check_log(log: list[Entry]) -> None:
    started = [entry.query_id for entry in log if isinstance(entry, QueryStarted)]
    ended = [entry.query_id for entry in log if isinstance(entry, QueryEnded)]
    assert started == ended
    assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
    asked = [entry.approval_id for entry in log if isinstance(entry, ApprovalRequested)]
    settled = [entry.approval_id for entry in log if isinstance(entry, ApprovalSettled)]
    assert sorted(settled) == sorted(asked), "an approval is settled once"
