"""What a JSON Schema refers to, for tests that check that it is there."""

from typing import Any


def references_in(value: Any) -> set[str]:
    """Return every `$ref` anywhere inside a schema."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references_in(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(references_in(item) for item in value))
    return set()
