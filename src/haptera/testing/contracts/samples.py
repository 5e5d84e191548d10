"""Messages, entries and a joined conversation that several contract suites use."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from haptera.kernel.agent_blocks import AgentBlocks, ModelAccess
from haptera.kernel.blocks.tool_registry.registry import ToolInput, ToolRegistry
from haptera.kernel.own_blocks import OwnBlocks
from haptera.kernel.query.query import Runner
from haptera.kernel.turns.turn_runner import TurnRunnerInterface
from haptera.kernel.unstored_session import UnstoredSession
from haptera.model.ids import MessageId
from haptera.model.messages import AssistantMessage, UserMessage
from haptera.model.parts import CompactionPart, TextPart
from haptera.model.settings import RetrySettings, Settings
from haptera.model.usage import Usage
from haptera.ports.model_client import ModelClient
from haptera.testing.clocks import AutoClock
from haptera.testing.promises import Report, checks_in, run_checks
from haptera.testing.scripted_provider import EventRecorder, ScriptedProvider, Step

_SECONDS = 10.0
"""How long one check may take; nothing in them waits for anything real."""

SETTINGS = Settings(
    model="scripted/any", retry=RetrySettings(max_retries=0, interruption_retries=0)
)


def user(text: str) -> UserMessage:
    """Return a prompt whose id is its text."""
    return UserMessage(id=MessageId(text), parts=(TextPart(text=text),))


def assistant(text: str) -> AssistantMessage:
    """Return an answer whose id is its text."""
    return AssistantMessage(id=MessageId(text), parts=(TextPart(text=text),))


def compaction(text: str) -> UserMessage:
    """Return the message that stands for everything before it."""
    return UserMessage(id=MessageId(text), parts=(CompactionPart(text=text),))


class UnknownModels:
    """A catalogue that knows no model."""

    def cost(self, provider: str, model: str, usage: Usage) -> None:
        """Return no price."""

    def context_window(self, provider: str, model: str) -> None:
        """Return no size."""


class CheckStage:
    """A scripted model and everything around one runner: what a check plays and looks at."""

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        tools: Sequence[ToolInput] = (),
        turn_runner: TurnRunnerInterface | None = None,
        make_runner: Callable[[AgentBlocks], Runner] | None = None,
        settings: Settings = SETTINGS,
    ) -> None:
        self.provider = ScriptedProvider(steps)
        clock = AutoClock()

        async def route(model: str) -> tuple[ModelClient, str]:
            return self.provider, model.partition("/")[2]

        def join(query_runner: Runner | None = None) -> AgentBlocks:
            return AgentBlocks(
                ModelAccess(route=route, catalogue=UnknownModels()),
                ToolRegistry(tools),
                clock=clock,
                random=_Half(),
                own=OwnBlocks(turn_runner=turn_runner, query_runner=query_runner),
            )

        blocks = join() if make_runner is None else join(make_runner(join()))
        self.held = UnstoredSession(blocks, settings=settings)
        self.seen = EventRecorder()
        self.held.channel.subscribe(self.seen)

    def sent(self, index: int) -> str:
        """Return the messages of a request as text, to look for words in."""
        return msgspec.json.encode(self.provider.requests[index].messages).decode()


class _Half:
    """Chance that is always the same."""

    def random(self) -> float:
        """Return the middle."""
        return 0.5


async def other_tasks() -> None:
    """Let the other tasks go on for one turn of the loop."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    # Behind all callbacks that are ready now.
    loop.call_soon(turn.set_result, None)
    await turn


async def run_contract(module: str, make: Callable[[], object]) -> Report:
    """Run the checks of one contract: those that its module defines."""
    return await run_checks(checks_in(module), make, seconds=_SECONDS)
