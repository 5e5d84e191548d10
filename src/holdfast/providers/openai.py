"""OpenAI by its Responses API, and whoever else speaks it: Azure, OpenRouter, xAI, DeepSeek."""

from collections.abc import Mapping
from types import MappingProxyType

from holdfast.ports.clock import Clock
from holdfast.ports.token_source import TokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.transport.protocol import Transport
from holdfast.providers.wire.openai_responses import responses_protocol
from holdfast.providers.wire.openai_responses.dialects import AZURE, OPENAI, ResponsesDialect

BASE_URL = "https://api.openai.com/v1"
KEY_NAMES = ("OPENAI_API_KEY",)
BASE_URL_NAMES = ("OPENAI_BASE_URL",)
"""Names of the environment that users have set already; read by whoever configures."""

AZURE_KEY_NAMES = ("AZURE_OPENAI_API_KEY",)
AZURE_ENDPOINT_NAMES = ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL")

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def openai(
    *,
    tokens: TokenSource | None,
    transport: Transport,
    base_url: str | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    dialect: ResponsesDialect = OPENAI,
    clock: Clock | None = None,
) -> WireModelClient:
    """Make the client; `base_url` is with the version, `dialect` says whose API it is.

    With a `clock` an answer in the background that broke off is read on.
    """
    return WireModelClient(
        provider=dialect.name,
        protocol=responses_protocol(dialect),
        endpoint=Endpoint(base_url=base_url or BASE_URL, headers=dict(headers)),
        tokens=tokens,
        transport=transport,
        clock=clock,
    )


def azure_openai(
    *,
    tokens: TokenSource,
    transport: Transport,
    endpoint: str,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> WireModelClient:
    """Make the client of an Azure resource, whose `endpoint` is the URL that its page shows."""
    base_url = endpoint.rstrip("/").removesuffix("/openai/v1").removesuffix("/openai")
    return WireModelClient(
        provider="azure",
        protocol=responses_protocol(AZURE),
        endpoint=Endpoint(
            base_url=f"{base_url}/openai/v1", headers=dict(headers), key_header="api-key"
        ),
        tokens=tokens,
        transport=transport,
    )
