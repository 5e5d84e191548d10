"""Prompt caches: what a request asks a provider to keep, and for how long."""

from typing import Any

import msgspec

from haptera import tool
from haptera.model.requests import ModelRequest
from haptera.providers.wire.anthropic_messages.request import RequestEncoder
from haptera.testing import calls, says
from tests.scripted_agents import make_agent, playing

SYSTEM = {"system_prompt": "Be brief.", "cached_reminders": ["Think of the deadline."]}


@tool
async def look() -> str:
    """Look around."""
    return "nothing"


def marks_in(request: ModelRequest) -> dict[str, list[Any]]:
    """Return the cache marks of a request to Anthropic, by where they stand."""
    body = msgspec.json.decode(RequestEncoder()(request).body)
    last = body["messages"][-1]["content"]
    return {
        "system": [block.get("cache_control") for block in body["system"]],
        "leading": [block.get("cache_control") for block in body["messages"][0]["content"][:1]],
        "tail": [block.get("cache_control") for block in last[-1:]],
    }


FIVE_MINUTES = {"type": "ephemeral", "ttl": "5m"}


async def requests_of_one_shot(*steps: Any, **options: Any) -> list[ModelRequest]:
    agent, provider = make_agent(steps, **options)
    async with agent:
        await agent.run("go")
    return provider.requests


async def test_a_session_keeps_its_prompts_for_five_minutes() -> None:
    async with playing([says("hello")], **SYSTEM) as (session, provider):
        await session.chat("go")
    (request,) = provider.requests
    assert marks_in(request) == {
        "system": [FIVE_MINUTES],
        "leading": [FIVE_MINUTES],
        "tail": [FIVE_MINUTES],
    }


async def test_an_hour_is_a_choice() -> None:
    async with playing([says("hello")], cache_ttl="1h", **SYSTEM) as (session, provider):
        await session.chat("go")
    assert marks_in(provider.requests[0])["tail"] == [{"type": "ephemeral", "ttl": "1h"}]


async def test_a_one_shot_writes_no_cache_for_its_own_tail() -> None:
    (request,) = await requests_of_one_shot(says("hello"), **SYSTEM)
    assert marks_in(request) == {
        "system": [FIVE_MINUTES],
        "leading": [FIVE_MINUTES],
        "tail": [None],
    }


async def test_a_one_shot_with_tools_keeps_what_its_next_turn_repeats() -> None:
    first, last = await requests_of_one_shot(
        calls(("look", {})), says("done"), tools=[look], **SYSTEM
    )
    assert marks_in(first)["tail"] == [FIVE_MINUTES]
    assert marks_in(last)["tail"] == [FIVE_MINUTES]


async def test_the_last_turn_that_a_limit_allows_keeps_nothing_in_a_one_shot() -> None:
    *_, last = await requests_of_one_shot(
        calls(("look", {})), says("done"), tools=[look], limits={"turns": 2}, **SYSTEM
    )
    assert last.tools == ()
    assert marks_in(last)["system"] == [FIVE_MINUTES]
    assert not last.caches_tail
