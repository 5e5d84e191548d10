"""How to log in to a provider by OAuth 2: the endpoints and the client, as configuration has them.

A module of its own because configuration needs these values, and not what a login loads.
"""

import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from haptera.model.option import Option

# What the flow itself sets. Another value of `state` or of the challenge would switch its
# protection off.
_RESERVED = frozenset(
    {
        *("response_type", "client_id", "redirect_uri", "scope", "state"),
        *("code_challenge", "code_challenge_method"),
    }
)


class OAuthSettings(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One `[providers.NAME.oauth]`: the authorization code flow with PKCE, for a public client."""

    authorize_url: Annotated[
        str, Option("The page on which a person logs in; https, or http on this machine.")
    ]
    token_url: Annotated[
        str,
        Option(
            "The endpoint that exchanges codes and refresh tokens for access tokens; https, or "
            "http on this machine."
        ),
    ]
    client_id: Annotated[str, Option("The id of a public client; there is no client secret.")]
    scopes: Annotated[tuple[str, ...], Option("What the tokens may be used for.")] = ()
    redirect_port: Annotated[
        int,
        Option(
            "The port of the callback on 127.0.0.1, for a server that requires a fixed one; 0: any "
            "that is free.",
            least=0,
            most=65535,
        ),
    ] = 0
    redirect_path: Annotated[str, Option("The path of the callback.")] = "/callback"
    redirect_url: Annotated[
        str | None,
        Option(
            "For `--paste`: a page of the provider that shows the code and the state as "
            "`CODE#STATE`; None: the callback's URL."
        ),
    ] = None
    parameters: Annotated[
        dict[str, str],
        Option('More parameters for the login page, such as `{ audience = "models" }`.'),
    ] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("authorize_url", "token_url", "redirect_url"):
            if (fault := _url_fault(getattr(self, name))) is not None:
                raise ValueError(f"{name} {fault}")
        if not self.client_id:
            raise ValueError("client_id must not be empty")
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
        # Reading the port raises ValueError if it is none.
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
