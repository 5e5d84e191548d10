"""Agent, blocking: generated from its async twin, and waits for it.

Made by scripts/write_sync_faces.py, never edited by hand.
"""

from pathlib import Path
from typing import Self, Unpack

from haptera.access.administration import list_local_models as async_list_local_models
from haptera.access.administration import pull_model as async_pull_model
from haptera.access.administration import remove_local_model as async_remove_local_model
from haptera.agent.agent import Agent as AsyncAgent
from haptera.agent.agent import create_agent_session as async_create_agent_session
from haptera.agent.agent import run_agent as async_run_agent
from haptera.agent.agent import run_agent_result as async_run_agent_result
from haptera.agent.agent import run_agent_stream as async_run_agent_stream
from haptera.agent.agent_options import AGENT, SubAgentOptions
from haptera.agent.keywords import (
    AgentKeywords,
    CreateSessionKeywords,
    OneCallKeywords,
    SessionKeywords,
    SingleQueryKeywords,
    SubAgentKeywords,
)
from haptera.agent.query_options import CREATE_SESSION, ONE_CALL, SESSION, SINGLE_QUERY, Prompt
from haptera.kernel.blocks.hook_dispatch.registration import Hooks
from haptera.kernel.blocks.tool_registry.tool import AnyTool
from haptera.model.local_models import LocalModel, OnPull
from haptera.model.outcomes import Err, Ok
from haptera.model.results import AgentResult, OutputT
from haptera.model.settings import Settings
from haptera.model.tools import ToolSpec
from haptera.options.signatures import takes
from haptera.sync.background_loop import LoopAccess
from haptera.sync.query_stream import QueryStream
from haptera.sync.remote import AgentRemote
from haptera.sync.session import AgentSession
from haptera.sync.sessions import AgentSessions
from haptera.system.clock import Clock


@takes(AGENT)
class Agent:
    """The blocking face of `haptera.Agent`."""

    def __init__(self, model: str = "", /, **options: Unpack[AgentKeywords]) -> None:
        self._inner, self._access = AsyncAgent(model, **options), LoopAccess()

    def __enter__(self) -> Self:
        self._access.call(self._inner.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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
        """The hooks of its sessions: what was given as `hooks=`, or none yet.

        Register functions with `@agent.hooks.on("before_tool")`.
        """
        return self._inner.hooks

    @property
    def sessions(self) -> AgentSessions:
        """The sessions of the store: to list, search, change, export, import and delete them."""
        return AgentSessions(self._inner.sessions, self._access)

    @takes(SINGLE_QUERY)
    def run(
        self, prompt: Prompt, **options: Unpack[SingleQueryKeywords[OutputT]]
    ) -> AgentResult[OutputT]:
        """Answer one prompt in a session of its own.

        Raises:
            AgentError: when the query fails or is aborted; its `result` is what was kept.

        """
        return self._access.call(self._inner.run(prompt, **options))

    @takes(SINGLE_QUERY)
    def stream(
        self, prompt: Prompt, **options: Unpack[SingleQueryKeywords[OutputT]]
    ) -> QueryStream[OutputT]:
        """Answer one prompt in a session of its own, and watch the answer come."""
        return QueryStream(self._inner.stream(prompt, **options), self._access)

    @takes(SESSION)
    def session(
        self, reference: str | None = None, **options: Unpack[SessionKeywords]
    ) -> AgentSession:
        """Return a session by its name or id: a new one, or as the store has it.

        Raises:
            ConfigError: CONFIG_INVALID when the name or a state to restore is not valid.

        """
        return AgentSession(self._inner.session(reference, **options), self._access)

    def remote(self, reference: str) -> AgentRemote:
        """Reach a session that another process may hold, by its name or id.

        Raises:
            SessionError: NOT_FOUND when the store has no such session.

        """
        return AgentRemote(self._access.call(self._inner.remote(reference)), self._access)

    @takes(SubAgentOptions)
    def as_tool(
        self, *, name: str, description: str, **options: Unpack[SubAgentKeywords]
    ) -> AnyTool:
        """Return a tool whose calls this agent answers, as the sub-agent of another agent.

        Each call is answered in a session of its own, in the store of the agent that has the tool.
        The model gives the tool a `prompt`, and gets the text of the answer, or JSON with an
        `output_type`. `name` and `description` are what the model sees of it.

        Raises:
            ConfigError: CONFIG_INVALID naming what cannot be used: the name, the type of the
                answer, or an option.

        """
        return self._inner.as_tool(name=name, description=description, **options)

    def close(self) -> None:
        """Close every session, then what they share. Closing twice is fine.

        Raises:
            AgentError: the first failure, after everything was closed; each is a warning in the
                log, with its session. UNAVAILABLE when a store did not answer in time: nothing
                uses the session any more, and the store gives it back as soon as it can.

        """
        self._access.close(self._inner.close)


@takes(ONE_CALL)
def run_agent(prompt: Prompt, **options: Unpack[OneCallKeywords[OutputT]]) -> AgentResult[OutputT]:
    """Answer one prompt.

    Raises:
        AgentError: when the query fails or is aborted; its `result` is what was kept.

    """
    return LoopAccess().call(async_run_agent(prompt, **options))


@takes(ONE_CALL)
def run_agent_result(
    prompt: Prompt, **options: Unpack[OneCallKeywords[OutputT]]
) -> Ok[AgentResult[OutputT]] | Err:
    """Answer one prompt; an `AgentError` comes back as a value instead of being raised."""
    return LoopAccess().call(async_run_agent_result(prompt, **options))


@takes(ONE_CALL)
def run_agent_stream(
    prompt: Prompt, **options: Unpack[OneCallKeywords[OutputT]]
) -> QueryStream[OutputT]:
    """Answer one prompt and watch the answer come."""
    access = LoopAccess()
    return QueryStream(async_run_agent_stream(prompt, **options), access)


@takes(CREATE_SESSION)
def create_agent_session(**options: Unpack[CreateSessionKeywords]) -> AgentSession:
    """Open a session with an agent of its own; closing the session closes the agent."""
    access = LoopAccess()
    return AgentSession(access.call(async_create_agent_session(**options)), access)


def pull_model(name: str, *, folder: Path | None = None, progress: OnPull | None = None) -> Path:
    """Fetch the weights of a local model, unless they are there, and return their path.

    `progress` is told size and place first, then how far it is.

    Raises:
        ConfigError: CONFIG_MISSING when they cannot be reached, with what to do.
        StoreError: CORRUPT when they are not what they should be, FULL when there is no space.

    """
    return LoopAccess().call(async_pull_model(name, folder=folder, progress=progress))


def list_local_models(*, folder: Path | None = None) -> tuple[LocalModel, ...]:
    """List the local models that are known, and which of them are here."""
    return LoopAccess().call(async_list_local_models(folder=folder))


def remove_local_model(name: str, *, folder: Path | None = None) -> int:
    """Remove the weights of a local model; returns how many bytes that frees."""
    return LoopAccess().call(async_remove_local_model(name, folder=folder))
