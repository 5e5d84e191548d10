"""Writes how much a model should think, in the words of its server."""

import re
from collections.abc import Sequence

from holdfast.providers.wire.chat_completions.dialects import (
    Dialect,
    ThinkingRule,
    ThinkingStyle,
)
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.settings import Thinking

_LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def ask_for_thinking(dialect: Dialect, model: str, level: Thinking | None) -> JsonObject:
    """Return the fields of a request that ask `model` to think at `level`."""
    rule = _rule_for(dialect, model)
    if level is None or rule is None or rule.style == "none":
        return {}
    if level == "off" and rule.off_by_silence:
        return {}
    effort = nearest_effort(level, rule.efforts)
    return {**_written(rule.style, effort, is_on=level != "off"), **rule.extra}


def nearest_effort(level: Thinking, efforts: Sequence[str]) -> str:
    """Choose what comes nearest to `level`: never off unless asked for, never more than asked.

    Where everything on offer is more than asked for, it is the least of that.
    """
    if level == "off":
        return efforts[0]
    if "default" in efforts:
        return "default"
    offered = [effort for effort in efforts if effort != "none"]
    wanted = _LEVELS.index(level)
    within = [effort for effort in offered if _LEVELS.index(effort) <= wanted]
    return within[-1] if within else offered[0]


def _rule_for(dialect: Dialect, model: str) -> ThinkingRule | None:
    name = model.lower()
    return next((rule for rule in dialect.thinking if re.search(rule.models, name)), None)


def _written(style: ThinkingStyle, effort: str, *, is_on: bool) -> JsonObject:
    match style:
        case "reasoning":
            return {"reasoning": {"effort": effort}}
        case "reasoning_switch":
            return {"reasoning": {"enabled": is_on}}
        case "template":
            return {"chat_template_kwargs": {"enable_thinking": is_on}}
        case "thinking_type" if is_on:
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        case "thinking_type":
            return {"thinking": {"type": "disabled"}}
        case _:
            return {"reasoning_effort": effort}
