"""The package claude-agent-sdk, imported with the first session: it takes over a second.

`package` is the module; use it after `require_sdk()`.
"""

from importlib.util import find_spec
from logging import NullHandler
from typing import TYPE_CHECKING

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.late_names import on_first_use
from haptera.model.vendors import CLAUDE_AGENT
from haptera.system.logs import scrubbed_logger

__all__ = ["package", "require_sdk"]

if TYPE_CHECKING:
    import claude_agent_sdk as package
else:
    package = on_first_use("claude_agent_sdk")

# What the package logs of a process that ended is raised, too; alone it would go to stderr.
scrubbed_logger("claude_agent_sdk").addHandler(NullHandler())


def require_sdk() -> None:
    """Raise CONFIG_MISSING unless the package is installed."""
    if find_spec("claude_agent_sdk") is None:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            f"{CLAUDE_AGENT} needs the package claude-agent-sdk: pip install 'haptera[claude]'",
            provider=CLAUDE_AGENT,
        )
