"""How Gemini models take a wish for thinking: a budget of tokens, or a level; as data."""

import re

import msgspec

from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.settings import Thinking


class ThinkingRow(msgspec.Struct, frozen=True, kw_only=True):
    """The models whose name matches, and their value for each of our levels."""

    models: str
    field: str
    values: dict[Thinking, int | str]


def _budgets(*, off: int, least: int, most: int) -> dict[Thinking, int | str]:
    steps: dict[Thinking, int] = {"low": 2048, "medium": 8192, "high": 16384, "xhigh": most}
    values: dict[Thinking, int | str] = {"off": off, "minimal": least, "max": most}
    return values | {level: min(max(tokens, least), most) for level, tokens in steps.items()}


def _levels(*, off: str, minimal: str, medium: str) -> dict[Thinking, int | str]:
    low: dict[Thinking, int | str] = {"off": off, "minimal": minimal, "low": "LOW"}
    return low | {"medium": medium, "high": "HIGH", "xhigh": "HIGH", "max": "HIGH"}


ROWS = (
    # The first Gemini 3 Pro knows two levels only; no Pro can be told not to think.
    ThinkingRow(
        models=r"gemini-3-pro",
        field="thinkingLevel",
        values=_levels(off="LOW", minimal="LOW", medium="HIGH"),
    ),
    ThinkingRow(
        models=r"gemini-[3-9].*pro",
        field="thinkingLevel",
        values=_levels(off="LOW", minimal="LOW", medium="MEDIUM"),
    ),
    ThinkingRow(
        models=r"gemini-[3-9]",
        field="thinkingLevel",
        values=_levels(off="MINIMAL", minimal="MINIMAL", medium="MEDIUM"),
    ),
    ThinkingRow(
        models=r"gemini-2\.5-pro",
        field="thinkingBudget",
        values=_budgets(off=128, least=128, most=32768),
    ),
    ThinkingRow(
        models=r"gemini-2\.5-flash-lite",
        field="thinkingBudget",
        values=_budgets(off=0, least=512, most=24576),
    ),
    ThinkingRow(
        models=r"gemini-2\.5-flash",
        field="thinkingBudget",
        values=_budgets(off=0, least=128, most=24576),
    ),
)
"""The first row that matches counts; other models do not think."""


def thinking_config(model: str, thinking: Thinking | None) -> JsonObject | None:
    """Return what to send for `thinking`; None where nothing is wished or the model cannot."""
    row = next((row for row in ROWS if re.search(row.models, model)), None)
    if row is None or thinking is None:
        return None
    return {row.field: row.values[thinking], "includeThoughts": thinking != "off"}


def is_gemini_3(model: str) -> bool:
    """Whether a model checks signatures, and takes media in results and tools with a schema."""
    return re.search(r"gemini-[3-9]", model) is not None


_VERSION = re.compile(r"-(latest|\d{3}|preview(-\d\d-\d{2,4})?)$")


def is_same_model(first: str, second: str) -> bool:
    """Whether two names mean one model, whose signatures it knows: versions and aliases do."""
    return _VERSION.sub("", first) == _VERSION.sub("", second)
