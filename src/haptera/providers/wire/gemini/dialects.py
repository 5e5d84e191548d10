"""Gemini generateContent: how endpoints and models differ, as data."""

import re

import msgspec

from haptera.model.json_types import JsonObject
from haptera.model.settings import Thinking


class GeminiDialect(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint."""

    name: str
    models: str
    """The path of its models."""
    count_wraps_request: bool
    """Whether a request to count tokens has the whole request in a field of its own."""


GEMINI_API = GeminiDialect(name="gemini", models="v1beta/models", count_wraps_request=True)
VERTEX = GeminiDialect(name="vertex", models="publishers/google/models", count_wraps_request=False)

DIALECTS = {dialect.name: dialect for dialect in (GEMINI_API, VERTEX)}


class ThinkingRule(msgspec.Struct, frozen=True, kw_only=True):
    """The field of models with a matching name, and its value for each level of thinking."""

    models: str
    field: str
    values: dict[Thinking, int | str]


# The API refuses budgets outside of a model's bounds.
def _budgets(*, off: int, least: int, most: int) -> dict[Thinking, int | str]:
    steps: dict[Thinking, int] = {"low": 2048, "medium": 8192, "high": 16384, "xhigh": most}
    values: dict[Thinking, int | str] = {"off": off, "minimal": least, "max": most}
    return values | {level: min(max(tokens, least), most) for level, tokens in steps.items()}


def _levels(*, off: str, minimal: str, medium: str) -> dict[Thinking, int | str]:
    low: dict[Thinking, int | str] = {"off": off, "minimal": minimal, "low": "LOW"}
    return low | {"medium": medium, "high": "HIGH", "xhigh": "HIGH", "max": "HIGH"}


THINKING_RULES = (
    # The first Gemini 3 Pro has two levels only. Thinking cannot be turned off for any Pro model.
    ThinkingRule(
        models=r"gemini-3-pro",
        field="thinkingLevel",
        values=_levels(off="LOW", minimal="LOW", medium="HIGH"),
    ),
    ThinkingRule(
        models=r"gemini-[3-9].*pro",
        field="thinkingLevel",
        values=_levels(off="LOW", minimal="LOW", medium="MEDIUM"),
    ),
    ThinkingRule(
        models=r"gemini-[3-9]",
        field="thinkingLevel",
        values=_levels(off="MINIMAL", minimal="MINIMAL", medium="MEDIUM"),
    ),
    ThinkingRule(
        models=r"gemini-2\.5-pro",
        field="thinkingBudget",
        values=_budgets(off=128, least=128, most=32768),
    ),
    ThinkingRule(
        models=r"gemini-2\.5-flash-lite",
        field="thinkingBudget",
        values=_budgets(off=0, least=512, most=24576),
    ),
    ThinkingRule(
        models=r"gemini-2\.5-flash",
        field="thinkingBudget",
        values=_budgets(off=0, least=128, most=24576),
    ),
)
"""The first match applies; other models do not think."""


def thinking_config(model: str, thinking: Thinking | None) -> JsonObject | None:
    """Return the field for `thinking`; None without a level, or if the model cannot think."""
    rule = next((rule for rule in THINKING_RULES if re.search(rule.models, model)), None)
    if rule is None or thinking is None:
        return None
    return {rule.field: rule.values[thinking], "includeThoughts": thinking != "off"}


def is_gemini_3(model: str) -> bool:
    """Whether a model is Gemini 3 or later.

    Those check signatures, and accept media in tool results and an output schema beside tools.
    """
    return re.search(r"gemini-[3-9]", model) is not None


_OLDER = re.compile(r"gemini-(1|2\.0)|gemma|learnlm")


def takes_json_schema(model: str) -> bool:
    """Whether `model` accepts JSON Schema rather than the older subset of OpenAPI's."""
    return _OLDER.search(model) is None


_VERSION = re.compile(r"-(latest|\d{3}|preview(-\d\d-\d{2,4})?)$")


def is_same_gemini_model(first: str, second: str) -> bool:
    """Whether two names mean the same model, apart from version and alias suffixes."""
    return _VERSION.sub("", first) == _VERSION.sub("", second)
