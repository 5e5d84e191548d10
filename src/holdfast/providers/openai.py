"""OpenAI by its Responses API, and whoever else speaks it."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from holdfast.ports.clock import Clock
from holdfast.ports.token_source import TokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.transport.protocol import Transport
from holdfast.providers.wire.openai_responses import responses_protocol
from holdfast.providers.wire.openai_responses.dialects import (
    AZURE,
    DEEPSEEK,
    OPENAI,
    OPENROUTER,
    PERPLEXITY,
    PLAIN,
    XAI,
    ResponsesDialect,
)
from holdfast.vocabulary.errors import ConfigError, ErrorCode

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class ResponsesVendor(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor as data."""

    name: str
    dialect: ResponsesDialect
    base_url: str = ""
    """With the version where there is one; empty where it has to be given."""
    needs_key: bool = True


OPENAI_VENDOR = ResponsesVendor(name="openai", dialect=OPENAI, base_url="https://api.openai.com/v1")

RESPONSES_VENDORS = {
    vendor.name: vendor
    for vendor in (
        OPENAI_VENDOR,
        ResponsesVendor(
            name="deepseek-responses", dialect=DEEPSEEK, base_url="https://api.deepseek.com"
        ),
        ResponsesVendor(
            name="openrouter-responses",
            dialect=OPENROUTER,
            base_url="https://openrouter.ai/api/v1",
        ),
        ResponsesVendor(name="xai-responses", dialect=XAI, base_url="https://api.x.ai/v1"),
        # Its Chat Completions ended in September 2026; its Agent API is Responses under a new name.
        ResponsesVendor(
            name="perplexity", dialect=PERPLEXITY, base_url="https://api.perplexity.ai/v1"
        ),
        ResponsesVendor(name="compatible-responses", dialect=PLAIN, needs_key=False),
    )
}
"""Whoever speaks Responses at an address of its own. Azure is apart: every user has another."""


def openai(
    vendor: ResponsesVendor = OPENAI_VENDOR,
    *,
    tokens: TokenSource | None,
    transport: Transport,
    base_url: str | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    clock: Clock | None = None,
) -> WireModelClient:
    """Make the client of a vendor; `base_url` is with the version.

    With a `clock` an answer in the background that broke off is read on.

    Raises:
        ConfigError: CONFIG_MISSING when neither vendor nor caller knows where the server is.

    """
    place = base_url or vendor.base_url
    if not place:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING, f"no base URL for {vendor.name!r}: pass base_url"
        )
    return WireModelClient(
        provider=vendor.name,
        protocol=responses_protocol(vendor.dialect),
        endpoint=Endpoint(base_url=place, headers=dict(headers)),
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
    name: str = "azure-responses",
    clock: Clock | None = None,
) -> WireModelClient:
    """Make the client of an Azure resource, whose `endpoint` is the URL that its page shows.

    With a `clock` an answer in the background that broke off is read on.
    """
    if not endpoint:
        way = "pass base_url or set AZURE_OPENAI_ENDPOINT"
        raise ConfigError(ErrorCode.CONFIG_MISSING, f"no base URL for {name!r}: {way}")
    base_url = endpoint.rstrip("/").removesuffix("/openai/v1").removesuffix("/openai")
    return WireModelClient(
        provider=name,
        protocol=responses_protocol(AZURE),
        endpoint=Endpoint(
            base_url=f"{base_url}/openai/v1", headers=dict(headers), key_header="api-key"
        ),
        tokens=tokens,
        transport=transport,
        clock=clock,
    )
