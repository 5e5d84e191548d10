"""What mypy and pyright infer for the calls that users write, and what they refuse."""

from pathlib import Path

import pytest

from tests.types.checkers import CHECKERS

pytestmark = pytest.mark.sweep

_PREAMBLE = '''
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Literal, TypedDict, reveal_type

import haptera
import msgspec
import pydantic
from haptera import Agent, AgentSession, Retry, ToolContext, tool
from haptera import (
    AgentError, ConfigError, ErrorCode, HookError, ProviderError, SessionError, is_agent_error
)
from haptera import sync
from haptera.hooks import AfterTool, BeforeTool, Block, Hooks, Proceed

@dataclass
class City:
    name: str

class Colour(Enum):
    RED = "red"

class Street(TypedDict):
    name: str

class Tree(msgspec.Struct):
    below: list["Tree"]

class Struct(msgspec.Struct):
    name: str

class Model(pydantic.BaseModel):
    name: str

def takes_letter(letter: Literal["a", "b"]) -> int:
    return len(letter)

async def check_city(city: City, context: ToolContext[str]) -> None:
    if city.name == context.deps:
        raise Retry("another one")

@tool
def temperature(city: str) -> float:
    """Return a temperature."""
    return 21.5

@tool(approval="ask", timeout=5)
async def pay(amount: int, *, to: str = "Ana") -> bytes:
    """Pay."""
    return b""

several = [temperature, pay]

async def check(given: BeforeTool) -> Proceed | Block:
    return Proceed()

def check_at_once(given: BeforeTool) -> Block:
    return Block("no")

def note(given: AfterTool) -> None:
    given.say(given.ended.outcome)

async def main(
    agent: Agent, session: AgentSession, caught: Exception,
    blocking: sync.Agent, many: sync.AgentSession, given: BeforeTool,
) -> None:
'''

_REVEALED = {
    "await agent.run('x', output_type=City)": "AgentResult[City]",
    "await agent.run('x', output_type=list[City], timeout=3)": "AgentResult[list[City]]",
    "await agent.run('x', output_type=City | None)": "AgentResult[City | None]",
    "await agent.run('x', output_type=int | list[str])": "AgentResult[int | list[str]]",
    "await agent.run('x', output_type=tuple[int, City])": "AgentResult[tuple[int, City]]",
    "await agent.run('x', output_type=Colour)": "AgentResult[Colour]",
    "await agent.run('x', output_type=date)": "AgentResult[date]",
    "await agent.run('x', output_type=bool)": "AgentResult[bool]",
    "await agent.run('x', output_type=float)": "AgentResult[float]",
    "await agent.run('x', output_type=dict[str, City])": "AgentResult[dict[str, City]]",
    "(await agent.run('x', output_type=Street)).output['name']": "str",
    "(await agent.run('x', output_type=Tree)).output.below": "list[Tree]",
    "await agent.run('x', output_type=Model)": "AgentResult[Model]",
    "await agent.run('x', output_type=Struct | Model)": "AgentResult[Struct | Model]",
    "await agent.run('x', output_type=None)": "AgentResult[None]",
    "await agent.run('x', output_type=City, output_validator=check_city)": "AgentResult[City]",
    "agent.stream('x', output_type=City | None)": "QueryStream[City | None]",
    "agent.stream('x', output_type=list[City]).partial()": "AsyncGenerator[list[City], None]",
    "blocking.stream('x', output_type=City | None).partial()": "Iterator[City | None]",
    "await agent.run('x')": "AgentResult[None]",
    "await agent.run('x', thinking='high')": "AgentResult[None]",
    "(await agent.run('x', output_type=City)).output.name": "str",
    "agent.stream('x', output_type=City)": "QueryStream[City]",
    "await agent.stream('x', output_type=City).result()": "AgentResult[City]",
    "await agent.stream('x', output_type=City)": "AgentResult[City]",
    "agent.stream('x')": "QueryStream[None]",
    "await session.chat('x', output_type=City)": "AgentResult[City]",
    "await session.chat('x')": "AgentResult[None]",
    "await session.stream('x', output_type=City).result()": "AgentResult[City]",
    "await session.resume(output_type=City)": "AgentResult[City]",
    "await haptera.run_agent('x', model='a/b', output_type=City)": "AgentResult[City]",
    "haptera.run_agent_stream('x', output_type=City)": "QueryStream[City]",
    "blocking.run('x', output_type=City)": "AgentResult[City]",
    "blocking.run('x')": "AgentResult[None]",
    "blocking.stream('x', output_type=City).result()": "AgentResult[City]",
    "many.chat('x', output_type=City)": "AgentResult[City]",
    "many.stream('x', output_type=City)": "QueryStream[City]",
    "sync.run_agent('x', output_type=City)": "AgentResult[City]",
    "sync.run_agent_stream('x', output_type=City)": "QueryStream[City]",
    "await Hooks().on('before_tool')(check)(given)": "Proceed | Block",
    "agent.hooks.on('before_tool')(check_at_once)(given)": "Block",
    "temperature('Oslo')": "float",
    "await pay(3, to='Bo')": "bytes",
    "(caught if is_agent_error(caught) else None)": "AgentError | None",
    "HookError(ErrorCode.HOOK_FAILED, 'x').code": "Literal[HOOK_FAILED]",
}

