"""Stopping a query: the table of docs/durability.md, row by row."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from haptera import (
    AbortController,
    Agent,
    AgentError,
    AgentSession,
    ApprovalRequest,
    ErrorCode,
    Event,
    tool,
)
from haptera.model.approvals import Decision
from haptera.model.errors import ProviderError
from haptera.model.events import ReasoningDelta, TextDelta, ToolInputDelta
from haptera.model.log.approvals import ApprovalRequested
from haptera.model.log.queries import QueryEnded
from haptera.model.log.tools import ToolEnded, ToolStarted
from haptera.model.log.turns import RetryScheduled
from haptera.model.messages import AssistantMessage
from haptera.model.parts import ReasoningPart, TextPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamPart
from haptera.testing import FakeClock, Gate, ScriptedProvider, calls, reasoning, says
from tests.history_grammar import violations


@tool
async def wait_for_ever() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return "never"


@tool
async def quick() -> str:
    """Answer at once."""
    return "quick result"


@tool(approval="ask")
async def risky() -> str:
    """Do something that must be allowed."""
    return "done"


async def never_decide(request: ApprovalRequest) -> Decision:
    """Leave the question open."""
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def _session(
    steps: Sequence[Any], **options: Any
) -> AsyncIterator[tuple[AgentSession, ScriptedProvider]]:
    provider = ScriptedProvider(steps)
    options.setdefault("clock", FakeClock())
    agent = Agent(
        "scripted/m", providers=[provider], tools=[wait_for_ever, quick, risky], **options
    )
    async with agent, agent.session() as session:
        yield session, provider


async def _stop_at(session: AgentSession, kind: type[Event], count: int = 1) -> AgentError:
    """Send a prompt and stop it at the n-th event of a kind."""
    with pytest.raises(AgentError) as raised:
        async for event in session.stream("go"):
            count -= isinstance(event, kind)
            if count == 0 and isinstance(event, kind):
                session.abort()
    assert raised.value.code is ErrorCode.ABORTED
    return raised.value


async def _next_request(session: AgentSession, provider: ScriptedProvider) -> list[Any]:
    """Send another prompt and return the parts that the model hears before it."""
    provider.replace_rest(says("fine"))
    await session.chat("next")
    sent = provider.requests[-1].messages
    assert violations(sent) == []
    return [part for message in sent for part in message.parts][:-1]


def _results(parts: list[Any]) -> dict[str, str]:
    return {part.name: part.outcome for part in parts if isinstance(part, ToolResultPart)}


def _held(parts: list[StreamPart], gate: Gate | None = None) -> list[Any]:
    """Let each part come in a read of its own, and then silence."""
    return [*[[part] for part in parts], gate or Gate()]


async def test_an_aborted_signal_prevents_the_query() -> None:
    controller = AbortController()
    controller.abort("too late")
    async with _session([]) as (session, provider):
        with pytest.raises(AgentError) as raised:
            await session.chat("go", signal=controller.signal)
        assert raised.value.code is ErrorCode.ABORTED
        assert session.messages == ()
    assert provider.requests == []


async def test_a_prompt_that_was_taken_in_is_kept() -> None:
    async with _session([]) as (session, _):
        stream = session.stream("go")
        async with stream:
            session.abort()
        assert [message.text for message in session.messages] == ["go"]


async def test_stopping_while_the_request_is_on_its_way_keeps_the_prompt() -> None:
    gate = Gate()
    async with _session([[gate]]) as (session, provider):
        task = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        session.abort()
        with pytest.raises(AgentError):
            await task
        assert await _next_request(session, provider) == [TextPart(text="go")]


async def test_reasoning_alone_is_not_sent_back() -> None:
    async with _session([_held(reasoning("let me", " think")[:-1])]) as (session, provider):
        await _stop_at(session, ReasoningDelta, 2)
        parts = await _next_request(session, provider)
        assert not any(isinstance(part, ReasoningPart) for part in parts)
        assert parts == [TextPart(text="go")]


async def test_text_that_was_shown_is_kept_and_marked() -> None:
    async with _session([_held(says("one ", "two ")[:-2])]) as (session, provider):
        error = await _stop_at(session, TextDelta, 2)
        assert error.result is not None
        assert error.result.text == "one two "
        answer = session.messages[-1]
        assert isinstance(answer, AssistantMessage)
        assert answer.interrupted
        texts = [part.text for part in await _next_request(session, provider)]
        assert texts == ["go", "one two "]


async def test_half_a_tool_call_is_dropped() -> None:
    script = _held(calls(("quick", {}), text="I look. ")[:-2])
    async with _session([script]) as (session, provider):
        await _stop_at(session, ToolInputDelta)
        parts = await _next_request(session, provider)
        assert [part.text for part in parts] == ["go", "I look. "]


async def test_calls_that_never_started_are_answered_as_interrupted() -> None:
    async with _session([calls(("wait_for_ever", {}), ("quick", {}))]) as (session, provider):
        await _stop_at(session, ToolStarted)
        parts = await _next_request(session, provider)
        assert _results(parts)["quick"] == "interrupted"


async def test_an_approval_that_waits_is_cancelled() -> None:
    async with _session([calls(("risky", {}))], approver=never_decide) as (session, provider):
        await _stop_at(session, ApprovalRequested)
        assert session.unfinished.approvals == ()
        assert _results(await _next_request(session, provider)) == {"risky": "denied"}


async def test_a_running_tool_is_cancelled_and_the_model_is_told() -> None:
    async with _session([calls(("wait_for_ever", {}))]) as (session, provider):
        await _stop_at(session, ToolStarted)
        parts = await _next_request(session, provider)
        assert _results(parts) == {"wait_for_ever": "cancelled"}
        assert "may have taken effect" in parts[-1].text or "may or may not" in parts[-1].text


async def test_a_finished_result_is_kept_beside_cancelled_ones() -> None:
    script = calls(("quick", {}), ("wait_for_ever", {}))
    async with _session([script]) as (session, provider):
        await _stop_at(session, ToolStarted, 2)
        parts = await _next_request(session, provider)
        assert _results(parts) == {"quick": "ok", "wait_for_ever": "cancelled"}


async def test_stopping_the_wait_before_a_retry_keeps_the_prompt() -> None:
    limited = ProviderError(ErrorCode.RATE_LIMITED, "slow down", basis="status")
    script = [*[[part] for part in says("void")[:3]], limited]
    async with _session([script]) as (session, provider):
        await _stop_at(session, RetryScheduled)
        assert await _next_request(session, provider) == [TextPart(text="go")]


async def test_stopping_between_two_turns_keeps_everything_so_far() -> None:
    gate = Gate()
    async with _session([calls(("quick", {})), [gate]]) as (session, provider):
        await _stop_at(session, ToolEnded)
        parts = await _next_request(session, provider)
        assert _results(parts) == {"quick": "ok"}


async def test_a_queued_prompt_that_is_given_up_leaves_the_queue_unsent() -> None:
    gate = Gate()
    async with _session([[gate, *says("first")]]) as (session, provider):
        first = asyncio.ensure_future(session.chat("first"))
        await gate.reached.wait()
        waiting = asyncio.ensure_future(session.chat("second"))
        while not session.view().pending:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert session.view().pending == ()
        gate.open()
        assert (await first).text == "first"
        await session.wait_idle()
        assert [message.text for message in session.messages] == ["first", "first"]
        provider.check()


async def test_an_abort_after_the_end_does_nothing() -> None:
    async with _session([says("whole")]) as (session, _):
        result = await session.chat("go")
        session.abort()
        session.abort()
        assert (result.stop_reason, session.messages[-1].text) == ("complete", "whole")


async def test_a_session_that_is_closed_by_force_keeps_what_came_and_refuses_more() -> None:
    async with _session([_held(says("half")[:-2])]) as (session, _):
        with pytest.raises(AgentError) as raised:
            async for event in session.stream("go"):
                if isinstance(event, TextDelta):
                    await session.close(force=True)
        assert raised.value.code is ErrorCode.ABORTED
        assert raised.value.result is not None
        assert raised.value.result.text == "half"
        with pytest.raises(AgentError) as refused:
            await session.chat("more")
        assert refused.value.code is ErrorCode.CLOSED


async def test_a_cancelled_task_records_the_abort_and_stays_cancelled() -> None:
    gate = Gate()
    async with _session([[*[[part] for part in says("so far")[:3]], gate]]) as (session, _):
        task = asyncio.ensure_future(session.chat("go"))
        await gate.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.messages[-1].text == "so far"


async def test_on_abort_return_gives_the_partial_result() -> None:
    gate = Gate()
    async with _session([[*[[part] for part in says("so far")[:3]], gate]]) as (session, _):
        task = asyncio.ensure_future(session.chat("go", on_abort="return"))
        await gate.reached.wait()
        session.abort()
        result = await task
        assert (result.stop_reason, result.text) == ("aborted", "so far")


class Closing(ScriptedProvider):
    """Notes when the loop has closed what a request had open."""

    def __init__(self, steps: Sequence[Any], happened: list[str]) -> None:
        super().__init__(steps)
        self._happened = happened

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Answer a request; as with a socket, the loop closes it one step after it is asked to."""
        try:
            async with aclosing(super().stream(request)) as parts:
                async for part in parts:
                    yield part
        finally:
            asyncio.get_running_loop().call_soon(self._happened.append, "closed")


async def test_a_query_that_is_stopped_has_closed_its_request_before_its_end_is_recorded() -> None:
    happened: list[str] = []
    provider = Closing([_held(says("one ", "two")[:3])], happened)
    async with (
        Agent("scripted/any", providers=[provider], clock=FakeClock()) as agent,
        agent.session() as session,
    ):
        session.on(QueryEnded, lambda _: happened.append("ended"))
        async with session.stream("go", on_abort="return") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    session.abort()
    assert happened == ["closed", "ended"]
