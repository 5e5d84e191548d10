"""Prompts, names and changes that cannot be meant are refused before anything is recorded."""

import asyncio
import re
from pathlib import Path
from typing import Any, cast

import pytest

from haptera import (
    AgentError,
    ConfigError,
    ErrorCode,
    MediaPart,
    TextDelta,
    TextPart,
    UserMessage,
    tool,
)
from haptera.building_blocks import ControlChannel, StreamProcessor
from haptera.model.events import LiveEvent
from haptera.model.ids import MessageId
from haptera.model.log.entry import Entry
from haptera.model.messages import Sender
from haptera.testing import FakeClock, calls, says
from haptera.tools import coding_tools
from tests.scripted_agents import failure_of, make_agent, outcomes_in, playing, run_script


@pytest.mark.parametrize(
    "prompt", [7, None, b"hello", ["hello"], [TextPart(text=cast("str", 7))]], ids=str
)
async def test_a_prompt_that_is_neither_text_nor_parts_is_refused(prompt: Any) -> None:
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


@pytest.mark.parametrize(
    ("kind", "handler", "told"),
    [
        (str, print, "the class of an event, such as TextDelta, not str"),
        (AgentError, print, "the class of an event, such as TextDelta, not AgentError"),
        ("text.delta", print, "the class of an event, such as TextDelta, not 'text.delta'"),
        (TextDelta, "print", "a handler must be a function, not 'print'"),
    ],
)
async def test_a_handler_that_would_never_be_called_is_refused(
    kind: Any, handler: Any, told: str
) -> None:
    async with playing([]) as (session, _):
        with pytest.raises(ConfigError, match=told):
            session.on(kind, handler)
    with pytest.raises(ConfigError, match=told):
        ControlChannel().on(kind, handler)
    with pytest.raises(ConfigError, match=told):
        StreamProcessor(clock=FakeClock()).on(kind, handler)


@pytest.mark.parametrize("kind", [Entry, LiveEvent, object])
async def test_a_handler_may_be_for_what_events_have_in_common(kind: Any) -> None:
    seen: list[object] = []
    async with playing([says("hi")]) as (session, _):
        session.on(kind, seen.append)
        await session.chat("go")
    assert seen
    assert all(isinstance(event, kind) for event in seen)


@pytest.mark.parametrize("option", ["cwd", "workspace"])
def test_a_folder_that_does_not_exist_is_refused_by_the_name_of_its_option(
    option: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for name, fault in (("none", "does not exist"), ("file", "is not a folder")):
        told = f"option '{option}': '{tmp_path / name}' {fault}; name a folder that exists"
        with pytest.raises(ConfigError, match=re.escape(told)):
            make_agent([], **{option: tmp_path / name})


def test_the_root_of_the_built_in_tools_must_exist(tmp_path: Path) -> None:
    told = f"the root '{tmp_path}/none' is not a folder that can be opened: No such file"
    with pytest.raises(ConfigError, match=re.escape(told)):
        coding_tools(tmp_path / "none")


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
    assert agent._composition.session_resources().host.runtime.buffer_size == 7


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
