"""Timeouts of a query: the model's own counts its time only, the whole query's the clock."""

import asyncio
from collections.abc import Sequence

from haptera import AgentError, ErrorCode, RetrySettings, TextDelta
from haptera.model.settings import RuntimeSettings
from haptera.testing import Gate, says
from haptera.testing.clocks import run_seeded
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import playing

TEN_PARTS: list[Step] = [[[part] for part in says(*"abcdefghij")]]


class LoopClock:
    """A clock that goes by the loop's virtual time."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def time_ms(self) -> int:
        return int(self.now() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # noqa: TID251 - virtual time


def read_slowly(
    steps: Sequence[Step], *, timeout: float | None = None, total_timeout: float | None = None
) -> tuple[str, ErrorCode | None]:
    """Read an answer with 30 seconds after each delta; return what was read and what went wrong."""

    async def read() -> tuple[str, ErrorCode | None]:
        text, code = "", None
        runtime = RuntimeSettings(buffer_size=1)
        retry = RetrySettings(max_retries=0)
        options = {"runtime": runtime, "retry": retry, "clock": LoopClock()}
        async with playing(steps, **options) as (session, _):
            stream = session.stream("go", timeout=timeout, total_timeout=total_timeout)
            try:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        text += event.text
                        await asyncio.sleep(30)  # noqa: TID251 - virtual time
            except AgentError as error:
                code = error.code
        return text, code

    return run_seeded(read, seed=1)


def test_a_slow_consumer_does_not_use_up_the_model_s_time() -> None:
    assert read_slowly(TEN_PARTS, timeout=5) == ("abcdefghij", None)


def test_a_model_that_falls_silent_after_a_slow_consumer_has_its_time_left_and_no_more() -> None:
    silent: list[Step] = [[*([part] for part in says(*"abcde")[:-2]), Gate()]]
    assert read_slowly(silent, timeout=5) == ("abcde", ErrorCode.TIMEOUT)


def test_a_slow_consumer_uses_up_the_time_of_the_whole_query() -> None:
    text, code = read_slowly(TEN_PARTS, total_timeout=100)
    assert code is ErrorCode.TIMEOUT
    assert len(text) < len("abcdefghij")
