"""Options of queries: how each is given and seen to act, and what may happen to its query."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from haptera import (
    AbortController,
    AgentError,
    AgentResult,
    AgentSession,
    ErrorCode,
    MediaPart,
    RetrySettings,
    ToolContext,
    tool,
)
from haptera.model.messages import Sender
from haptera.model.parts import ReminderPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import RuntimeSettings
from haptera.stores.memory import MemoryStore
from haptera.testing import FakeClock, Gate, calls, says
from haptera.testing.scripted_provider import Step
from tests.attacks.moments import others_run, until
from tests.scripted_agents import make_agent, outcomes_in

Said = dict[str, Any]
Seen = Literal["throughout", "first", "never"]
ANSWER = tuple(says('{"name":"Paris"}'))
CALL = calls(("look", {}))
PHOTO = MediaPart(mime="image/png", url="https://example.org/a.png")
BOT = Sender(kind="agent", user_id="bot")


class City(msgspec.Struct):
    name: str


@tool
async def extra() -> str:
    """Do something else."""
    return "done"


class Scene:
    """A store and the programs on it, one after the other, and what was seen of the last one.

    A query has two turns: the first calls the tool `look`, and the second answers.
    """

    def __init__(self, name: str = "settings", **options: Any) -> None:
        self.probe, self.options = PROBES[name], options
        self.store, self.clock = MemoryStore(), FakeClock()
        self.controller = AbortController()
        self.look = tool(name="look")(self._look)
        self.requests: list[ModelRequest] = []
        self.callers: list[ToolContext[Any]] = []
        self.session: AgentSession
        self.result: AgentResult[Any] | None = None
        self.error: AgentError | None = None

    async def _look(self, context: ToolContext[Any]) -> str:
        """Look."""
        self.callers.append(context)
        self.probe.meanwhile(self)
        for _ in range(9):  # what that sets off goes first
            await others_run()
        return "seen"

    def said(self, *names: str) -> Said:
        """Return the options of these names."""
        options: Said = {}
        for name in names:
            options |= PROBES[name].said(self)
        return options

    async def play(self, begin: Callable[[AgentSession], Any], *steps: Step) -> None:
        """Let a program of its own do something with the session, to its end."""
        agent, provider = make_agent(
            steps,
            clock=self.clock,
            tools=[self.look],
            retry=RetrySettings(max_retries=0),
            runtime=RuntimeSettings(close_drain_seconds=0),
            **{"store": self.store, **self.options},
        )
        self.result = self.error = None
        async with agent, agent.session("x") as self.session:
            try:
                self.result = await begin(self.session)
            except AgentError as error:
                self.error = error
        self.requests = provider.requests

    async def chat(self, **options: Any) -> None:
        """Let a program send a prompt."""
        await self.play(lambda session: session.chat("go", **options), CALL, self.probe.answer)

    async def resume(self, **options: Any) -> None:
        """Let a program carry on what an earlier one left."""
        await self.play(lambda session: session.resume(**options), CALL, self.probe.answer)

    async def cut_off(self, **options: Any) -> None:
        """Let a program die in the first turn of a query."""
        await self.die_in(lambda session: session.chat("go", **options))

    async def die_in(self, begin: Callable[[AgentSession], Any]) -> None:
        """Let a program die while a model is silent: a later one has what was written."""
        gate = Gate()

        async def die(session: AgentSession) -> None:
            asking = asyncio.ensure_future(begin(session))
            await gate.reached.wait()
            assert session.session_id is not None
            log = await self.store.log.read(session.session_id)
            self.store = MemoryStore()
            lease = await self.store.leases.acquire(session.session_id, "me")
            await self.store.log.append(lease, log)
            await self.store.leases.release(lease)
            asking.cancel()
            await asyncio.wait({asking})

        await self.play(die, [gate])

    async def leave_waiting(self, **options: Any) -> None:
        """Let a program end while a prompt waits in its session."""
        gate = Gate()

        async def leave(session: AgentSession) -> None:
            asking = [asyncio.ensure_future(session.chat("first"))]
            await gate.reached.wait()
            asking.append(asyncio.ensure_future(session.chat("go", **options)))
            await until(lambda: session.view().pending)
            await session.close(abort=True)
            await asyncio.gather(*asking, return_exceptions=True)

        await self.play(leave, [gate])

    async def rest(self, **options: Any) -> None:
        """Let a query rest on an approval after its first turn, in a program that ends then."""
        await self.play(lambda session: session.chat("go", **options), CALL)

    async def approve_and_resume(self) -> None:
        """Let a program answer the approval and carry the query on."""

        async def carry_on(session: AgentSession) -> AgentResult[Any]:
            (asked,) = session.unfinished.approvals
            await session.approve(asked.id)
            return await session.resume()

        await self.play(carry_on, self.probe.answer)

    @property
    def seen(self) -> Seen:
        """In which turns of the last program the option acted."""
        if self.probe.at_the_end is not None:
            return "throughout" if self.probe.at_the_end(self) else "never"
        acts = [self.probe.in_a_request(request) for request in self.requests]
        assert acts, self.error
        assert acts in ([True] * len(acts), [False] * len(acts), [True, False])
        return "throughout" if all(acts) else "first" if acts[0] else "never"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """How an option is given, and how its effect is seen."""

    said: Callable[[Scene], Said]
    earlier: Said = {}
    """Another value of it, for options that are kept."""
    in_a_request: Callable[[ModelRequest], bool] = lambda _request: False
    at_the_end: Callable[[Scene], bool] | None = None
    """Where requests do not show it: whether the end of the query does."""
    meanwhile: Callable[[Scene], None] = lambda _scene: None
    """What happens while the tool runs."""
    answer: Step = ANSWER


def reminders_in(request: ModelRequest) -> list[str]:
    parts = [part for message in request.messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ReminderPart)]


def is_stopped_with(code: ErrorCode) -> Callable[[Scene], bool]:
    return lambda scene: scene.error is not None and scene.error.code is code


PROBES: dict[str, Probe] = {
    "settings": Probe(
        said=lambda _: {"temperature": 0.3},
        earlier={"temperature": 0.9},
        in_a_request=lambda request: request.temperature == 0.3,
    ),
    "tools": Probe(
        said=lambda scene: {"tools": [scene.look, extra]},
        in_a_request=lambda request: "extra" in [spec.name for spec in request.tools],
    ),
    "deps": Probe(
        said=lambda _: {"deps": "a database"},
        at_the_end=lambda scene: scene.callers[-1].deps == "a database",
    ),
    "sender": Probe(
        said=lambda _: {"sender": BOT},
        at_the_end=lambda scene: scene.callers[-1].sender == BOT,
    ),
    "attachments": Probe(
        said=lambda _: {"attachments": [PHOTO]},
        in_a_request=lambda request: any(PHOTO in item.parts for item in request.messages),
    ),
    "signal": Probe(
        said=lambda scene: {"signal": scene.controller.signal},
        meanwhile=lambda scene: scene.controller.abort("enough"),
        at_the_end=is_stopped_with(ErrorCode.ABORTED),
    ),
    "on_abort": Probe(
        said=lambda _: {"on_abort": "return"},
        meanwhile=lambda scene: scene.session.abort(),
        at_the_end=lambda scene: scene.error is None,
    ),
    "timeout": Probe(
        said=lambda _: {"timeout": 700},
        earlier={"timeout": 7},
        answer=TimeoutError("silent"),
        at_the_end=lambda scene: "longer than 700 s" in str(scene.error),
    ),
    "total_timeout": Probe(
        said=lambda _: {"total_timeout": 30},
        meanwhile=lambda scene: scene.clock.advance(60),
        at_the_end=is_stopped_with(ErrorCode.TIMEOUT),
    ),
    "output_type": Probe(
        said=lambda _: {"output_type": City},
        in_a_request=lambda request: (
            request.output_schema is not None and "properties" in request.output_schema.schema
        ),
    ),
    "output_schema": Probe(
        said=lambda _: {"output_schema": {"type": "object"}},
        in_a_request=lambda request: (
            request.output_schema is not None
            and request.output_schema.schema.get("type") == "object"
            and "properties" not in request.output_schema.schema
        ),
    ),
    "output_validator": Probe(
        said=lambda _: {"output_validator": lambda _output: "another"},
        at_the_end=lambda scene: scene.result is not None and scene.result.output == "another",
    ),
    "output_attempts": Probe(
        said=lambda _: {"output_attempts": 1, "output_type": City},
        answer=tuple(says("no city")),
        at_the_end=is_stopped_with(ErrorCode.OUTPUT_INVALID),
    ),
    "reminders": Probe(
        said=lambda _: {"reminders": ["Mind the gap."]},
        earlier={"reminders": ["Mind the step."]},
        in_a_request=lambda request: reminders_in(request) == ["Mind the gap."],
    ),
    "require_tool": Probe(
        said=lambda _: {"require_tool": "look"},
        earlier={"require_tool": "extra", "tools": [extra]},
        in_a_request=lambda request: request.require_tool == "look",
    ),
    "transform": Probe(
        said=lambda _: {"transform": lambda _name, value: str(value).upper()},
        at_the_end=lambda scene: outcomes_in(scene.requests[-1])[-1][2] == "SEEN",
    ),
}
