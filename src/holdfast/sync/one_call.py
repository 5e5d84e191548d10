"""One call, blocking: an agent that lives no longer than one prompt, stream or session."""

from typing import Any, Unpack

from holdfast.agent import one_call
from holdfast.agent.keywords import Prompt
from holdfast.agent.one_call import CreateSessionOptions, OneCallOptions
from holdfast.sync.doorway import Doorway
from holdfast.sync.query_stream import QueryStream
from holdfast.sync.session import AgentSession
from holdfast.vocabulary.results import AgentResult


def run_agent(prompt: Prompt, **options: Unpack[OneCallOptions]) -> AgentResult[Any]:
    """Answer one prompt."""
    return Doorway().call(one_call.run_agent(prompt, **options))


def run_agent_stream(prompt: Prompt, **options: Unpack[OneCallOptions]) -> QueryStream[Any]:
    """Answer one prompt and watch the answer come."""
    return QueryStream(one_call.run_agent_stream(prompt, **options), Doorway())


def create_agent_session(**options: Unpack[CreateSessionOptions]) -> AgentSession:
    """Open a session with an agent of its own; closing the session closes the agent."""
    door = Doorway()
    return AgentSession(door.call(one_call.create_agent_session(**options)), door)
