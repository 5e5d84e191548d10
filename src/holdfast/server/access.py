"""Access: who may call, by which credential, and from where."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec

Scope: TypeAlias = Literal["read", "write"]
ALL_SCOPES: frozenset[Scope] = frozenset(("read", "write"))

COOKIE = "holdfast_session"
_TOKEN_BYTES = 32
_LONGEST_TOKEN = 512


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls: an owner of sessions, and what the credential allows."""

    owner: str
    scopes: frozenset[Scope] = ALL_SCOPES
    by_cookie: bool = False
    """Whether a browser sent it by itself, so that the request must prove where it comes from."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is stored: its digest, never itself."""

    digest: str
    owner: str
    scopes: tuple[Scope, ...] = ("read", "write")
    expires: int | None = None
    """Milliseconds since 1970; None: never."""
    label: str = ""


class Access:
    """Knows the token of the server's own user, and the keys of other owners.

    Holds digests only, and compares them in constant time.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        owner: str = "local",
        keys: Iterable[ApiKey] = (),
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.token = token or secrets.token_urlsafe(_TOKEN_BYTES)
        self.owner = owner
        self._keys = {key.digest: key for key in keys}
        self._cookies: dict[str, Principal] = {}
        self._now_ms = now_ms or _wall_clock

    def principal_of(self, token: str | None) -> Principal | None:
        """Return who holds a token, or None."""
        if token is None or not 0 < len(token) <= _LONGEST_TOKEN:
            return None
        digest = digest_of(token)
        if hmac.compare_digest(digest, digest_of(self.token)):
            return Principal(owner=self.owner)
        key = self._keys.get(digest)
        if key is None or (key.expires is not None and key.expires <= self._now_ms()):
            return None
        return Principal(owner=key.owner, scopes=frozenset(key.scopes))

    def new_cookie(self, principal: Principal) -> str:
        """Exchange a token that was just checked for the value of a cookie."""
        value = secrets.token_urlsafe(_TOKEN_BYTES)
        self._cookies[digest_of(value)] = msgspec.structs.replace(principal, by_cookie=True)
        return value

    def principal_of_cookie(self, value: str | None) -> Principal | None:
        """Return whose cookie this is, or None."""
        if value is None or not 0 < len(value) <= _LONGEST_TOKEN:
            return None
        return self._cookies.get(digest_of(value))


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token, as it is stored and compared."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
