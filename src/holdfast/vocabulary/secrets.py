"""Secrets: values that cannot be printed, logged or stored by accident."""

import re
from collections.abc import Iterable

REDACTED = "****"

_SHOWN = 8
_LONG_ENOUGH_TO_SHOW_SOME = 16

_CREDENTIAL = (
    r"(?P<lead>\b(?:bearer|basic)\s+|\b(?:x-)?api[-_]key[\"']?\s*[:=]\s*[\"']?)[A-Za-z0-9._~+/=-]{8,}"
    r"|\b(?:sk|rk|pk|gsk|xai|ghp|gho|AIza)[-_]?[A-Za-z0-9_-]{16,}"
)


class Secret:
    """A credential; shows itself to nobody who does not ask with `reveal`.

    Printing, formatting and pickling give a stand-in; encoding it as JSON fails.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself; only for the request that needs it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({REDACTED!r})"

    def __str__(self) -> str:
        return REDACTED

    def __format__(self, format_spec: str) -> str:
        return format(REDACTED, format_spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac  # noqa: PLC0415 - it brings OpenSSL's digests, and secrets are seldom compared

        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        return Secret, (REDACTED,)


def mask(value: str) -> str:
    """Return enough of a credential to tell two apart in a log: less than half, or nothing."""
    if len(value) <= _LONG_ENOUGH_TO_SHOW_SOME:
        return REDACTED
    return value[:_SHOWN] + REDACTED


def scrub(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Take `secrets`, and whatever else looks like a credential, out of somebody else's text."""
    for secret in secrets:
        if secret:
            text = text.replace(secret.reveal(), REDACTED)
    return re.sub(
        _CREDENTIAL, lambda match: (match["lead"] or "") + REDACTED, text, flags=re.IGNORECASE
    )
