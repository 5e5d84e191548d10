"""What is refused at the door: prompts, names and changes that nobody can mean."""

import asyncio
from typing import Any, cast

import pytest

from holdfast import ConfigError, ErrorCode, MediaPart, TextPart, UserMessage, tool
from holdfast.testing import calls, says
from holdfast.vocabulary.ids import MessageId
from holdfast.vocabulary.messages import Sender
from tests.scripted_agents import failure_of, make_agent, outcomes_in, playing, run_script


@pytest.mark.parametrize(
    "prompt", [7, None, b"hello", ["hello"], [TextPart(text=cast("str", 7))]], ids=str
)
async def test_a_prompt_that_nobody_can_say_is_refused(prompt: Any) -> None:
    async with playing([]) as (session, _):
        error = await failure_of(session.chat(prompt))
    assert error.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize(
    "part", [MediaPart(mime="image/png"), MediaPart(mime="image/png", data="aGk=", url="http://x")]
)
async def test_media_without_exactly_one_content_is_refused(part: MediaPart) -> None:
    async with playing([]) as (session, _):
        error = await failure_of(session.chat([part]))
    assert "exactly one" in error.message


@pytest.mark.parametrize("reference", [7, "", " \n"], ids=repr)
async def test_a_session_is_not_called_by_nothing(reference: Any) -> None:
    agent, _ = make_agent([])
    async with agent:
        with pytest.raises(ConfigError, match="name or id"):
            agent.session(reference)


ROUND: list[object] = []
ROUND.append(ROUND)

WRONG_CHANGES: list[tuple[str, Any]] = [
    ("limits", {"turns": -1}),
    ("loop_threshold", 0),
    ("retry", {"jitter": 7}),
    ("fallbacks", ["nowhere"]),
    ("system_prompt", 7),
    ("system_prompt", {}),
    ("denied_tools", [b"shell"]),
    ("stop", ROUND),
]


@pytest.mark.parametrize(("name", "value"), WRONG_CHANGES, ids=str)
async def test_a_session_refuses_the_settings_that_an_agent_refuses(name: str, value: Any) -> None:
    changes: Any = {name: value}
    async with playing([]) as (session, _):
        before = session.settings
        error = await failure_of(session.configure(**changes))
        assert error.code is ErrorCode.CONFIG_INVALID
        assert session.settings == before
    with pytest.raises(ConfigError):
        make_agent([], **changes)


def test_runtime_settings_may_be_given_as_plain_values() -> None:
    agent, _ = make_agent([], runtime={"buffer_size": 7})
    assert agent._composition.session_resources().runtime.buffer_size == 7


async def test_a_sender_may_be_given_as_plain_values_and_is_one_afterwards() -> None:
    plain: Any = {"kind": "agent", "user_id": "ana"}
    async with playing([says("hi")]) as (session, _):
        await session.chat("go", sender=plain)
        assert getattr(session.messages[0], "sender", None) == Sender(kind="agent", user_id="ana")


async def test_a_message_from_a_sender_that_is_none_is_refused() -> None:
    odd: Any = "robot"
    prompt = UserMessage(
        id=MessageId("m"), parts=(TextPart(text="hello"),), sender=Sender(kind=odd)
    )
    async with playing([]) as (session, _):
        assert "sender" in (await failure_of(session.chat(prompt))).message


@pytest.mark.parametrize("source", [7, None, TextPart(text="x"), MediaPart(mime="a/b")], ids=str)
async def test_what_cannot_be_attached_is_refused(source: Any) -> None:
    async with playing([]) as (session, _):
        error = await failure_of(session.chat("look", attachments=[source]))
    assert error.code is ErrorCode.CONFIG_INVALID


async def test_a_tool_with_a_time_limit_of_nothing_has_none() -> None:
    @tool(timeout=0)
    async def count() -> str:
        """Count."""
        await asyncio.sleep(0)  # noqa: TID251 - a limit of nothing would end it here
        return "one"

    _, provider = await run_script([calls(("count", {})), says("ok")], tools=[count])
    assert outcomes_in(provider.requests[1]) == [("count", "ok", "one")]
