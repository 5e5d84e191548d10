"""Tools that come with Holdfast: files, search, shell, web and a to-do list. All are opt-in."""

from holdfast.tools.coding import coding_tools
from holdfast.tools.sandbox.policy import Sandbox

__all__ = ["Sandbox", "coding_tools"]
