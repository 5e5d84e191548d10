"""Anthropic Messages: what the models differ in, by the family and version in their names.

A model that is not in the table, which includes other vendors' models behind this protocol, gets
the most cautious traits.
"""

import re
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.vocabulary.settings import Thinking

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]

_EFFORTS: dict[Thinking, Effort] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
BUDGETS: dict[Thinking, int] = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 10_240,
    "high": 20_480,
    "xhigh": 28_672,
    "max": 28_672,
}
"""Tokens for models that are told how many they may think; 1,024 is the least they take."""

_NAME = re.compile(
    r"claude-(?:(?P<family>[a-z]+)-(?P<version>\d{1,2}(?:[-.]\d{1,2})?)(?!\d)"
    r"|(?P<old_version>\d(?:[-.]\d)?)-(?P<old_family>[a-z]+))"
)


class ModelTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How a model wants to be asked."""

    thinking: Literal["none", "budget", "adaptive"] = "none"
    thinking_off: Literal["omit", "disabled", "between_tools", "never"] = "omit"
    """How thinking is turned off; `never` for models that always think."""
    has_display: bool = False
    """Whether thinking is hidden unless it is asked for."""
    has_xhigh: bool = True
    takes_temperature: bool = True
    takes_output_schema: bool = False
    takes_forced_tool: bool = True
    max_tokens: int = 4_096
    """What is asked for when nobody said how long an answer may be."""

    def effort(self, level: Thinking) -> Effort:
        """Return the effort that comes nearest to `level` without going beyond it."""
        effort = _EFFORTS.get(level, "low")
        return "high" if effort == "xhigh" and not self.has_xhigh else effort


_OLD = ModelTraits(max_tokens=8_192)
_BUDGET = ModelTraits(thinking="budget", max_tokens=32_000)
_BUDGET_WITH_SCHEMA = replace(_BUDGET, takes_output_schema=True)
_ADAPTIVE = ModelTraits(
    thinking="adaptive", has_xhigh=False, takes_output_schema=True, max_tokens=64_000
)
_ADAPTIVE_ONLY = replace(_ADAPTIVE, has_display=True, has_xhigh=True, takes_temperature=False)
_THINKING_BY_DEFAULT = replace(_ADAPTIVE_ONLY, thinking_off="disabled")
_BETWEEN_TOOLS = replace(_ADAPTIVE_ONLY, thinking_off="between_tools", takes_forced_tool=False)
_ALWAYS_THINKING = replace(_ADAPTIVE_ONLY, thinking_off="never", takes_forced_tool=False)

# From the newest version down: the first row at or below a model's version is the model's.
_BY_VERSION: tuple[tuple[tuple[int, int], ModelTraits], ...] = (
    ((5, 0), _THINKING_BY_DEFAULT),
    ((4, 7), _ADAPTIVE_ONLY),
    ((4, 6), _ADAPTIVE),
    ((4, 5), _BUDGET_WITH_SCHEMA),
    ((3, 7), _BUDGET),
    ((3, 5), _OLD),
    ((0, 0), replace(_OLD, max_tokens=4_096)),
)
# Families that differ from their generation, from a version on.
_BY_FAMILY: tuple[tuple[str, tuple[int, int], ModelTraits], ...] = (
    ("fable", (5, 0), _ALWAYS_THINKING),
    ("mythos", (5, 0), _ALWAYS_THINKING),
    ("opus", (5, 5), _ALWAYS_THINKING),
    ("sonnet", (5, 5), _BETWEEN_TOOLS),
)


def traits_of(model: str) -> ModelTraits:
    """Return the traits of a model by its name, with any prefix or date around it."""
    if "claude-mythos-preview" in model:
        return _ALWAYS_THINKING
    found = _NAME.search(model.lower())
    if found is None:
        return ModelTraits()
    family = found["family"] or found["old_family"]
    numbers = re.split(r"[-.]", found["version"] or found["old_version"])
    version = (int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0)
    for name, since, traits in _BY_FAMILY:
        if family == name and version >= since:
            return traits
    return next(traits for since, traits in _BY_VERSION if version >= since)
