"""The public names, blocking: the same session over one background event loop."""

from haptera.sync.agent import (
    Agent,
    create_agent_session,
    list_local_models,
    pull_model,
    remove_local_model,
    run_agent,
    run_agent_result,
    run_agent_stream,
)
from haptera.sync.query_stream import QueryStream, with_retry
from haptera.sync.remote import AgentRemote
from haptera.sync.session import AgentSession

__all__ = [
    "Agent",
    "AgentRemote",
    "AgentSession",
    "QueryStream",
    "create_agent_session",
    "list_local_models",
    "pull_model",
    "remove_local_model",
    "run_agent",
    "run_agent_result",
    "run_agent_stream",
    "with_retry",
]
