"""Trying a query again that failed or was aborted: what `resume` says, and what then works."""

import pytest

from haptera import AgentSession, ErrorCode, ProviderError, TextDelta, tool
from haptera.testing import ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, playing, texts_in

_EMPTY = ProviderError(ErrorCode.QUOTA, "the account is empty")
_HALF = says("Once upon", " a time")[:3]
_ADVICE = "go back to the last message: session.rewind(to=session.messages[-1].id)"


async def _try_again(session: AgentSession) -> str:
    """Do what the error of `resume` says."""
    error = await failure_of(session.resume())
    assert error.code is ErrorCode.NOTHING_TO_SEND
    assert _ADVICE in error.message
    await session.rewind(to=session.messages[-1].id)
    return (await session.resume()).text


@pytest.mark.parametrize("steps", [[], [says("hello")]], ids=["a new session", "a complete query"])
async def test_without_anything_to_resume_nothing_is_advised(steps: list[Step]) -> None:
    async with playing(steps) as (session, _):
        if steps:
            await session.chat("go")
        error = await failure_of(session.resume())
    assert error.message == "there is no unfinished query to resume, and no prompt waits"


async def test_a_failed_query_is_tried_again_with_its_prompt_once() -> None:
    async with playing([_EMPTY, says("hello")]) as (session, provider):
        await failure_of(session.chat("go"))
        assert "the last query ended with QUOTA" in (await failure_of(session.resume())).message
        assert await _try_again(session) == "hello"
        assert [message.text for message in session.messages] == ["go", "hello"]
    assert [texts_in(request) for request in provider.requests] == [["go"], ["go"]]


async def test_an_answer_that_was_cut_off_is_continued() -> None:
    async with playing([[*_HALF, _EMPTY], says(" there was")]) as (session, _):
        await failure_of(session.chat("tell"))
        assert await _try_again(session) == "Once upon there was"


async def test_tools_that_have_run_do_not_run_again() -> None:
    runs: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        runs.append("look")
        return "seen"

    steps: list[Step] = [calls(("look", {})), _EMPTY, says("I saw it")]
    async with playing(steps, tools=[look]) as (session, _):
        await failure_of(session.chat("go"))
        assert await _try_again(session) == "I saw it"
    assert runs == ["look"]


async def test_an_aborted_query_is_continued_in_the_same_way() -> None:
    async with playing([says("Once upon", " a time"), says(" there was")]) as (session, _):
        forget = session.on(TextDelta, lambda _: session.abort())
        await failure_of(session.chat("tell"))
        forget()
        assert "the last query was aborted" in (await failure_of(session.resume())).message
        assert await _try_again(session) == "Once upon there was"


async def test_another_model_can_be_asked() -> None:
    other = ScriptedProvider([says("hello")], provider="other")
    async with playing([_EMPTY], providers=[other]) as (session, _):
        await failure_of(session.chat("go"))
        await session.rewind(to=session.messages[-1].id)
        assert (await session.resume(model="other/one")).text == "hello"
