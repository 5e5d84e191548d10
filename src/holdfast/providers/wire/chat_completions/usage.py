"""Reads usage and cost out of the many shapes in which Chat Completions servers report them."""

from decimal import Decimal

from holdfast.providers.wire.billed_cost import cost_in_dollars, cost_in_ticks
from holdfast.providers.wire.chat_completions.dialects import CostField
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.usage import Usage


def read_usage(reported: JsonObject | None) -> Usage:
    """Turn a reported usage into ours: inclusive totals with their breakdown.

    Prompt tokens include cached ones everywhere. Completion tokens include reasoning, except on
    servers whose total shows that they do not: there, the total is what was used.
    """
    if not reported:
        return Usage()
    prompt_details = _object(reported, "prompt_tokens_details")
    completion_details = _object(reported, "completion_tokens_details")
    prompt = _count(reported, "prompt_tokens")
    completion = _count(reported, "completion_tokens")
    reasoning = _first(
        _count(completion_details, "reasoning_tokens"), _count(reported, "reasoning_tokens")
    )
    if reasoning and _count(reported, "total_tokens") == prompt + completion + reasoning:
        completion += reasoning
    return Usage(
        input=prompt,
        output=completion,
        cache_read=_first(
            _count(prompt_details, "cached_tokens"),
            _count(reported, "prompt_cache_hit_tokens"),
            _count(reported, "cached_tokens"),
        ),
        cache_write=_count(prompt_details, "cache_write_tokens"),
        reasoning=reasoning,
    )


def read_cost(reported: JsonObject | None, field: CostField) -> Decimal | None:
    """Return what the server says it billed, in US dollars; None where it does not say."""
    if not reported or field == "none":
        return None
    return cost_in_ticks(reported) if field == "usd_ticks" else cost_in_dollars(reported)


def _object(container: JsonObject, name: str) -> JsonObject:
    found = container.get(name)
    return found if isinstance(found, dict) else {}


def _count(container: JsonObject, name: str) -> int:
    found = container.get(name)
    return max(0, int(found)) if isinstance(found, int | float) else 0


def _first(*counts: int) -> int:
    return next((count for count in counts if count), 0)
