"""Settings: the types of options that are more than a text or a number."""

from haptera.model.agent_defaults import Permissions
from haptera.model.budgets import Budgets, Watchdogs
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.messages import Sender
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.model.settings import RuntimeSettings
from haptera.model.tools import ToolRules

__all__ = [
    "Budgets",
    "ClaudeAgentSettings",
    "CompactionSettings",
    "Permissions",
    "RuntimeSettings",
    "Sender",
    "ToolRules",
    "Watchdogs",
]
