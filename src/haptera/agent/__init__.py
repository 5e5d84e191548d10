"""What users write: agents, their sessions and their streams.

What few programs need is imported when it is first used, through this package.
"""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names

if TYPE_CHECKING:
    from haptera.agent.sessions import AgentSessions
    from haptera.agent.sub_agents import make_sub_agent

# Made by scripts/write_late_names.py.
__all__ = ["AgentSessions", "make_sub_agent"]

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {"AgentSessions": "haptera.agent.sessions", "make_sub_agent": "haptera.agent.sub_agents"},
    )
# End.
