"""Gemini by Google's Gemini API, with an API key."""

from collections.abc import Mapping
from types import MappingProxyType

from holdfast.ports.token_source import TokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.transport.protocol import Transport
from holdfast.providers.wire.gemini import PROTOCOL

BASE_URL = "https://generativelanguage.googleapis.com"


def gemini(
    *,
    tokens: TokenSource,
    transport: Transport,
    base_url: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    name: str = "gemini",
) -> WireModelClient:
    """Make the client; `base_url` is without the version."""
    return WireModelClient(
        provider=name,
        protocol=PROTOCOL,
        endpoint=Endpoint(
            base_url=base_url or BASE_URL, headers=dict(headers), key_header="x-goog-api-key"
        ),
        tokens=tokens,
        transport=transport,
    )
