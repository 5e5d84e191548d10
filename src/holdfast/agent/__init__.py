"""What users write: agents, their sessions and their streams.

What few programs need is imported when it is first used, through this package.
"""

from typing import TYPE_CHECKING

from holdfast.vocabulary.late_names import late_names

if TYPE_CHECKING:
    from holdfast.agent.sessions import AgentSessions
    from holdfast.agent.sub_agents import make_sub_agent

__all__ = ["AgentSessions", "make_sub_agent"]

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "AgentSessions": "holdfast.agent.sessions",
            "make_sub_agent": "holdfast.agent.sub_agents",
        },
    )
