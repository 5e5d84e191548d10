"""Sub-agents that answer with a type: what their caller gets, also after a crash."""

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from haptera import Agent, ConfigError, ErrorCode, TextPart, ToolEnded
from haptera.model.errors import StoreError
from haptera.model.log.entry import Entry
from haptera.model.parts import ToolResultPart
from haptera.ports.session_store import Lease, SessionLog
from haptera.stores.memory import MemoryStore
from haptera.testing import calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import failure_of, make_agent


class City(msgspec.Struct):
    """What a sub-agent is to answer with."""

    name: str
    people: int


class ForgetfulLog:
    """A log that does not take the end of a tool call."""

    def __init__(self, inner: SessionLog) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, lease: Lease, entries: Sequence[Entry], **options: Any) -> None:
        """Append, unless a call ends."""
        if any(isinstance(entry, ToolEnded) and entry.tool == "city" for entry in entries):
            raise StoreError(ErrorCode.FULL, "the disk is gone")
        await self._inner.append(lease, entries, **options)


def _asking_for_a_city(parent: list[Step], child: list[Step], store: Any) -> Agent:
    sub_agent, _ = make_agent(child)
    tools = [sub_agent.as_tool(name="city", description="Finds one.", output_type=City)]
    return make_agent(parent, tools=tools, store=store)[0]


_ASKS = calls(("city", {"prompt": "the largest one"}))
_CITIES: dict[str, Any] = {
    "text": says('```json\n{"name": "Porto", "people": 250000}\n```'),
    "call": calls(("City", {"name": "Porto", "people": 250000})),
}


@pytest.mark.parametrize("form", _CITIES)
async def test_a_sub_agent_answers_with_a_type_and_its_caller_gets_json(form: str) -> None:
    invalid = says('{"name": "Porto"}')
    agent = _asking_for_a_city([_ASKS, says("ok")], [invalid, _CITIES[form]], "memory")
    async with agent:
        result = await agent.run("go")
    (part,) = [part for part in result.messages[2].parts if isinstance(part, ToolResultPart)]
    assert isinstance(part.content[0], TextPart)
    assert msgspec.json.decode(part.content[0].text, type=City) == City("Porto", 250000)


@pytest.mark.parametrize("form", _CITIES)
async def test_an_answer_with_a_type_is_taken_from_the_log_after_a_crash(form: str) -> None:
    store = MemoryStore()
    broken: Any = copy.copy(store)
    broken.log = ForgetfulLog(store.log)
    agent = _asking_for_a_city([_ASKS], [_CITIES[form]], broken)
    async with agent, agent.session("main") as session:
        error = await failure_of(session.chat("go"))
        assert error.code is ErrorCode.FULL
    agent = _asking_for_a_city([says("ok")], [], store)
    async with agent, agent.session("main") as session:
        result = await session.resume()
    (part,) = [part for part in result.messages[2].parts if isinstance(part, ToolResultPart)]
    assert isinstance(part.content[0], TextPart)
    assert msgspec.json.decode(part.content[0].text, type=City) == City("Porto", 250000)


def test_a_type_that_no_model_can_be_told_of_is_refused() -> None:
    agent, _ = make_agent([])
    with pytest.raises(ConfigError):
        agent.as_tool(name="city", description="Finds one.", output_type=object())
