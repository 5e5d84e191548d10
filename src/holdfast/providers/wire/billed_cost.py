"""Reads what a provider says it billed, in US dollars, out of the usage that it reports."""

from decimal import Decimal

from holdfast.vocabulary.json_types import Json, JsonObject

_USD_PER_TICK = Decimal("0.0000000001")
_LARGEST_BILL = 10**18


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
    amount = _decimal(ticks) if isinstance(ticks, int) else None
    return None if amount is None else amount * _USD_PER_TICK


def _decimal(value: Json) -> Decimal | None:
    """Return an amount of money; a number that no bill could show is none."""
    is_amount = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return Decimal(str(value)) if is_amount and value < _LARGEST_BILL else None
