"""The world of a race: a store, two agents on it, what their models say, and chance."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from haptera import Agent, AgentSession, ApprovalRequest, Approve, Deny, tool
from haptera.hooks import AfterQuery, AfterTool, BeforeQuery, BeforeTool, Hooks, Proceed
from haptera.model.approvals import Decision
from haptera.model.errors import AgentError, ErrorCode, ProviderError
from haptera.model.events import Busy
from haptera.model.requests import ModelRequest
from haptera.model.settings import RetrySettings
from haptera.model.stream_parts import StreamPart
from haptera.testing import LoopClock, ScriptedProvider, calls, says
from tests.history_grammar import violations
from tests.kernel.session.pausing_store import PausingStore
from tests.kernel.session.race_laws import Story, untrue_offers

KNOWN_STEPS: ContextVar[frozenset[int] | None] = ContextVar("known_steps", default=None)
"""The steps that the conversation of a branch knows to be started; None for the session itself."""

UNKNOWN = (ErrorCode.UNAVAILABLE,)
"""What a store that failed is told with: what it was asked for may have happened."""
_LONGEST = 4.0
"""Virtual seconds in which things happen."""
_LOOK = 0.05
"""Virtual seconds between two looks at something that is waited for."""
_HOOK_SECONDS = 1.0
"""Virtual seconds after which a hook has failed."""
_THOUGHTS = (0, 0, 0.01, 0.3, 0.3, 3.0)
"""Virtual seconds that hooks take; the last is more than they have."""
_SOON = 60.0
"""Virtual seconds in which a session is free again, whatever its store did."""
_TIME_LIMIT = 5.0
"""Virtual seconds after which an approver gives up that leaves the answer to others."""


class WatchingProvider(ScriptedProvider):
    """Plays a script, goes on after its end, and checks every request as it comes."""

    def __init__(self, story: Story, steps: Sequence[Any]) -> None:
        super().__init__(steps)
        self._story = story

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Check the request and play the next step."""
        known = KNOWN_STEPS.get()
        started = self._story.runs.keys() if known is None else known
        self._story.found += violations(request.messages)
        self._story.found += untrue_offers(request.messages, started)
        if any("You summarise" in text for text in request.system):
            self._steps.appendleft(says("This was said."))
        else:
            self.add(says("more"))
        return super().stream(request)


