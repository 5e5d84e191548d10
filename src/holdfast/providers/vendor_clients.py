"""Clients of vendors: made from a row of the table, or by another installed package.

A client is a wire protocol at an endpoint, with credentials, over a transport. A protocol is
imported when the first client that uses it is made.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.ports.clock import Clock
from holdfast.ports.model_client import ModelClient
from holdfast.ports.token_source import TokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.transport.protocol import Transport
from holdfast.providers.vendors import Vendor, ollama_url
from holdfast.providers.wire.protocol import WireProtocol, WireRequest
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.requests import ModelRequest

if TYPE_CHECKING:
    from holdfast.providers.wire.chat_completions.dialects import Dialect

ENTRY_POINTS = "holdfast.providers"
"""The group of entry points in which other packages offer clients."""

ANTHROPIC_VERSION = "2023-06-01"
"""Every model, cloud and gateway speaks it; newer versions only take things away."""
IDENTITY = "You are a Claude agent, built on Anthropic's Claude Agent SDK."
"""Must be the first system block of a request that a person's login pays for."""
_LOGIN_BETA = "oauth-2025-04-20"
_AZURE_PATH = "/openai/v1"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs beside its vendor's row: the transport, the key, and what a user says."""

    transport: Transport
    tokens: TokenSource | None = None
    provider: str = ""
    """What the client is called in results and errors; the vendor's name if left out."""
    base_url: str | None = None
    """Instead of the vendor's own."""
    headers: Mapping[str, str] = {}
    dialect: "Dialect | None" = None
    """Of Chat Completions, instead of the vendor's own."""
    api_version: str | None = None
    """Of Azure: with one, deployments are in the path, as they were for long."""
    organization: str | None = None
    project: str | None = None
    location: str | None = None
    clock: Clock | None = None
    """With one, an answer in the background that broke off is read on."""
    is_bearer: bool = False
    """Whether a key is sent as a bearer token, whatever the vendor's header is."""

    def __repr__(self) -> str:
        return f"Access(provider={self.provider!r}, base_url={self.base_url!r})"


def make_client(vendor: Vendor, access: Access) -> WireModelClient:
    """Make the client of a vendor.

    Raises:
        ConfigError: CONFIG_MISSING when neither the row nor the caller knows the base URL.

    """
    return WireModelClient(
        provider=access.provider or vendor.name,
        protocol=_PROTOCOLS[vendor.protocol](vendor, access),
        endpoint=Endpoint(
            base_url=_base_url(vendor, access),
            headers={**_own_headers(vendor, access), **access.headers},
            key_header="authorization" if access.is_bearer else vendor.key_header,
            query={"api-version": version} if (version := _azure_version(vendor, access)) else {},
        ),
        tokens=access.tokens,
        transport=access.transport,
        clock=access.clock,
    )


def _messages(_: Vendor, access: Access) -> WireProtocol:
    from holdfast.providers.wire.anthropic_messages import PROTOCOL  # noqa: PLC0415 - if used

    is_login = access.tokens is not None and access.tokens.kind == "oauth"
    return _for_login(PROTOCOL) if is_login else PROTOCOL


def _responses(vendor: Vendor, _: Access) -> WireProtocol:
    from holdfast.providers.wire import openai_responses  # noqa: PLC0415 - if used

    dialects = openai_responses.dialects.DIALECTS
    return openai_responses.responses_protocol(dialects[vendor.dialect])


def _chat(vendor: Vendor, access: Access) -> WireProtocol:
    from holdfast.providers.wire import chat_completions  # noqa: PLC0415 - if used

    dialects = chat_completions.dialects.DIALECTS
    dialect = access.dialect or dialects[vendor.dialect]
    if vendor.url_form == "azure":
        older = dialects["azure"].path
        path = older if _azure_version(vendor, access) else "/chat/completions"
        dialect = replace(dialect, path=path)
    return chat_completions.chat_protocol(dialect)


def _generate_content(vendor: Vendor, _: Access) -> WireProtocol:
    from holdfast.providers.wire import gemini  # noqa: PLC0415 - if used

    is_vertex = vendor.url_form == "vertex"
    return gemini.gemini_protocol(gemini.dialects.VERTEX) if is_vertex else gemini.PROTOCOL


