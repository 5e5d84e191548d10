"""Public hosts: where a name leads, checked before anything is sent, and a URL as it was meant.

A name is resolved once, every address that it has must be public, and the connection is made to
one of those addresses. So it has no effect if the addresses of a name change between the check and
the connection.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host."""

_LONGEST = 4096
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is given out; whatever way there is to write a private address is elsewhere."""
_SPECIAL_IPV4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
            *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",
        ),
    )
)
"""IANA's registry of special-purpose addresses, multicast, and what machines of Azure are told by.

Entries that are reachable from everywhere count, too: they lead to whatever router is near. In
192.0.0.0/24 is also what machines of Oracle's cloud are told by. That of other clouds is link-local
or shared address space. Not left to `ipaddress`, which knows more of them with each version.
"""
_SPECIAL_IPV6 = tuple(
    map(
        ipaddress.IPv6Network,
        ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)
"""The same for what is in `_GLOBAL_IPV6`; 2001::/32 and 2002::/16 hold IPv4 addresses."""
_PORTS = {"http": 80, "https": 443}


class WebRefusedError(Exception):
    """A URL that is not fetched."""


class WebTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, taken apart and put together again."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """The URL as it is requested."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def read_url(url: str) -> WebTarget:
    """Take a URL apart; raises WebRefusedError on whatever two readers could read differently."""
    if len(url) > _LONGEST or not url.isascii() or re.search(r"[\x00-\x20\x7f\\]", url):
        raise WebRefusedError("the URL holds a character that is not allowed, or is too long")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise WebRefusedError(f"the URL is not valid: {error}") from None
    if parts.scheme not in _PORTS:
        raise WebRefusedError(f"only http and https are fetched, not {parts.scheme!r}")
    # `http://public.example@127.0.0.1/` looks like another host than it names.
    if "@" in parts.netloc:
        raise WebRefusedError("a URL with a user or a password in it is not fetched")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebTarget(
        scheme=parts.scheme,
        host=_host_of(parts),
        port=_PORTS[parts.scheme] if port is None else port,
        path=path,
    )


def _host_of(parts: SplitResult) -> str:
    """Return a host name or address that has only one meaning."""
    host = (parts.hostname or "").removesuffix(".")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.split(".")
    # A name that ends in a number would be read as an address by some: 127.1, 0x7f.1, 2130706433.
    if not all(_LABEL.fullmatch(label) for label in labels) or re.match(r"[0-9]", labels[-1]):
        raise WebRefusedError(f"{host!r} is not a host name")
    return host


def is_public(address: str) -> bool:
    """Whether an address belongs to the internet at large, not to this machine or network."""
    try:
        # An IPv6 address that is valid on one link only names the interface after a `%`.
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return is_public(str(parsed.ipv4_mapped))
        is_special = parsed not in _GLOBAL_IPV6 or any(parsed in each for each in _SPECIAL_IPV6)
    else:
        is_special = any(parsed in each for each in _SPECIAL_IPV4)
    return parsed.is_global and not is_special


async def public_address(target: WebTarget, resolve: Resolve) -> str:
    """Return an address of the host; raises WebRefusedError unless every one it has is public."""
    try:
        addresses = await resolve(target.host, target.port)
    except OSError:
        raise WebRefusedError(f"there is no host {target.host!r}") from None
    if not addresses:
        raise WebRefusedError(f"there is no host {target.host!r}")
    for address in addresses:
        if not is_public(address):
            raise WebRefusedError(f"{target.host!r} leads to {address}, which is not public")
    return addresses[0]
