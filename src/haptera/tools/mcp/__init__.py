"""MCP servers as sources of tools, over stdio and streamable HTTP, with the extra `mcp`."""

from haptera.tools.mcp.server import McpServer, mcp_servers
from haptera.tools.mcp.server_facts import (
    McpPrompt,
    McpPromptArgument,
    McpPromptMessage,
    McpResource,
    McpStatus,
)

__all__ = [
    "McpPrompt",
    "McpPromptArgument",
    "McpPromptMessage",
    "McpResource",
    "McpServer",
    "McpStatus",
    "mcp_servers",
]