def _ollama(_: Vendor, __: Access) -> WireProtocol:
    from holdfast.providers.wire.ollama import PROTOCOL  # noqa: PLC0415 - if used

    return PROTOCOL


_PROTOCOLS: dict[str, Callable[[Vendor, Access], WireProtocol]] = {
    "messages": _messages,
    "responses": _responses,
    "chat": _chat,
    "generate_content": _generate_content,
    "ollama": _ollama,
}


def _base_url(vendor: Vendor, access: Access) -> str:
    given = access.base_url or vendor.base_url
    if vendor.url_form == "vertex":
        location = access.location or "global"
        prefix = "" if location == "global" else f"{location}-"
        host = (given or f"https://{prefix}aiplatform.googleapis.com").rstrip("/")
        return f"{host}/v1/projects/{access.project}/locations/{location}"
    if not given:
        variables = " or ".join(vendor.url_variables)
        name, way = access.provider or vendor.name, f" or set {variables}" if variables else ""
        raise ConfigError(
            ErrorCode.CONFIG_MISSING, f"no base URL for {name!r}: pass base_url{way}", provider=name
        )
    if vendor.url_form == "ollama":
        return ollama_url(given)
    if vendor.url_form == "azure":
        # People paste it as one page or another shows it.
        resource = given.rstrip("/").removesuffix(_AZURE_PATH).removesuffix("/openai")
        return resource if _azure_version(vendor, access) else resource + _AZURE_PATH
    return given


def _azure_version(vendor: Vendor, access: Access) -> str | None:
    """Return the version that goes into the query; Responses at Azure have none."""
    is_versioned = vendor.url_form == "azure" and vendor.protocol == "chat"
    return access.api_version if is_versioned else None


def _own_headers(vendor: Vendor, access: Access) -> dict[str, str]:
    """Return the headers that a vendor is sent beside the user's."""
    if vendor.protocol == "messages":
        return {"anthropic-version": ANTHROPIC_VERSION}
    if vendor.protocol not in {"responses", "chat"} or vendor.url_form != "plain":
        return {}
    known = {"openai-organization": access.organization, "openai-project": access.project}
    return {name: value for name, value in known.items() if value}


_Encode: TypeAlias = Callable[[ModelRequest], WireRequest]


def _for_login(protocol: WireProtocol) -> WireProtocol:
    """Put the identity before every system prompt; no setting can take it away."""

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
        encode_request=identified(protocol.encode_request),
        new_encoder=(lambda: identified(make())) if make else None,
        encode_count=identified(count) if count else None,
    )


def offered_client(name: str, *, points: Iterable[EntryPoint] | None = None) -> ModelClient | None:
    """Make the client that another package offers under a name; None if no package offers it.

    An entry point names a function without arguments that makes a client. It is loaded when its
    name is used.

    Raises:
        ConfigError: CONFIG_INVALID if two packages offer the name, or the offer cannot be used.

    """
    found = entry_points(group=ENTRY_POINTS) if points is None else points
    named = [point for point in found if point.name == name]
    if not named:
        return None
    if len({point.value for point in named}) > 1:
        offers = ", ".join(sorted(_origin(point) for point in named))
        raise _unusable(name, f"several packages offer it: {offers}")
    point = named[0]
    try:
        client = point.load()()
    except Exception as error:
        # Another package's code: the user must hear whose it is, but its words may quote a key.
        raise _unusable(name, f"{_origin(point)} raised {type(error).__name__}") from error
    missing = [
        word
        for word in ("provider", "stream", "count_tokens", "close")
        if not hasattr(client, word)
    ]
    if missing:
        raise _unusable(name, f"what {_origin(point)} made has no {', '.join(missing)}")
    made: ModelClient = client
    return made


def _origin(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"{point.value!r}{package}"


def _unusable(name: str, reason: str) -> ConfigError:
    return ConfigError(
        ErrorCode.CONFIG_INVALID, f"the provider {name!r} cannot be used: {reason}", provider=name
    )
