"""Access: which credentials there are, whose they are, and what they allow."""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Self, TypeAlias

import msgspec

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import DEFAULT_OWNER
from haptera.model.secrets import remember, token_digest
from haptera.system.clock import Clock, SystemClock

Scope: TypeAlias = Literal["read", "write"]
ALL_SCOPES: frozenset[Scope] = frozenset(("read", "write"))

COOKIE = "haptera_session"
LOGIN_HEADER = "X-Login-Secret"
"""The header with the other half of what a browser logged in with."""
COOKIE_SECONDS = 12 * 3600
_TOKEN_BYTES = 32
_SHORTEST_TOKEN = 16
_LONGEST_TOKEN = 512
_MOST_COOKIES = 1000
_DAY_MS = 24 * 3600 * 1000
_MOST_DAYS = 36_500


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
        """Return what is stored of a key, which is valid for some days or without an end.

        Raises:
            ConfigError: CONFIG_INVALID when the days are none, or more than a century.

        """
        if days is not None and not 0 < days <= _MOST_DAYS:
            message = f"a key is valid for more than 0 and at most {_MOST_DAYS} days, not {days:g}"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message)
        return cls(
            digest=token_digest(key),
            owner=owner,
            scopes=("read",) if read_only else ("read", "write"),
            expires=None if days is None else int(SystemClock().time_ms() + days * _DAY_MS),
        )


KeySource: TypeAlias = Callable[[], Mapping[str, ApiKey]]
"""Returns the keys that there are now, by digest. Called for every request with a key."""


class BrowserLogin(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser is told when it logs in: neither half is worth anything alone.

    A browser sends a cookie to every port of a host, so other programs there get to see it. What a
    page keeps of its own is kept by port, but may be read by every script of that page.
    """

    cookie: str
    secret: str


class _Login(msgspec.Struct, frozen=True, kw_only=True):
    principal: Principal
    expires: int
    secret: str = ""
    """The digest of the half that is no cookie."""


class Access:
    """Knows the token of the server's own user, the keys of other owners, and logged-in browsers.

    Owns digests only: no credential can be read from it. A digest of 256 random bits is looked up
    directly; the one token that a person may have chosen is compared in constant time. `keys` are
    given as they are, or as a function, for keys that change while the server runs. Credentials
    that are valid are known as secrets from then on: no log record or error shows them.

    The owner of the token and the clock, where they are not given, are those of the agent that is
    served: `create_app` hands them over.
    """

    def __init__(
        self,
        token: str | None,
        *,
        owner: str | None = None,
        keys: Iterable[ApiKey] | KeySource = (),
        clock: Clock | None = None,
    ) -> None:
        if token is not None and not _SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the token of a server has {_SHORTEST_TOKEN} to {_LONGEST_TOKEN} characters",
            )
        if token is not None:
            remember(token)
        self._owner, self._clock = owner, clock
        self._digest = None if token is None else token_digest(token)
        if callable(keys):
            self._keys = keys
        else:
            by_digest = {key.digest: key for key in keys}
            self._keys = lambda: by_digest
        self._logins: OrderedDict[str, _Login] = OrderedDict()

    def adopt(self, *, owner: str, clock: Clock) -> None:
        """Take the owner of the token and the clock, unless they were given or taken before."""
        self._owner = owner if self._owner is None else self._owner
        self._clock = self._clock or clock

    @property
    def owner(self) -> str:
        """The owner of the token."""
        return DEFAULT_OWNER if self._owner is None else self._owner

    @property
    def clock(self) -> Clock:
        """The time by which credentials expire and requests are counted."""
        if self._clock is None:
            self._clock = SystemClock()
        return self._clock

    @property
    def owners(self) -> tuple[str, ...]:
        """Whose sessions the server has: its own user's first."""
        return tuple({self.owner: None, **{key.owner: None for key in self._keys().values()}})

    def principal_of(self, token: str | None) -> Principal | None:
        """Return whose token or key this is, or None."""
        principal = self._checked(token)
        return None if principal is None else principal.principal

    def log_in(self, token: str | None) -> BrowserLogin | None:
        """Exchange a token or a key for a cookie and a secret; None when it is not valid."""
        holder = self._checked(token)
        if holder is None:
            return None
        login = BrowserLogin(cookie=new_token(), secret=new_token())
        digest = token_digest(login.cookie)
        principal = msgspec.structs.replace(holder.principal, cookie=digest)
        self._logins[digest] = _Login(
            principal=principal, expires=holder.expires, secret=token_digest(login.secret)
        )
        # Logins that expired are not looked for; the oldest make space.
        if len(self._logins) > _MOST_COOKIES:
            self._logins.popitem(last=False)
        return login

    def log_out(self, cookie: str | None) -> None:
        """Make a cookie worthless."""
        self._logins.pop(token_digest(cookie or ""), None)

    def principal_of_login(self, cookie: str | None, secret: str | None) -> Principal | None:
        """Return who logged in and got these two halves, or None."""
        halves = (cookie or "", secret or "")
        if not all(0 < len(half) <= _LONGEST_TOKEN for half in halves):
            return None
        cookie_digest, secret_digest = map(token_digest, halves)
        login = self._logins.get(cookie_digest)
        if login is None or not hmac.compare_digest(login.secret, secret_digest):
            return None
        return login.principal if self.is_valid(login.principal) else None

    def is_valid(self, principal: Principal) -> bool:
        """Whether the credential of a caller still holds: not removed, expired or logged out."""
        # A cookie and the key that it was made with have to hold, so both are checked.
        if principal.cookie is not None:
            login = self._logins.get(principal.cookie)
            if login is None or login.expires <= self.clock.time_ms():
                return False
        return principal.key is None or self._valid_key(principal.key) is not None

    def _checked(self, token: str | None) -> _Login | None:
        """Return whose credential this is, and until when a login with it may last."""
        if token is None or not 0 < len(token) <= _LONGEST_TOKEN:
            return None
        now = self.clock.time_ms()
        until = now + COOKIE_SECONDS * 1000
        digest = token_digest(token)
        if self._digest is not None and hmac.compare_digest(digest, self._digest):
            return _Login(principal=Principal(owner=self.owner), expires=until)
        key = self._valid_key(digest)
        if key is None:
            return None
        remember(token)
        principal = Principal(owner=key.owner, scopes=frozenset(key.scopes), key=digest)
        # A login does not outlive the key that it was made with.
        return _Login(principal=principal, expires=min(until, key.expires or until))

    def _valid_key(self, digest: str) -> ApiKey | None:
        key = self._keys().get(digest)
        if key is None or (key.expires is not None and key.expires <= self.clock.time_ms()):
            return None
        return key


def new_token() -> str:
    """Return a credential that cannot be guessed."""
    return secrets.token_urlsafe(_TOKEN_BYTES)
