"""Tools that come with Holdfast: files, search, shell, web and a to-do list. All are opt-in."""

from holdfast.tools.coding import CodingToolkit, coding_tools
from holdfast.tools.sandbox.policy import Sandbox
from holdfast.tools.sandbox_check import check_sandbox
from holdfast.tools.web import web_fetch_tool

__all__ = ["CodingToolkit", "Sandbox", "check_sandbox", "coding_tools", "web_fetch_tool"]
