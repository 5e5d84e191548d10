"""How to log in to a provider by OAuth 2: the endpoints and the client, as configuration has them.

A module of its own because configuration needs these values, and not what a login loads.
"""

import ipaddress
from urllib.parse import urlsplit

import msgspec

_RESERVED = frozenset(
    {
        *("response_type", "client_id", "redirect_uri", "scope", "state"),
        *("code_challenge", "code_challenge_method"),
    }
)
_LARGEST_PORT = 65535


class OAuthSettings(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One `[providers.NAME.oauth]`: the authorization code flow with PKCE, for a public client."""

    authorize_url: str
    """The page on which a person logs in."""
    token_url: str
    """Where codes and refresh tokens are exchanged for access tokens."""
    client_id: str
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0
    """The port of the callback on 127.0.0.1; 0 is any that is free."""
    redirect_path: str = "/callback"
    redirect_url: str | None = None
    """For paste mode: a page of the provider that shows the code. None is the callback's URL."""
    parameters: dict[str, str] = {}
    """More parameters of the login page's URL."""

    def __post_init__(self) -> None:
        for name in ("authorize_url", "token_url", "redirect_url"):
            if (fault := _url_fault(getattr(self, name))) is not None:
                raise ValueError(f"{name} {fault}")
        if not self.client_id:
            raise ValueError("client_id must not be empty")
        if not 0 <= self.redirect_port <= _LARGEST_PORT:
            raise ValueError(f"redirect_port must be from 0 to {_LARGEST_PORT}")
        if not self.redirect_path.startswith("/"):
            raise ValueError("redirect_path must begin with /")
        for name in sorted(self.parameters.keys() & _RESERVED):
            raise ValueError(f"parameters must not set {name}")


def _url_fault(url: str | None) -> str | None:
    """Say why codes and tokens cannot be sent to a URL; None if they can."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        has_user = parts.username is not None or parts.port == 0
    except ValueError:
        return "is not a URL"
    if not host or has_user or parts.fragment:
        return "must be a URL with a host, and without user, password or fragment"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)):
        return None
    return "must begin with https://; http:// is for this machine only"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
