"""Origins of requests, read from their URLs."""

from urllib.parse import urlsplit

from holdfast.ports.token_source import Origin

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> Origin:
    """Return the origin of `url`; raises ValueError when it has none."""
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    if not parts.hostname or port is None:
        raise ValueError(f"{url!r} names no http or https host")
    return Origin(scheme=parts.scheme, host=parts.hostname, port=port)
