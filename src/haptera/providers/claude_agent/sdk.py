"""The package claude-agent-sdk, imported with the first session: it takes over a second.

Use the names through the module: `sdk.ClaudeSDKClient(...)`, after `sdk.require_sdk()`.
"""

from importlib.util import find_spec
from logging import NullHandler
from typing import TYPE_CHECKING

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.late_names import late_names
from haptera.model.vendors import CLAUDE_AGENT
from haptera.system.logs import scrubbed_logger

if TYPE_CHECKING:
    from claude_agent_sdk import (
        ClaudeAgentOptions,
        ClaudeSDKClient,
        HookMatcher,
        PermissionResultAllow,
        PermissionResultDeny,
        ResultMessage,
        SdkMcpTool,
        SystemMessage,
        create_sdk_mcp_server,
        fold_session_summary,
        project_key_for_directory,
    )

__all__ = [
    "ClaudeAgentOptions",
    "ClaudeSDKClient",
    "HookMatcher",
    "PermissionResultAllow",
    "PermissionResultDeny",
    "ResultMessage",
    "SdkMcpTool",
    "SystemMessage",
    "create_sdk_mcp_server",
    "fold_session_summary",
    "project_key_for_directory",
    "require_sdk",
]


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


if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        dict.fromkeys((name for name in __all__ if name != "require_sdk"), "claude_agent_sdk"),
    )
