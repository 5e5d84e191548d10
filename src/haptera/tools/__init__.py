"""Tools that come with Haptera: files, search, shell, web and a to-do list. All are opt-in."""

from haptera.model.tools import ToolSpec
from haptera.ports.tools import PreparedCall, RunningToolSource, ToolSource
from haptera.tools.coding import CodingToolkit, coding_tools
from haptera.tools.sandbox.policy import Sandbox
from haptera.tools.sandbox_check import check_sandbox
from haptera.tools.web import web_fetch_tool

__all__ = [
    "CodingToolkit",
    "PreparedCall",
    "RunningToolSource",
    "Sandbox",
    "ToolSource",
    "ToolSpec",
    "check_sandbox",
    "coding_tools",
    "web_fetch_tool",
]
