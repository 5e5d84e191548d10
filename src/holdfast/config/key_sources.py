"""From where a secret is to the source that gives it for each request."""

import importlib
from collections.abc import Callable
from typing import Protocol, cast

from holdfast.auth.token_sources import (
    CallableTokenSource,
    CommandTokenSource,
    EnvironmentTokenSource,
)
from holdfast.config.environment import Environment
from holdfast.config.schema import KeyReference
from holdfast.ports.token_source import TokenKind, TokenSource
from holdfast.vocabulary.errors import ConfigError, ErrorCode


class Keyring(Protocol):
    """What is used of the `keyring` package."""

    def get_password(self, service_name: str, username: str) -> str | None:
        """Return a password, or None if there is none."""
        ...


def installed_keyring() -> Keyring:
    """Return the `keyring` package; raises CONFIG_MISSING where it is not installed."""
    try:
        return cast("Keyring", importlib.import_module("keyring"))
    except ImportError:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            "a key is said to be in the keyring, and the package 'keyring' is not installed",
        ) from None


def key_source(
    reference: KeyReference,
    *,
    environment: Environment,
    kind: TokenKind = "key",
    keyring: Callable[[], Keyring] = installed_keyring,
) -> TokenSource:
    """Return the source of a secret, which is not read before a request needs it.

    Raises CONFIG_MISSING for a secret in the keyring where there is no keyring to ask.
    """
    if reference.env is not None:
        return EnvironmentTokenSource(reference.env, environment.variables, kind=kind)
    if reference.command is not None:
        return CommandTokenSource(reference.command, kind=kind)
    service, _, user = (reference.keyring or "").rpartition("/")
    ring = keyring()

    def password() -> str:
        return ring.get_password(service, user) or ""

    return CallableTokenSource(password, kind=kind)
