"""Anthropic: its Messages API with a key, or with the token of a person's login."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from holdfast.ports.token_source import TokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.transport.protocol import Transport
from holdfast.providers.wire.anthropic_messages import PROTOCOL
from holdfast.providers.wire.protocol import WireProtocol, WireRequest
from holdfast.vocabulary.requests import ModelRequest

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
"""Every model, cloud and gateway speaks it; newer versions only take things away."""

IDENTITY = "You are a Claude agent, built on Anthropic's Claude Agent SDK."
"""Must be the first system block of a request that a person's login pays for."""
_LOGIN_BETA = "oauth-2025-04-20"


def anthropic(
    *,
    tokens: TokenSource,
    transport: Transport,
    base_url: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    key_header: str = "x-api-key",
    name: str = "anthropic",
) -> WireModelClient:
    """Make the client; `base_url` is without `/v1`. Gateways may want another `key_header`."""
    return WireModelClient(
        provider=name,
        protocol=_for_login(PROTOCOL) if tokens.kind == "oauth" else PROTOCOL,
        endpoint=Endpoint(
            base_url=base_url or BASE_URL,
            headers={"anthropic-version": API_VERSION, **headers},
            key_header=key_header,
        ),
        tokens=tokens,
        transport=transport,
    )


def _for_login(protocol: WireProtocol) -> WireProtocol:
    """Put the identity before every system prompt; no setting can take it away."""

    def identified(
        encode: Callable[[ModelRequest], WireRequest],
    ) -> Callable[[ModelRequest], WireRequest]:
        return lambda request: encode(
            replace(
                request,
                system=(IDENTITY, *request.system),
                betas={**request.betas, _LOGIN_BETA: True},
            )
        )

    make, count = protocol.new_encoder, protocol.encode_count
    return replace(
        protocol,
        encode_request=identified(protocol.encode_request),
        new_encoder=(lambda: identified(make())) if make else None,
        encode_count=identified(count) if count else None,
    )
