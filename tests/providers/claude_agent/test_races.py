"""Close against send, stream and result, in seeded orders: every schedule ends, and ends well."""

import asyncio
import json
from typing import Any, cast

import pytest

from haptera.kernel.session.native_turns import TurnDriver
from haptera.model.errors import AgentError, ErrorCode, ProviderError
from haptera.model.json_types import JsonObject
from haptera.model.native_messages import NativeResult
from haptera.providers.claude_agent.connection import ClaudeConnection
from haptera.providers.claude_agent.frames import read_head
from haptera.providers.claude_agent.session import ClaudeSession
from haptera.testing import run_seeded
from tests.providers.claude_agent.children import init, result, text, words

TURN = [step["emit"] for step in (init(), *text("Hello."), result())]
FINE = {ErrorCode.CLOSED, ErrorCode.SERVER_ERROR}
"""What may be said of a session that is closed while it works."""


class Pipe:
    """Stands for the process and its pipes: each line arrives in a step of its own."""

    def __init__(self, session: ClaudeSession) -> None:
        self._session = session
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = 0
        self.process = self

    def ended_error(self) -> ProviderError:
        return ProviderError(ErrorCode.SERVER_ERROR, "the agent's process has ended")

    async def send(self, _message: JsonObject) -> None:
        task = asyncio.ensure_future(self._answer())
        self._tasks.add(task)

    async def _answer(self) -> None:
        for frame in TURN:
            line = json.dumps(frame).encode()
            self._session.take(line, read_head(line))
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        self._session.released()

    async def interrupt(self) -> None:
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop

    async def close(self, *, grace: float | None = None) -> None:
        del grace
        self.closed += 1
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._session.ended(None)


def connect(session: ClaudeSession) -> ClaudeConnection:
    return cast("ClaudeConnection", Pipe(session))


async def stream(session: ClaudeSession) -> str:
    try:
        batches = [batch async for batch in session.stream(wait=True)]
    except AgentError as error:
        assert error.code in FINE
        return "failed"
    assert isinstance(batches[-1][-1], NativeResult)
    return "answered"


async def send(session: ClaudeSession) -> str:
    try:
        await session.send(words("Hi"))
    except AgentError as error:
        assert error.code in FINE
        return "failed"
    return "sent"


async def race() -> tuple[str, ...]:
    session = ClaudeSession(connect)
    work: list[Any] = [send(session), stream(session), session.close(within=0.5), session.close()]
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for late in (session.send(words("late")), anext(session.stream())):
        with pytest.raises(AgentError) as caught:
            await late
        assert caught.value.code is ErrorCode.CLOSED
    with pytest.raises(AgentError):
        await session.session_id()
    assert cast("Pipe", session.connection).closed == 1
    assert outcomes[2:] == [None, None]
    return tuple(str(outcome) for outcome in outcomes[:2])


async def race_of_turns() -> None:
    session = ClaudeSession(connect, known_id="x")
    driver = TurnDriver(session)

    async def turn(leaves: int) -> None:
        try:
            seen = 0
            generator = driver.turn(words("Hi"))
            async for _batch in generator:
                seen += 1
                if seen == leaves:
                    await generator.aclose()
                    return
        except AgentError as error:
            assert error.code in {*FINE, ErrorCode.ABORTED}

    turns = [turn(leaves) for leaves in (0, 1, 2, 0)]
    await asyncio.gather(*turns, driver.close(within=0.1), return_exceptions=False)
    with pytest.raises(AgentError):
        driver.turn(words("late"))


def test_close_against_send_stream_and_result_ends_well_in_every_order() -> None:
    seen = {run_seeded(race, seed) for seed in range(300)}
    assert {"answered", "failed"} <= {outcome for pair in seen for outcome in pair}


def test_closing_a_driver_ends_its_turns_in_every_order() -> None:
    for seed in range(200):
        run_seeded(race_of_turns, seed)


@pytest.mark.soak
def test_close_against_everything_in_thousands_of_orders() -> None:
    for seed in range(5_000):
        run_seeded(race, seed)
        run_seeded(race_of_turns, seed)
