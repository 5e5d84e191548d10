"""The environment: the one place that reads it; everybody else is handed a mapping."""

import os
from collections.abc import Mapping


def process_environment() -> Mapping[str, str]:
    """Return the process's environment; the mapping shows later changes."""
    return os.environ  # noqa: TID251 - this is the room the rule points to


def read(environment: Mapping[str, str], *names: str) -> str | None:
    """Return the first of `names` that is set to something, without the space around it."""
    for name in names:
        if value := environment.get(name, "").strip():
            return value
    return None
