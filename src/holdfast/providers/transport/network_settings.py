"""Proxies and certificate authorities, as the environment names them."""

import ipaddress
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.secrets import remember_url


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy that `url` is to be reached through, if any.

    Raises CONFIG_INVALID when the proxy is of a kind that cannot be used.
    """
    target = urlsplit(url)
    if _is_exempt(target, _variable(environment, "no_proxy")):
        return None
    for name in (f"{target.scheme}_proxy", "all_proxy"):
        if proxy := _variable(environment, name):
            remember_url(proxy)
            return _checked(proxy, name)
    return None


def certificate_context(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that trusts SSL_CERT_FILE and SSL_CERT_DIR, or else the system's store.

    Raises CONFIG_INVALID when they cannot be read.
    """
    file = environment.get("SSL_CERT_FILE") or None
    directory = environment.get("SSL_CERT_DIR") or None
    try:
        return ssl.create_default_context(cafile=file, capath=directory)
    except OSError as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"SSL_CERT_FILE={file!r} or SSL_CERT_DIR={directory!r} cannot be read: {error}",
        ) from error


def _variable(environment: Mapping[str, str], name: str) -> str:
    return (environment.get(name) or environment.get(name.upper()) or "").strip()


def _checked(proxy: str, name: str) -> str:
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if urlsplit(proxy).scheme not in {"http", "https"}:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"{name.upper()} names a proxy that is not http or https"
        )
    return proxy


def _is_exempt(target: SplitResult, rules: str) -> bool:
    host = (target.hostname or "").lower()
    return any(_meets(host, target.port, rule) for rule in rules.lower().replace(",", " ").split())


def _meets(host: str, port: int | None, rule: str) -> bool:
    """Whether one entry of NO_PROXY covers a host: a name, its parent, an address or a network."""
    if rule == "*":
        return True
    if "/" in rule:
        return _is_in_network(host, rule)
    name, _, rule_port = rule.rpartition(":") if rule.count(":") == 1 else (rule, "", "")
    if rule_port and rule_port != str(port):
        return False
    name = name.removeprefix("*").removeprefix(".").strip("[]")
    return host == name or host.endswith(f".{name}")


def _is_in_network(host: str, rule: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False
