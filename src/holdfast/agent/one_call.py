"""One call: an agent that lives no longer than one prompt, one stream or one session."""

import os
from collections.abc import Container
from typing import Any, Unpack

from holdfast.agent.agent import Agent
from holdfast.agent.keywords import AgentOptions, Prompt, QueryOptions, SessionOptions
from holdfast.agent.queries import make_query, stream_query
from holdfast.agent.query_stream import QueryStream
from holdfast.agent.session import AgentSession
from holdfast.vocabulary.results import AgentResult


class OneCallOptions(AgentOptions, QueryOptions, total=False):
    """What a single query may be told about its agent and itself."""


class CreateSessionOptions(AgentOptions, SessionOptions, total=False):
    """What a single session may be told about its agent and itself."""

    name: str
    """A name or id; without one the session is new."""


async def run_agent(prompt: Prompt, **options: Unpack[OneCallOptions]) -> AgentResult[Any]:
    """Answer one prompt.

    Raises:
        AgentError: when the query fails or is aborted; its `result` is what was kept.

    """
    return await run_agent_stream(prompt, **options).result()


def run_agent_stream(prompt: Prompt, **options: Unpack[OneCallOptions]) -> QueryStream[Any]:
    """Answer one prompt and watch the answer come."""
    agent_options, query_options = _split(options)
    query = make_query(prompt, query_options)
    signal = query_options.get("signal")
    if signal is not None and signal.aborted:
        agent_options = {}  # nothing is built for a query that was stopped before it began
    agent = Agent(**agent_options)
    cwd = agent_options.get("cwd") or os.getcwd()  # noqa: PTH109 - pathlib is slow to import
    return stream_query(agent.session().open, query, query_options, finish=agent.close, cwd=cwd)


async def create_agent_session(**options: Unpack[CreateSessionOptions]) -> AgentSession:
    """Open a session with an agent of its own; closing the session closes the agent."""
    agent_options, session_options = _part_session(options)
    agent = Agent(**agent_options)
    session = agent.session(options.get("name"), **session_options)
    session.when_closed(agent.close)
    try:
        await session.open()
    except BaseException:
        await agent.close()
        raise
    return session


def _split(options: OneCallOptions) -> tuple[AgentOptions, QueryOptions]:
    """Part what is the agent's from what is the query's."""
    agent: AgentOptions = {}
    query: QueryOptions = {}
    _sort(options, QueryOptions.__annotations__, into=query, rest=agent)
    return agent, query


def _part_session(options: CreateSessionOptions) -> tuple[AgentOptions, SessionOptions]:
    """Part what is the agent's from what is the session's."""
    agent: AgentOptions = {}
    session: SessionOptions = {}
    _sort(options, SessionOptions.__annotations__, into=session, rest=agent)
    agent.pop("name", None)  # type: ignore[typeddict-item]
    return agent, session


def _sort(options: Any, names: Container[str], *, into: Any, rest: Any) -> None:  # noqa: ANN401
    """Put each option where it belongs; the types of both sides are the callers' business."""
    for name, value in options.items():
        (into if name in names else rest)[name] = value
