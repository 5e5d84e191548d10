"""Keywords of functions with options, by `scripts/write_keywords.py`: not by hand.

A module of its own because it is data that a script writes.
"""

from collections.abc import Sequence
from typing import TypedDict

from haptera.model.json_types import JsonObject
from haptera.model.tools import ApprovalMode, Effect


class ToolKeywords(TypedDict, total=False):
    """What `@tool` may be told: fields of `ToolSpec` and `ToolRules`, which declare them."""

    name: str | None
    """The name that a model calls it by."""
    description: str | None
    """What it does, for the model."""
    approval: ApprovalMode
    """Whether a person is asked before each call."""
    timeout: float | None
    """Seconds that a call may take; 0 or None: any."""
    idempotent: bool
    """Whether running it twice is the same as once; only then may it be run again after a crash."""
    retry: int
    """How often it is repeated when it fails; only if it is idempotent."""
    effect: Effect
    """What it does to the world; an approver is told."""
    input_examples: Sequence[JsonObject]
    """Examples of its arguments for the model."""
