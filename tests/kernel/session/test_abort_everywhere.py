"""A query can be stopped at every event, from anywhere, and nothing is lost or left running."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from haptera import AbortController, AgentSession, QueryEnded, QueryStream
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.events import Event
from haptera.model.messages import AssistantMessage
from haptera.model.parts import ToolResultPart
from haptera.testing import EventRecorder, ScriptedProvider, says
from tests.history_grammar import violations
from tests.kernel.session.scripted_query import rich_agent, rich_provider

pytestmark = pytest.mark.slow

Stop = Callable[[AgentSession, AbortController], None]


def _from_the_task(session: AgentSession, controller: AbortController) -> None:
    session.abort("the user pressed stop")


def _from_a_thread(session: AgentSession, controller: AbortController) -> None:
    thread = threading.Thread(target=session.abort)
    thread.start()
    thread.join()


def _by_a_signal(session: AgentSession, controller: AbortController) -> None:
    controller.abort()


async def _count_events() -> int:
    provider = rich_provider()
    async with rich_agent(provider) as agent, agent.session() as session:
        events = [event async for event in session.stream("go")]
    provider.check()
    return len(events)


async def _play(
    stream: QueryStream[Any], index: int, stop: Callable[[], None]
) -> tuple[EventRecorder, AgentError | None]:
    recorder = EventRecorder()
    try:
        place = 0
        async for event in stream:
            recorder(event)
            if place == index:
                stop()
            place += 1
    except AgentError as error:
        return recorder, error
    return recorder, None


@pytest.mark.parametrize("stop", [_from_the_task, _from_a_thread, _by_a_signal])
async def test_a_query_stopped_at_any_event_keeps_everything_and_leaves_nothing(
    stop: Stop, report: Callable[[str], None]
) -> None:
    total = await _count_events()
    outcomes: dict[str, int] = {}
    for index in range(total):
        provider = rich_provider()
        async with rich_agent(provider) as agent, agent.session() as session:
            controller = AbortController()
            stream = session.stream("go", signal=controller.signal)
            recorder, error = await _play(
                stream,
                index,
                lambda: stop(session, controller),  # noqa: B023 - called at once
            )
            outcome = _check_stopped(session, recorder, error, index)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            assert controller.signal.listener_count == 0
            await _check_goes_on(session, provider)
        assert provider.open_streams == 0
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    report(f"abort {stop.__name__.strip('_')}: {total} states, {outcomes}")
    # The ends of the last turn and of the query, each with its measurement, are shown when both are
    # stored: nothing is left to stop then.
    assert outcomes["aborted"] >= total - 4


def _check_stopped(
    session: AgentSession, recorder: EventRecorder, error: AgentError | None, index: int
) -> str:
    assert len(recorder.ends) == 1, index
    assert isinstance(recorder.events[-1], QueryEnded)
    ended = recorder.ends[0]
    assert session.messages[0].text == "go"
    answers = [item for item in session.messages if isinstance(item, AssistantMessage)]
    shown = recorder.text
    if shown:
        assert answers[-1].text == shown, index
    _check_results_kept(recorder.events, session)
    if error is None:
        assert ended.stop_reason == "complete"
        return "complete"
    assert error.code is ErrorCode.ABORTED
    assert error.result is not None
    assert error.result.stop_reason == "aborted" == ended.stop_reason
    assert error.result.text == (answers[-1].text if answers else "")
    return "aborted"


def _check_results_kept(events: list[Event], session: AgentSession) -> None:
    ended = {event.call_id: event for event in events if event.kind == "tool.ended"}  # type: ignore[union-attr]
    kept = {
        part.call_id: part
        for message in session.messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    }
    for call_id, entry in ended.items():
        assert kept[call_id].outcome == entry.outcome  # type: ignore[union-attr]


async def _check_goes_on(session: AgentSession, provider: ScriptedProvider) -> None:
    """The next prompt is sent with a history that every provider accepts."""
    unplayed = len(provider.requests)
    provider.replace_rest(says("still here"))
    result = await session.chat("are you there?")
    assert result.text == "still here"
    assert violations(provider.requests[unplayed].messages) == []
