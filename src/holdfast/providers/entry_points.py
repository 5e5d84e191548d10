"""Providers that other installed packages offer, found by name and loaded when they are used."""

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

from holdfast.ports.model_client import ModelClient
from holdfast.vocabulary.errors import ConfigError, ErrorCode

GROUP = "holdfast.providers"

ClientFactory: TypeAlias = Callable[[], ModelClient]
"""What an entry point names: a function without arguments that makes a client."""


def offered_providers() -> tuple[str, ...]:
    """Return the names of all offered providers, without loading one."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def offered_client(name: str, *, points: Iterable[EntryPoint] | None = None) -> ModelClient | None:
    """Make the client of an offered provider; None if nobody offers it.

    Raises CONFIG_INVALID if two packages offer the name, or if the offer cannot be used.
    """
    found = entry_points(group=GROUP) if points is None else points
    named = [point for point in found if point.name == name]
    if not named:
        return None
    if len({point.value for point in named}) > 1:
        offers = ", ".join(sorted(_origin(point) for point in named))
        raise _unusable(name, f"several packages offer it: {offers}")
    point = named[0]
    try:
        client = point.load()()
    except Exception as error:
        # Another package's code: the user must hear whose it is, but its words may quote a key.
        raise _unusable(name, f"{_origin(point)} raised {type(error).__name__}") from error
    missing = [
        word
        for word in ("provider", "stream", "count_tokens", "close")
        if not hasattr(client, word)
    ]
    if missing:
        raise _unusable(name, f"what {_origin(point)} made has no {', '.join(missing)}")
    made: ModelClient = client
    return made


def _origin(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"{point.value!r}{package}"


def _unusable(name: str, reason: str) -> ConfigError:
    return ConfigError(
        ErrorCode.CONFIG_INVALID, f"the provider {name!r} cannot be used: {reason}", provider=name
    )
