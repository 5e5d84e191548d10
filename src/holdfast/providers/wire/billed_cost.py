"""Reads what a provider says it billed, in US dollars, out of the usage that it reports."""

from decimal import Decimal

from holdfast.vocabulary.json_types import Json, JsonObject

_USD_PER_TICK = Decimal("0.0000000001")


def cost_in_dollars(usage: JsonObject) -> Decimal | None:
    """Return a router's cost, or the sum of its parts; None where it does not say."""
    cost = usage.get("cost")
    billed = _decimal(cost.get("total_cost") if isinstance(cost, dict) else cost)
    if billed is None or not usage.get("is_byok"):
        return billed
    # With the user's own key the router bills its fee only; the model is billed upstream.
    details = usage.get("cost_details")
    upstream = details.get("upstream_inference_cost") if isinstance(details, dict) else None
    added = _decimal(upstream)
    return None if added is None else billed + added


def cost_in_ticks(usage: JsonObject) -> Decimal | None:
    """Return xAI's cost, which it counts in ticks; None where it does not say."""
    ticks = usage.get("cost_in_usd_ticks")
    return ticks * _USD_PER_TICK if isinstance(ticks, int) else None


def _decimal(value: Json) -> Decimal | None:
    return Decimal(str(value)) if isinstance(value, int | float) else None
