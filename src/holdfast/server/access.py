"""Access: which credentials there are, whose they are, and what they allow."""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Self, TypeAlias

import msgspec

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.secrets import remember

Scope: TypeAlias = Literal["read", "write"]
ALL_SCOPES: frozenset[Scope] = frozenset(("read", "write"))

COOKIE = "holdfast_session"
COOKIE_SECONDS = 12 * 3600
_TOKEN_BYTES = 32
_SHORTEST_TOKEN = 16
_LONGEST_TOKEN = 512
_MOST_COOKIES = 1000
_DAY_MS = 24 * 3600 * 1000


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request: an owner of sessions, and what the credential allows."""

    owner: str
    scopes: frozenset[Scope] = ALL_SCOPES
    key: str | None = None
    """The digest of the API key that it came by; None: the token of the server."""
    cookie: str | None = None
    """The digest of the cookie that it came by."""

    @property
    def by_cookie(self) -> bool:
        """Whether a browser sent the credential by itself: a change has to prove its origin."""
        return self.cookie is not None


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is stored: its digest, never the key itself."""

    digest: str
    owner: str
    scopes: tuple[Scope, ...] = ("read", "write")
    expires: int | None = None
    """Milliseconds since 1970; None: never."""
    label: str = ""

    @classmethod
    def of(
        cls, key: str, *, owner: str, read_only: bool = False, days: float | None = None
    ) -> Self:
        """Return what is stored of a key, which is valid for some days or without an end."""
        return cls(
            digest=digest_of(key),
            owner=owner,
            scopes=("read",) if read_only else ("read", "write"),
            expires=None if days is None else int(_wall_clock() + days * _DAY_MS),
        )


KeySource: TypeAlias = Callable[[], Mapping[str, ApiKey]]
"""Returns the keys that there are now, by digest. Called for every request with a key."""


class _Login(msgspec.Struct, frozen=True, kw_only=True):
    principal: Principal
    expires: int


class Access:
    """Knows the token of the server's own user, the keys of other owners, and logged-in browsers.

    Owns digests only: no credential can be read from it. A digest of 256 random bits is looked up
    directly; the one token that a person may have chosen is compared in constant time. `keys` are
    given as they are, or as a function, for keys that change while the server runs. Credentials
    that are valid are known as secrets from then on: no log record or error shows them.
    """

    def __init__(
        self,
        token: str | None,
        *,
        owner: str = "local",
        keys: Iterable[ApiKey] | KeySource = (),
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        if token is not None and not _SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the token of a server has {_SHORTEST_TOKEN} to {_LONGEST_TOKEN} characters",
            )
        if token is not None:
            remember(token)
        self.owner = owner
        self._digest = None if token is None else digest_of(token)
        if callable(keys):
            self._keys = keys
        else:
            known = {key.digest: key for key in keys}
            self._keys = lambda: known
        self._logins: OrderedDict[str, _Login] = OrderedDict()
        self._now_ms = now_ms or _wall_clock

    @property
    def owners(self) -> tuple[str, ...]:
        """Whose sessions the server has: its own user's first."""
        return tuple({self.owner: None, **{key.owner: None for key in self._keys().values()}})

    def principal_of(self, token: str | None) -> Principal | None:
        """Return whose token or key this is, or None."""
        found = self._checked(token)
        return None if found is None else found.principal

    def log_in(self, token: str | None) -> str | None:
        """Exchange a token or a key for the value of a cookie; None when it is not valid."""
        found = self._checked(token)
        if found is None:
            return None
        value = new_token()
        digest = digest_of(value)
        principal = msgspec.structs.replace(found.principal, cookie=digest)
        self._logins[digest] = _Login(principal=principal, expires=found.expires)
        if len(self._logins) > _MOST_COOKIES:
            self._logins.popitem(last=False)
        return value

    def log_out(self, cookie: str | None) -> None:
        """Make a cookie worthless."""
        self._logins.pop(digest_of(cookie or ""), None)

    def principal_of_cookie(self, cookie: str | None) -> Principal | None:
        """Return whose cookie this is, or None."""
        if cookie is None or not 0 < len(cookie) <= _LONGEST_TOKEN:
            return None
        login = self._logins.get(digest_of(cookie))
        return login.principal if login and self.is_valid(login.principal) else None

    def is_valid(self, principal: Principal) -> bool:
        """Whether the credential of a caller still holds: not removed, expired or logged out."""
        if principal.cookie is not None:
            login = self._logins.get(principal.cookie)
            if login is None or login.expires <= self._now_ms():
                return False
        return principal.key is None or self._valid_key(principal.key) is not None

    def _checked(self, token: str | None) -> _Login | None:
        """Return whose credential this is, and until when a login with it may last."""
        if token is None or not 0 < len(token) <= _LONGEST_TOKEN:
            return None
        now = self._now_ms()
        until = now + COOKIE_SECONDS * 1000
        digest = digest_of(token)
        if self._digest is not None and hmac.compare_digest(digest, self._digest):
            return _Login(principal=Principal(owner=self.owner), expires=until)
        key = self._valid_key(digest)
        if key is None:
            return None
        remember(token)
        principal = Principal(owner=key.owner, scopes=frozenset(key.scopes), key=digest)
        return _Login(principal=principal, expires=min(until, key.expires or until))

    def _valid_key(self, digest: str) -> ApiKey | None:
        key = self._keys().get(digest)
        if key is None or (key.expires is not None and key.expires <= self._now_ms()):
            return None
        return key


def new_token() -> str:
    """Return a credential that cannot be guessed."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def digest_of(token: str) -> str:
    """Return the SHA-256 of a credential, as it is stored and looked up."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000
