"""Tools that come with Haptera: files, search, shell, web and a to-do list. All are opt-in."""

from haptera.tools.coding import CodingToolkit, coding_tools
from haptera.tools.sandbox.policy import Sandbox
from haptera.tools.sandbox_check import check_sandbox
from haptera.tools.web import web_fetch_tool

__all__ = ["CodingToolkit", "Sandbox", "check_sandbox", "coding_tools", "web_fetch_tool"]
