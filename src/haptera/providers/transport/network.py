"""Network: proxies and certificates from the environment, and what connection errors mean."""

import errno
import ipaddress
import os
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from haptera.model.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    RequestError,
    error_with_code,
)
from haptera.model.secrets import remember_url
from haptera.model.settings import Timeouts
from haptera.providers.transport.http_library import aiohttp


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy for `url`, if the environment names one.

    Raises CONFIG_INVALID for a proxy that is not http or https.
    """
    target = urlsplit(url)
    for name in (f"{target.scheme}_proxy", "all_proxy"):
        if proxy := _variable(environment, name):
            if _is_exempt(target, _variable(environment, "no_proxy")):
                return None
            remember_url(proxy)
            return _checked(proxy, name)
    return None


def certificate_context(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that trusts SSL_CERT_FILE and SSL_CERT_DIR, else the system's store.

    Raises CONFIG_INVALID if they cannot be read.
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
    # The lower-case name comes first, as in curl and Python.
    return (environment.get(name) or environment.get(name.upper()) or "").strip()


def _checked(proxy: str, name: str) -> str:
    # Without a scheme it is an HTTP proxy, as for curl.
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
    """Whether an entry of NO_PROXY covers a host: a name, a domain, an address, a network."""
    if rule == "*":
        return True
    if "/" in rule:
        return _is_in_network(host, rule)
    # With more than one colon it is an IPv6 address.
    name, _, rule_port = rule.rpartition(":") if rule.count(":") == 1 else (rule, "", "")
    if rule_port and rule_port != str(port):
        return False
    # `example.com`, `.example.com` and `*.example.com` mean the same.
    name = name.removeprefix("*").removeprefix(".").strip("[]")
    return host == name or host.endswith(f".{name}")


def _is_in_network(host: str, rule: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False


# Errors


def connection_error(error: Exception, *, host: str, limits: Timeouts) -> AgentError:
    """Return the typed error for what was raised before a reply began."""
    if isinstance(error, AgentError):
        return error
    # Any other exception is a mistake in a program, which a retry does not repair.
    is_network = isinstance(error, aiohttp.ClientError | OSError | EOFError)
    code = ErrorCode.NETWORK if is_network else ErrorCode.PROTOCOL
    match error:
        # From special to general: this one is a TimeoutError, InvalidURL a ValueError, and the
        # error of TLS one of connecting.
        case aiohttp.ConnectionTimeoutError():
            code = ErrorCode.TIMEOUT
            message = f"{host} could not be connected to within {limits.connect:g} s"
        case TimeoutError():
            code = ErrorCode.TIMEOUT
            message = f"{host} did not answer within {limits.first_byte:g} s"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            code = ErrorCode.CONFIG_INVALID
            message = f"the certificate of {host} is not trusted; set SSL_CERT_FILE to its issuer"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            code = ErrorCode.CONFIG_INVALID
            message = f"the base URL of {host} is not valid"
        case ValueError():
            code = ErrorCode.CONFIG_INVALID
            message = f"a header for {host} holds a line break; look at the key and the headers"
        case aiohttp.ClientConnectorSSLError():
            message = f"{host} could not be reached by TLS; is its base URL http:// perhaps?"
        case aiohttp.ClientConnectorError():
            message = (
                f"{host} could not be reached ({_reason(error.os_error)}); "
                "check the base URL, the network and that the server runs"
            )
        case aiohttp.ClientResponseError():
            code = ErrorCode.PROTOCOL
            message = f"{host} answered with something that is not HTTP"
        case _:
            message = f"the connection to {host} failed before a reply: {type(error).__name__}"
    refused = isinstance(error, aiohttp.ClientConnectorError) and _is_refused(error.os_error)
    return error_with_code(
        code, message, basis="type", refused_locally=refused and _is_this_machine(host)
    )


def _is_refused(error: OSError) -> bool:
    """Whether every address of a host refused the connection."""
    # Of a host with several addresses the loop keeps the texts only.
    tried = str(error).count("[Errno ")
    refused = str(error).count(f"[Errno {errno.ECONNREFUSED}]")
    return error.errno == errno.ECONNREFUSED or 0 < tried == refused


def _is_this_machine(host: str) -> bool:
    name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(url: str) -> str:
    """Return host and port of a URL for a message, without a password that it may contain."""
    parts = urlsplit(url)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    if not parts.hostname:
        return url
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{name}{port}"


def _reason(error: OSError) -> str:
    """Return the system's text for why there is no connection."""
    # The event loop adds the address to `strerror`; the number is unchanged.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return error.strerror or "no connection"


def body_error(error: Exception, *, seconds: float) -> AgentError:
    """Return the typed error for what was raised after the head of a reply."""
    if isinstance(error, TimeoutError):
        message = f"the provider sent nothing for {seconds:g} s"
        return RequestError(ErrorCode.TIMEOUT, message, basis="type")
    message = f"the answer broke off: {type(error).__name__}"
    return RequestError(ErrorCode.STREAM_INTERRUPTED, message, basis="type")
