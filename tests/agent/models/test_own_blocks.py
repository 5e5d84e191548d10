"""Blocks of a program's own, in the sessions of an agent: each is used instead of the default."""

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from haptera import Agent, AgentError, Approve, ErrorCode, StoreError, TextDelta, tool
from haptera.building_blocks import (
    ApprovalCoordinator,
    ControlChannel,
    ModelPlan,
    ModelRequest,
    OwnBlocks,
    Query,
    QueryOutcome,
    RequestExtras,
    StreamProcessor,
    SystemClock,
    ToolRegistry,
    TurnOutcome,
    build_request,
)
from haptera.model.errors import ProviderError
from haptera.model.log.queries import QueryStarted
from haptera.stores.memory import MemoryStore
from haptera.testing import calls, says
from tests.scripted_agents import make_agent, playing, run_script


@tool(approval="ask")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_a_request_builder() -> None:
    def build(settings: Any, messages: Any, extras: RequestExtras) -> ModelRequest:
        return replace(build_request(settings, messages, extras), seed=7)

    _, provider = await run_script([says("ok")], blocks=OwnBlocks(request_builder=build))
    assert provider.requests[0].seed == 7


async def test_a_stream_processor() -> None:
    texts: list[str] = []
    processor = StreamProcessor(clock=SystemClock())
    processor.on(TextDelta, lambda delta: texts.append(delta.text))
    await run_script([says("a", "b")], blocks=OwnBlocks(stream_processor=processor))
    assert texts == ["a", "b"]


async def test_a_tool_registry() -> None:
    registry = ToolRegistry([pay])
    _, provider = await run_script([says("ok")], blocks=OwnBlocks(tool_registry=registry))
    assert [offered.name for offered in provider.requests[0].tools] == ["pay"]


async def test_a_tool_registry_and_tools_are_not_given_both() -> None:
    with pytest.raises(AgentError, match="'tools' would not be used beside the tool_registry"):
        await run_script([], tools=[pay], blocks=OwnBlocks(tool_registry=ToolRegistry()))


class FailingTurns:
    """A turn runner that asks no model."""

    async def run(self, query: Query, plan: ModelPlan, extras: RequestExtras) -> TurnOutcome:
        raise ProviderError(ErrorCode.BAD_REQUEST, "not today")


async def test_a_turn_runner() -> None:
    with pytest.raises(AgentError, match="not today"):
        await run_script([], blocks=OwnBlocks(turn_runner=FailingTurns()))


class Refusing:
    """A query runner that records the prompt, and asks nothing."""

    async def start(self, query: Query) -> None:
        await query.recorder.record([QueryStarted(**query.stamp(), message=query.input.message)])

    async def run(self, query: Query) -> QueryOutcome:
        return QueryOutcome(stop_reason="refusal", stop_detail="not today")


async def test_a_query_runner() -> None:
    result, _ = await run_script([], blocks=OwnBlocks(query_runner=Refusing()))
    assert (result.stop_reason, result.stop_detail) == ("refusal", "not today")
    assert [message.text for message in result.messages] == ["go"]


async def test_an_approval_coordinator_of_each_session() -> None:
    made: list[ApprovalCoordinator] = []

    def make(**parts: Any) -> ApprovalCoordinator:
        made.append(ApprovalCoordinator(**parts))
        return made[-1]

    script = [calls(("pay", {"amount": 3})), says("ok")]
    options: Any = {"tools": [pay], "approver": lambda request: Approve()}
    result, _ = await run_script(script, blocks=OwnBlocks(approvals=make), **options)
    assert (result.text, len(made)) == ("ok", 1)


async def test_a_channel_of_each_session() -> None:
    seen: list[str] = []

    class Noting(ControlChannel):
        def publish(self, events: Any) -> None:
            seen.extend(event.kind for event in events)
            super().publish(events)

    async with playing([says("ok")], blocks=OwnBlocks(channel=Noting)) as (session, _):
        await session.chat("go")
    assert seen.count("query.ended") == 1


async def test_sessions_that_fail_to_close_are_given_back_and_keep_no_other_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(ControlChannel):
        async def close(self, *, within: float | None = None) -> None:
            await super().close(within=within)
            raise StoreError(ErrorCode.UNAVAILABLE, f"failure {next(failures)}")

    store, failures = MemoryStore(), itertools.count(1)
    agent, _ = make_agent([says("ok")], store=store, blocks=OwnBlocks(channel=Failing))
    names = ("one", "two", "three")
    ids = [await _named(agent, name) for name in names]
    with pytest.raises(StoreError, match="failure 1"):
        await agent.close()
    warned = [record.getMessage() for record in caplog.records if "did not close" in record.msg]
    assert len(warned) == 3
    assert all(any(session_id in line for line in warned) for session_id in ids)
    await agent.close()
    other, _ = make_agent([], store=store)
    async with other:
        assert [await _named(other, name) for name in names] == ids


async def _named(agent: Agent, name: str) -> str:
    session = agent.session(name)
    await session.open()
    return str(session.session_id)