_ACCEPTED = (
    "takes_letter((await agent.run('x', output_type=Literal['a', 'b'])).output)",
    "Agent('a/b', tools=[temperature, pay])",
    "Agent('a/b', tools=several)",
    "ProviderError(ErrorCode.AUTH, 'x', provider='a')",
    "SessionError(ErrorCode.BUSY, 'x')",
    "Agent('a/b', hooks=Hooks(before_tool=check, after_tool=note))",
    "Hooks(before_tool=check_at_once)",
)

_REFUSED = (
    "takes_letter((await agent.run('x', output_type=Literal['a', 'c'])).output)",
    "takes_letter((await agent.run('x', output_type=str)).output)",
    "temperature(3)",
    "temperature('Oslo', 'Lisbon')",
    "await pay('much')",
    "await agent.run('x', output_type=3)",
    "await agent.run('x', output_validator=3)",
    "await agent.run('x', output_attempts='two')",
    "await agent.run('x', no_such_option=3)",
    "await agent.run('x', thinking='ultra')",
    "ConfigError(ErrorCode.AUTH, 'x')",
    "ConfigError(ErrorCode.CONFIG_INVALID, 'x').code == ErrorCode.AUTH",
    "(await agent.run('x', output_type=City)).output.inhabitants",
    "Hooks().on('before_tool')(note)",
    "Hooks().on('before_lunch')(check)",
    "Hooks(after_tool=check)",
    "Hooks(before_tools=check)",
    "blocking.hooks.on('after_tool')(check_at_once)",
)


def _source(statements: list[str]) -> tuple[str, int]:
    """Return a module with one statement to a line, and the line of the first."""
    body = "".join(f"    {statement}\n" for statement in statements)
    return _PREAMBLE + body, _PREAMBLE.count("\n") + 1


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_type_of_a_call_is_what_was_asked_for(checker: str, tmp_path: Path) -> None:
    statements = [f"reveal_type({expression})" for expression in _REVEALED]
    source, first = _source([*statements, *(f"_ = {each}" for each in _ACCEPTED)])
    said = CHECKERS[checker](tmp_path, {"calls.py": source})
    assert [f"{each.line}: {each.text}" for each in said if each.is_error] == []
    revealed = {each.line: each.revealed for each in said if each.revealed is not None}
    found = {call: revealed.get(first + place) for place, call in enumerate(_REVEALED)}
    assert found == _REVEALED


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_wrong_call_is_refused(checker: str, tmp_path: Path) -> None:
    source, first = _source([f"_ = {call}" for call in _REFUSED])
    said = CHECKERS[checker](tmp_path, {"wrong.py": source})
    wrong = {each.line - first for each in said if each.is_error}
    assert [call for place, call in enumerate(_REFUSED) if place not in wrong] == []
