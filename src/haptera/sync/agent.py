"""Agent and the functions beside it, blocking: each is its async twin, waited for."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar, Unpack

from haptera.access import administration
from haptera.agent import agent as asynchronous
from haptera.agent import retrying
from haptera.agent.agent_options import AgentOptions, SubAgentOptions
from haptera.agent.query_options import (
    CreateSessionOptions,
    OneCallOptions,
    Prompt,
    SessionOptions,
    SingleQueryOptions,
)
from haptera.agent.retrying import OnRetry
from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.tool_registry.tool import AnyTool
from haptera.model.local_models import LocalModel, OnPull
from haptera.model.option_declarations import takes
from haptera.model.outcomes import Err, Ok
from haptera.model.results import AgentResult, OutputT
from haptera.model.settings import RetrySettings, Settings
from haptera.model.tools import ToolSpec
from haptera.sync.background_loop import LoopAccess, background_loop
from haptera.sync.session import AgentRemote, AgentSession, QueryStream
from haptera.sync.sessions import AgentSessions
from haptera.system.abort import AbortSignal
from haptera.system.clock import Clock, Random

ValueT = TypeVar("ValueT")


class AgentFacts:
    """What can be read of an agent."""

    _inner: asynchronous.Agent

    @property
    def settings(self) -> Settings:
        """What new sessions start with."""
        return self._inner.settings

    @property
    def owner(self) -> str:
        """Whose sessions it has."""
        return self._inner.owner

    @property
    def clock(self) -> Clock:
        """The time that it goes by."""
        return self._inner.clock

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that new sessions offer to the model."""
        return self._inner.tools

    @property
    def hooks(self) -> Hooks:
        """The hooks of its sessions; functions that are not async run in threads."""
        return self._inner.hooks


@takes(AgentOptions)
class Agent(AgentFacts):
    """The blocking face of an agent; see `haptera.Agent`."""

    def __init__(self, model: str = "", /, **options: Unpack[AgentOptions]) -> None:
        self._inner = asynchronous.Agent(model, **options)
        self._access = LoopAccess()

    @property
    def sessions(self) -> AgentSessions:
        """The sessions of the store: to list, search, change, export, import and delete them."""
        return AgentSessions(self._inner.sessions, self._access)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @takes(SingleQueryOptions)
    def run(
        self, prompt: Prompt, **options: Unpack[SingleQueryOptions[OutputT]]
    ) -> AgentResult[OutputT]:
        """Answer one prompt in a session of its own."""
        return self._access.call(self._inner.run(prompt, **options))

    @takes(SingleQueryOptions)
    def stream(
        self, prompt: Prompt, **options: Unpack[SingleQueryOptions[OutputT]]
    ) -> QueryStream[OutputT]:
        """Answer one prompt in a session of its own, and watch the answer come."""
        return QueryStream(self._inner.stream(prompt, **options), self._access)

    @takes(SessionOptions)
    def session(
        self, reference: str | None = None, **options: Unpack[SessionOptions]
    ) -> AgentSession:
        """Return a session by its name or id: a new one, or as the store has it."""
        return AgentSession(self._inner.session(reference, **options), self._access)

    def remote(self, reference: str) -> AgentRemote:
        """Reach a session that another process holds, by its name or id."""
        return AgentRemote(self._access.call(self._inner.remote(reference)), self._access)

    @takes(SubAgentOptions)
    def as_tool(
        self, *, name: str, description: str, **options: Unpack[SubAgentOptions]
    ) -> AnyTool:
        """Return a tool whose calls this agent answers, as the sub-agent of another agent."""
        return self._inner.as_tool(name=name, description=description, **options)

    def close(self) -> None:
        """Close every session, then what they share."""
        self._access.close(self._inner.close)


@takes(OneCallOptions)
def run_agent(prompt: Prompt, **options: Unpack[OneCallOptions[OutputT]]) -> AgentResult[OutputT]:
    """Answer one prompt."""
    return LoopAccess().call(asynchronous.run_agent(prompt, **options))


@takes(OneCallOptions)
def run_agent_result(
    prompt: Prompt, **options: Unpack[OneCallOptions[OutputT]]
) -> Ok[AgentResult[OutputT]] | Err:
    """Answer one prompt; an `AgentError` comes back as a value instead of being raised."""
    return LoopAccess().call(asynchronous.run_agent_result(prompt, **options))


@takes(OneCallOptions)
def run_agent_stream(
    prompt: Prompt, **options: Unpack[OneCallOptions[OutputT]]
) -> QueryStream[OutputT]:
    """Answer one prompt and watch the answer come."""
    return QueryStream(asynchronous.run_agent_stream(prompt, **options), LoopAccess())


@takes(CreateSessionOptions)
def create_agent_session(**options: Unpack[CreateSessionOptions]) -> AgentSession:
    """Open a session with an agent of its own; closing the session closes the agent."""
    access = LoopAccess()
    return AgentSession(access.call(asynchronous.create_agent_session(**options)), access)


def with_retry(
    work: Callable[[], ValueT],
    *,
    retry: RetrySettings | None = None,
    on_retry: OnRetry | None = None,
    signal: AbortSignal | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
) -> ValueT:
    """Call a blocking function, in a thread, and again when it fails in a way that may pass."""

    async def attempt() -> ValueT:
        return await asyncio.to_thread(work)

    return background_loop.call(
        retrying.with_retry(
            attempt, retry=retry, on_retry=on_retry, signal=signal, clock=clock, random=random
        )
    )


def pull_model(name: str, *, folder: Path | None = None, progress: OnPull | None = None) -> Path:
    """Fetch the weights of a local model, unless they are there, and return their path."""
    return background_loop.call(administration.pull_model(name, folder=folder, progress=progress))


def list_local_models(*, folder: Path | None = None) -> tuple[LocalModel, ...]:
    """List the local models that are known, and which of them are here."""
    return background_loop.call(administration.list_local_models(folder=folder))


def remove_local_model(name: str, *, folder: Path | None = None) -> int:
    """Remove the weights of a local model; returns how many bytes that frees."""
    return background_loop.call(administration.remove_local_model(name, folder=folder))