class World:
    """One session under fire. Everything that is drawn, is drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.story = Story()
        self.name = "the one"
        self.branches: list[str] = []
        """The ids of sessions that were forked from it."""
        self._rendezvous = self.chance.uniform(0, _LONGEST)
        self._reuses_ids = self.by_chance(0.5)
        self._has_approver = self.by_chance(0.5)
        self._longest_pause = self.chance.choice((0, 0.02, 0.2))
        self._has_hook = self.by_chance(0.3)
        self._steps = self._temperatures = 0
        self.is_over = False
        """Whether everything has happened; from then on every call is approved."""
        self.has_trouble = False
        """Whether the store failed, or was silent, in this race."""
        self.answers = asyncio.Event()
        """While it is clear the store answers nothing."""
        self.answers.set()
        self._is_slow = self.by_chance(0.6)
        self.store = PausingStore(self._pause)
        self.provider = WatchingProvider(self.story, self._script())
        self.home = self.new_agent(self.provider)
        self.away = self.new_agent(WatchingProvider(self.story, self._script()))
        self.one_reopens = asyncio.Lock()
        self.session: AgentSession = self.home.session(self.name)

    # Chance and time.

    def by_chance(self, share: float) -> bool:
        """Draw yes or no."""
        return self.chance.random() < share

    def moment(self) -> float:
        """Draw a moment of virtual time; many things happen at the same one, or right after."""
        if self.by_chance(0.5):
            return self._rendezvous + self.chance.choice((0, 0, 0.02, 0.05))
        return self.chance.uniform(0, _LONGEST)

    async def wait(self, seconds: float) -> None:
        """Wait in virtual time."""
        await LoopClock().sleep(seconds)

    async def turns(self, count: int) -> None:
        """Let everything that is ready take so many steps."""
        for _ in range(count):
            await self.wait(0)

    async def until(self, happened: Callable[[], object], *, within: float) -> None:
        """Wait until something has happened, for so long at most."""
        for _ in range(int(within / _LOOK) + 1):
            if happened():
                return
            await self.wait(_LOOK)

    async def until_idle(self) -> None:
        """Most of the time, wait until no query runs, and then a moment more."""
        if self.by_chance(0.7):
            await self.until(lambda: not isinstance(self.session.status, Busy), within=2)
            await self.turns(self.chance.choice((0, 0, 1, 3)))

    async def _pause(self) -> None:
        if self._is_slow and self.by_chance(0.5):
            await self.wait(self.chance.choice((0, 0, self._longest_pause)))
        await self.answers.wait()

    def refused(self, error: AgentError, *codes: ErrorCode) -> ErrorCode:
        """Return the code of a refusal that the situation explains.

        CLOSED always does, and HOOK_FAILED, because a hook of this world may take too long. So does
        UNAVAILABLE once the store was in trouble.
        """
        due = ErrorCode.CLOSED, ErrorCode.HOOK_FAILED, *codes
        due += UNKNOWN if self.has_trouble else ()
        assert error.code in due, f"{error!r} is no refusal that was due"
        return error.code

    async def close(self, closed: Agent | AgentSession, **how: bool) -> None:
        """Close a session, or all of an agent; a store that fails to release one does so later."""
        try:
            await closed.close(**how)
        except AgentError as error:
            self.refused(error)

    async def check_free(self, agent: Agent, name: str) -> None:
        """Open a session that no one else holds: at once, or soon if the store is in trouble."""
        session = agent.session(name, busy="wait" if self.has_trouble else "reject")
        async with asyncio.timeout(_SOON):
            await session.open()
        await self.close(session)

    def note(self, happening: str) -> None:
        """Write down that something happens now."""
        self.story.happenings.append(happening)

    def new_prompt(self, kind: str) -> str:
        """Return a prompt that was never said before."""
        text = f"{kind} prompt {len(self.story.prompts)}"
        self.story.prompts[text] = "open"
        return text

    def new_temperature(self) -> float:
        """Return a value that the setting never had before."""
        self._temperatures += 1
        return float(self._temperatures)

    def keep(self, text: str) -> None:
        """Note that a prompt must be answered, unless it was taken out of the queue already."""
        if self.story.prompts[text] == "open":
            self.story.prompts[text] = "kept"

    # Agents, their tool and who approves it.

    def new_agent(self, provider: ScriptedProvider, **options: Any) -> Agent:
        """Make an agent on the store."""
        if self._has_approver:
            options.setdefault("approver", self._decide)
        if self._has_hook:
            options["hooks"] = self._hooks()
            options["runtime"] = {"hook_seconds": _HOOK_SECONDS}
        return Agent(
            "scripted/m",
            providers=[provider],
            tools=[self._tool()],
            store=self.store,
            clock=LoopClock(),
            retry=RetrySettings(max_retries=0),
            environment={},
            **options,
        )

    def _tool(self) -> Any:
        @tool(approval="ask")
        async def risky(step: int) -> str:
            """Do something that must be allowed."""
            self.story.runs[step] += 1
            await self.wait(0.1)
            return f"step {step} done"

        return risky

    def _hooks(self) -> Hooks:
        """Make hooks that take their time, or too much of it, and see each query once."""
        told: set[tuple[type, str]] = set()

        def see(given: BeforeQuery | AfterQuery | BeforeTool | AfterTool) -> None:
            seen = type(given), given.query_id
            if seen in told and isinstance(given, BeforeQuery | AfterQuery):
                self.story.found.append(f"a hook was called twice: {seen}")
            told.add(seen)

        async def think(given: BeforeQuery | BeforeTool) -> Proceed:
            see(given)
            await self.wait(0 if self.is_over else self.chance.choice(_THOUGHTS))
            return Proceed()

        async def note(given: AfterQuery | AfterTool) -> None:
            see(given)
            await self.wait(0 if self.is_over else self.chance.choice(_THOUGHTS))

        return Hooks(before_query=think, before_tool=think, after_query=note, after_tool=note)

    async def _decide(self, request: ApprovalRequest) -> Decision:
        if self.is_over:
            return Approve()
        if self.by_chance(0.4):
            await self.wait(_TIME_LIMIT)
        else:
            await self.wait(self.chance.uniform(0, 1.5))
        if self.by_chance(0.5):
            self.note("approve")
            return Approve()
        self.note("deny")
        return Deny("not now")

    # What the models say.

    def calls(self, count: int) -> list[StreamPart]:
        """Script an answer that calls the tool, each time with a step of its own."""
        wishes = []
        for _ in range(count):
            self._steps += 1
            wishes.append(("risky", {"step": self._steps}))
        return calls(*wishes, text="I try.", ids=("a", "b") if self._reuses_ids else ())

    def _script(self) -> list[Any]:
        first, second = self._spread(self.calls(2)), self._spread(says("It ", "is ", "done."))
        if self.by_chance(0.3):
            target = self.chance.choice((first, second))
            target[self.chance.randrange(len(target)) :] = self._error()
        second.insert(max(0, len(second) - 1), self._noting("result"))
        return [first, second, *(self._later() for _ in range(6))]

    def _later(self) -> Any:
        """Script what is said when the query, or another after it, asks more often."""
        answers = (says("more"), self.calls(self.chance.choice((1, 2))), self._error())
        (answer,) = self.chance.choices(answers, weights=(4, 4, 1))
        return self._spread(answer) if self.by_chance(0.5) else answer

    def _error(self) -> list[Any]:
        return [self._noting("error"), ProviderError(ErrorCode.BAD_REQUEST, "no", basis="status")]

    def _noting(self, happening: str) -> Callable[[], Awaitable[None]]:
        async def note() -> None:
            self.note(happening)

        return note

    def _spread(self, beats: Sequence[Any]) -> list[Any]:
        """Let an answer come in pieces, with waits in between."""
        spread: list[Any] = []
        for beat in beats:
            spread.append(beat if callable(beat) or isinstance(beat, Exception) else [beat])
            if self.by_chance(0.4):
                spread.append(self._waiting(self.chance.uniform(0, 0.5)))
        return spread

    def _waiting(self, seconds: float) -> Callable[[], Awaitable[None]]:
        return lambda: self.wait(seconds)
