"""Gemini by Google's Vertex AI, with a bearer token, in a project and a place."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from holdfast.ports.token_source import TokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.transport.protocol import Transport
from holdfast.providers.wire.gemini import gemini_protocol
from holdfast.providers.wire.gemini.dialects import VERTEX


class VertexPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where in Vertex AI the models are."""

    project: str
    location: str = "global"


def vertex(
    *,
    tokens: TokenSource,
    transport: Transport,
    place: VertexPlace,
    base_url: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    name: str = "vertex",
) -> WireModelClient:
    """Make the client; `base_url` is without version, project and location."""
    host = (base_url or base_url_of(place.location)).rstrip("/")
    return WireModelClient(
        provider=name,
        protocol=gemini_protocol(VERTEX),
        endpoint=Endpoint(
            base_url=f"{host}/v1/projects/{place.project}/locations/{place.location}",
            headers=dict(headers),
        ),
        tokens=tokens,
        transport=transport,
    )


def base_url_of(location: str) -> str:
    """Return where Vertex AI listens in a location; `global` has no prefix."""
    prefix = "" if location == "global" else f"{location}-"
    return f"https://{prefix}aiplatform.googleapis.com"
