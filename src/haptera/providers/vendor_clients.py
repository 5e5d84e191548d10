"""Vendor clients: made from a row of `vendors.VENDORS`.

A client is a wire protocol at an endpoint, with credentials, over a transport.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.requests import ModelRequest
from haptera.model.vendors import Protocol, VendorFields
from haptera.providers.client import ProviderEndpoint, WireModelClient
from haptera.providers.transport.protocol import Transport
from haptera.providers.vendors import Vendor, ollama_url
from haptera.providers.wire.protocol import WireProtocol, WireRequest
from haptera.system.clock import Clock
from haptera.system.token_source import TokenSource

if TYPE_CHECKING:
    from haptera.providers.wire.chat_completions.dialects import Dialect

ANTHROPIC_VERSION = "2023-06-01"
"""Supported by every model, cloud and gateway; newer versions only remove features."""
IDENTITY = "You are a Claude agent, built on Anthropic's Claude Agent SDK."
"""Must be the first system block of a request that is made with a person's login."""
_LOGIN_BETA = "oauth-2025-04-20"
_AZURE_PATH = "/openai/v1"
_MODULES: dict[Protocol, str] = {
    "messages": "anthropic_messages",
    "responses": "openai_responses",
    "chat": "chat_completions",
    "generate_content": "gemini",
    "ollama": "ollama",
}
"""The modules of the protocols, below `providers.wire`."""


class VendorAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs beside its vendor's row: transport, credentials, the user's settings."""

    transport: Transport
    tokens: TokenSource | None = None
    provider: str = ""
    """The provider's name in results and errors; the vendor's name if empty."""
    base_url: str | None = None
    """In place of the vendor's own."""
    headers: Mapping[str, str] = {}
    dialect: "Dialect | None" = None
    """For Chat Completions, in place of the vendor's own."""
    fields: VendorFields = VendorFields()
    """What else the vendor has to be told."""
    clock: Clock | None = None
    """With a clock, a background response that broke off is continued."""
    advice: str = ""
    """What to do about a key that the provider refuses, for its error."""
    is_bearer: bool = False
    """Whether a key is sent as a bearer token, whatever the vendor's header is."""

    def __repr__(self) -> str:
        return f"VendorAccess(provider={self.provider!r}, base_url={self.base_url!r})"


def make_client(vendor: Vendor, access: VendorAccess) -> WireModelClient:
    """Return a client of a vendor.

    Raises:
        ConfigError: CONFIG_MISSING if neither the row nor the caller has a base URL.

    """
    return WireModelClient(
        provider=access.provider or vendor.name,
        protocol=_protocol(vendor, access),
        endpoint=ProviderEndpoint(
            base_url=_base_url(vendor, access),
            headers={**_own_headers(vendor, access), **access.headers},
            key_header="authorization" if access.is_bearer else vendor.key_header,
            advice=access.advice,
            query={"api-version": version} if (version := _azure_version(vendor, access)) else {},
        ),
        tokens=access.tokens,
        transport=access.transport,
        clock=access.clock,
    )


def _protocol(vendor: Vendor, access: VendorAccess) -> WireProtocol:
    """Return a vendor's protocol; its module is imported here, when a client first needs it."""
    wire = import_module(f"haptera.providers.wire.{_MODULES[vendor.protocol]}")
    protocol: WireProtocol = wire.PROTOCOL
    dialect = access.dialect
    if dialect is None and vendor.dialect:
        dialect = wire.dialects.DIALECTS[vendor.dialect]
    if dialect is not None:
        if vendor.url_form == "azure" and vendor.protocol == "chat":
            # Azure's versioned API has the deployment in its path; the one without versions takes
            # the model from the body, as OpenAI's does.
            path = dialect.path if access.fields.api_version else "/chat/completions"
            dialect = replace(dialect, path=path)
        protocol = wire.protocol_for(dialect)
    # Only requests with a person's login must begin with the identity; those with a key do not.
    is_login = access.tokens is not None and access.tokens.kind == "oauth"
    return _for_login(protocol) if is_login and vendor.protocol == "messages" else protocol


def _base_url(vendor: Vendor, access: VendorAccess) -> str:
    url = access.base_url or vendor.base_url
    if vendor.url_form == "vertex":
        location = access.fields.location or "global"
        # The global endpoint has no location in its host name.
        prefix = "" if location == "global" else f"{location}-"
        host = (url or f"https://{prefix}aiplatform.googleapis.com").rstrip("/")
        return f"{host}/v1/projects/{access.fields.project}/locations/{location}"
    if not url:
        variables = " or ".join(vendor.url_variables)
        name, way = access.provider or vendor.name, f" or set {variables}" if variables else ""
        raise ConfigError(
            ErrorCode.CONFIG_MISSING, f"no base URL for {name!r}: pass base_url{way}", provider=name
        )
    if vendor.url_form == "ollama":
        return ollama_url(url)
    if vendor.url_form == "azure":
        # Azure's own pages show this URL in several forms.
        resource = url.rstrip("/").removesuffix(_AZURE_PATH).removesuffix("/openai")
        return resource if _azure_version(vendor, access) else resource + _AZURE_PATH
    return url


def _azure_version(vendor: Vendor, access: VendorAccess) -> str | None:
    """Return the API version for the query string; Azure's Responses API has none."""
    is_versioned = vendor.url_form == "azure" and vendor.protocol == "chat"
    return access.fields.api_version if is_versioned else None


def _own_headers(vendor: Vendor, access: VendorAccess) -> dict[str, str]:
    """Return the headers that a vendor needs, beside the user's."""
    if vendor.protocol == "messages":
        return {"anthropic-version": ANTHROPIC_VERSION}
    if vendor.protocol not in {"responses", "chat"} or vendor.url_form != "plain":
        return {}
    fields = access.fields
    headers = {"openai-organization": fields.organization, "openai-project": fields.project}
    return {name: value for name, value in headers.items() if value}


_Encode: TypeAlias = Callable[[ModelRequest], WireRequest]


def _for_login(protocol: WireProtocol) -> WireProtocol:
    """Put the identity before every system prompt, whatever the settings."""

    def identified(encode: _Encode) -> _Encode:
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
        new_encoder=lambda: identified(make()),
        encode_count=identified(count) if count else None,
    )
