"""Models on this machine, or another, by Ollama's own API."""

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from holdfast.ports.token_source import TokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.transport.protocol import Transport
from holdfast.providers.wire.ollama import PROTOCOL

BASE_URL = "http://127.0.0.1:11434"

_PORT = 11434


def ollama(
    *,
    tokens: TokenSource | None = None,
    transport: Transport,
    host: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    name: str = "ollama",
) -> WireModelClient:
    """Make the client; `host` is a URL, or a name or address with or without a port."""
    return WireModelClient(
        provider=name,
        protocol=PROTOCOL,
        endpoint=Endpoint(base_url=base_url_of(host or ""), headers=dict(headers)),
        tokens=tokens,
        transport=transport,
    )


def base_url_of(host: str) -> str:
    """Return the URL that a value of OLLAMA_HOST means; a server's wildcard means this machine."""
    if not host.strip():
        return BASE_URL
    parts = urlsplit(host.strip() if "://" in host else f"http://{host.strip()}")
    name = parts.hostname or "127.0.0.1"
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(name, name)  # noqa: S104
    name = f"[{name}]" if ":" in name and not name.startswith("[") else name
    usual = {"http": 80, "https": 443}[parts.scheme] if "://" in host else _PORT
    return f"{parts.scheme}://{name}:{parts.port or usual}{parts.path.rstrip('/')}"
