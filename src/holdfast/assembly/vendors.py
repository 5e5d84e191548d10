"""Vendors: the client of each known provider, made from its connection, imported when used."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.config.connections import Connection
from holdfast.ports.clock import Clock
from holdfast.ports.model_client import ModelClient
from holdfast.ports.token_source import TokenSource
from holdfast.providers.transport.protocol import Transport
from holdfast.vocabulary.errors import ConfigError, ErrorCode

if TYPE_CHECKING:
    from holdfast.assembly.configuration import Configuration


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is made of: the way, the key, the headers and the transport."""

    connection: Connection
    tokens: TokenSource | None
    headers: dict[str, str]
    transport: Transport
    clock: Clock
    is_bearer: bool = False
    """Whether the key is to be sent as a bearer token, whatever the provider's own way is."""


Maker: TypeAlias = Callable[[Access], ModelClient]


def _anthropic(access: Access) -> ModelClient:
    from holdfast.providers.anthropic import anthropic  # noqa: PLC0415 - only what is used

    return anthropic(
        tokens=needed(access),
        transport=access.transport,
        base_url=access.connection.base_url,
        headers=access.headers,
        key_header="authorization" if access.is_bearer else "x-api-key",
    )


def _openai(access: Access) -> ModelClient:
    """Make OpenAI's own client, which speaks Responses; `openai-chat` speaks Chat Completions."""
    from holdfast.providers.openai import openai  # noqa: PLC0415

    return openai(
        tokens=needed(access),
        transport=access.transport,
        base_url=access.connection.base_url,
        headers=_openai_headers(access),
        clock=access.clock,
    )


def _openai_chat(access: Access) -> ModelClient:
    from holdfast.providers.openai_compatible import VENDORS, openai_compatible  # noqa: PLC0415

    return openai_compatible(
        msgspec.structs.replace(VENDORS["openai"], name=access.connection.provider),
        tokens=needed(access),
        transport=access.transport,
        base_url=access.connection.base_url,
        headers=_openai_headers(access),
    )


def _openai_headers(access: Access) -> dict[str, str]:
    known = {
        "openai-organization": access.connection.organization,
        "openai-project": access.connection.project,
    }
    return {**{name: value for name, value in known.items() if value}, **access.headers}


def _gemini(access: Access) -> ModelClient:
    from holdfast.providers.gemini import gemini  # noqa: PLC0415

    return gemini(
        tokens=needed(access),
        transport=access.transport,
        base_url=access.connection.base_url,
        headers=access.headers,
    )


def _vertex(access: Access) -> ModelClient:
    from holdfast.providers.vertex import vertex  # noqa: PLC0415

    connection = access.connection
    if not connection.project:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            "vertex needs a project: set GOOGLE_CLOUD_PROJECT, or write project into "
            "[providers.vertex] of the configuration file",
            provider=connection.provider,
        )
    return vertex(
        tokens=needed(access),
        transport=access.transport,
        project=connection.project,
        location=connection.location or "global",
        base_url=connection.base_url,
        headers=access.headers,
    )


def _ollama(access: Access) -> ModelClient:
    from holdfast.providers.ollama import ollama  # noqa: PLC0415

    return ollama(
        tokens=access.tokens,
        transport=access.transport,
        host=access.connection.base_url,
        headers=access.headers,
    )


def _azure(access: Access) -> ModelClient:
    from holdfast.providers.openai_compatible import azure_openai  # noqa: PLC0415

    return azure_openai(
        tokens=needed(access),
        transport=access.transport,
        endpoint=access.connection.base_url or "",
        api_version=access.connection.api_version,
        headers=access.headers,
    )


def _compatible(access: Access) -> ModelClient:
    """Make the client of anyone who speaks Chat Completions."""
    from holdfast.providers.openai_compatible import VENDORS, openai_compatible  # noqa: PLC0415

    connection = access.connection
    vendor = VENDORS.get(connection.kind)
    if vendor is None:
        if connection.base_url is None:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"there is no provider {connection.provider!r}; write its base_url into "
                f"[providers.{connection.provider}] of the configuration file, or pass base_url",
                provider=connection.provider,
            )
        vendor = VENDORS["compatible"]
    if isinstance(connection.dialect, str) and connection.dialect in VENDORS:
        vendor = msgspec.structs.replace(vendor, dialect=VENDORS[connection.dialect].dialect)
    if vendor.needs_key:
        needed(access)
    return openai_compatible(
        msgspec.structs.replace(vendor, name=connection.provider),
        tokens=access.tokens,
        transport=access.transport,
        base_url=connection.base_url,
        headers=access.headers,
    )


MAKERS: dict[str, Maker] = {
    "anthropic": _anthropic,
    "azure": _azure,
    "gemini": _gemini,
    "ollama": _ollama,
    "openai": _openai,
    "openai-chat": _openai_chat,
    "vertex": _vertex,
}


def make_client(access: Access) -> ModelClient:
    """Make the client of a provider by its kind; whoever is not known speaks Chat Completions."""
    return MAKERS.get(access.connection.kind, _compatible)(access)


def local_client(configuration: "Configuration") -> ModelClient:
    """Make the client of models on this machine; weights are never fetched by asking a question."""
    from holdfast.providers.local.client import LocalModelClient  # noqa: PLC0415

    return LocalModelClient(folder=configuration.model_folder)


def needed(access: Access) -> TokenSource:
    """Return the key of a provider that cannot do without one."""
    if access.tokens is None:
        raise MissingKeyError(access.connection.provider)
    return access.tokens


class MissingKeyError(Exception):
    """A provider needs a key and none was found; whoever knows the places says where to put one."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self.provider = provider
