"""Agents on scripts: short ways to make one, run it and look at what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from haptera import Agent, AgentError, AgentResult, AgentSession, Event, tool
from haptera.kernel.session.live_session import LiveSession
from haptera.model.log.entry import Entry
from haptera.model.parts import ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.testing import FakeClock, ScriptedProvider
from haptera.testing.scripted_provider import Step

MODEL = "scripted/one"


def make_agent(steps: Sequence[Step], **options: Any) -> tuple[Agent, ScriptedProvider]:
    """Return an agent that plays a script, cut off from the machine's own configuration."""
    provider = ScriptedProvider(steps)
    fixed = {"model": MODEL, "clock": FakeClock(), "environment": {}, "snapshots": False}
    options = {**fixed, **options}
    return Agent(providers=[provider, *options.pop("providers", ())], **options), provider


@asynccontextmanager
async def playing(
    steps: Sequence[Step], **options: Any
) -> AsyncIterator[tuple[AgentSession, ScriptedProvider]]:
    """Open a session on a script; afterwards the script is over and nothing is left running."""
    agent, provider = make_agent(steps, **options)
    async with agent, agent.session() as session:
        yield session, provider
    provider.check()
    assert tasks_left() == []


async def run_script(
    steps: Sequence[Step], query: dict[str, Any] | None = None, **options: Any
) -> tuple[AgentResult[Any], ScriptedProvider]:
    """Run one prompt on a script to its end."""
    async with playing(steps, **options) as (session, provider):
        result = await session.chat("go", **(query or {}))
    return result, provider


class HeldWork:
    """A tool named `work` that a test lets go on."""

    def __init__(self) -> None:
        self.started, self.release = asyncio.Event(), asyncio.Event()
        self.tool = tool(name="work")(self._work)

    async def _work(self) -> str:
        """Work."""
        self.started.set()
        await self.release.wait()
        return "worked"


async def events_of(session: AgentSession, prompt: str = "go", **options: Any) -> list[Event]:
    """Run one prompt and return its events; an error at the end is not looked at."""
    events: list[Event] = []
    try:
        async for event in session.stream(prompt, **options):
            events.append(event)  # noqa: PERF401 - what came before an error counts
    except AgentError:
        pass
    return events


async def failure_of(work: Any) -> AgentError:
    """Wait for something that must fail, and return the error."""
    with pytest.raises(AgentError) as caught:
        await work
    return caught.value


def tasks_left() -> list[Any]:
    """Return the tasks of the loop except the test's own."""
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def outcomes_in(request: ModelRequest) -> list[tuple[str, str, str]]:
    """Return the tool results that a request tells: tool, outcome and text."""
    return [
        (part.name, part.outcome, part.text)
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]


def texts_in(request: ModelRequest) -> list[str]:
    """Return the text of each message of a request."""
    return [message.text for message in request.messages]


async def live_of(session: AgentSession) -> LiveSession:
    """Return what stands behind a session, for tests that look into its store or its fold."""
    return await session._live_session()


async def log_of(session: AgentSession) -> list[Entry]:
    """Return the entries of an open session's log."""
    live = await live_of(session)
    return await live.store.log.read(live.session_id)
