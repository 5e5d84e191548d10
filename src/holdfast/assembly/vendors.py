"""Vendors: the client of each known provider, made from its connection, imported when used."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.config.checking import unknown_name
from holdfast.config.connections import Connection
from holdfast.config.file import ConfigFile
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

    def __repr__(self) -> str:
        return f"Access(connection={self.connection!r})"


Maker: TypeAlias = Callable[[Access], ModelClient]


def _anthropic(access: Access) -> ModelClient:
    from holdfast.providers.anthropic import anthropic  # noqa: PLC0415 - only what is used

    return anthropic(
        tokens=needed(access),
        transport=access.transport,
        base_url=access.connection.base_url,
        headers=access.headers,
        key_header="authorization" if access.is_bearer else "x-api-key",
        name=access.connection.provider,
    )


def _responses(access: Access) -> ModelClient:
    """Make the client of whoever speaks Responses, OpenAI first of all."""
    from holdfast.providers.openai import RESPONSES_VENDORS, openai  # noqa: PLC0415

    connection = access.connection
    vendor = RESPONSES_VENDORS[connection.kind]
    if vendor.needs_key:
        needed(access)
    return openai(
        msgspec.structs.replace(vendor, name=connection.provider),
        tokens=access.tokens,
        transport=access.transport,
        base_url=connection.base_url,
        clock=access.clock,
        headers=_openai_headers(access),
    )


def _openai_headers(access: Access) -> dict[str, str]:
    known = {
        "openai-organization": access.connection.organization,
        "openai-project": access.connection.project,
    }
    return {**{name: value for name, value in known.items() if value}, **access.headers}


def _azure_responses(access: Access) -> ModelClient:
    from holdfast.providers.openai import azure_openai  # noqa: PLC0415

    return azure_openai(
        tokens=needed(access),
        transport=access.transport,
        endpoint=access.connection.base_url or "",
        headers=access.headers,
        name=access.connection.provider,
        clock=access.clock,
    )


def _gemini(access: Access) -> ModelClient:
    from holdfast.providers.gemini import gemini  # noqa: PLC0415

    return gemini(
        tokens=needed(access),
        transport=access.transport,
        base_url=access.connection.base_url,
        headers=access.headers,
        name=access.connection.provider,
    )


def _vertex(access: Access) -> ModelClient:
    from holdfast.providers.vertex import VertexPlace, vertex  # noqa: PLC0415

    connection = access.connection
    if not connection.project:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            f"{connection.provider} needs a project: set GOOGLE_CLOUD_PROJECT, or write project "
            f"into [providers.{connection.provider}] of the configuration file",
            provider=connection.provider,
        )
    return vertex(
        tokens=needed(access),
        transport=access.transport,
        place=VertexPlace(project=connection.project, location=connection.location or "global"),
        base_url=connection.base_url,
        headers=access.headers,
        name=connection.provider,
    )


def _ollama(access: Access) -> ModelClient:
    from holdfast.providers.ollama import ollama  # noqa: PLC0415

    return ollama(
        tokens=access.tokens,
        transport=access.transport,
        host=access.connection.base_url,
        headers=access.headers,
        name=access.connection.provider,
    )


def _azure(access: Access) -> ModelClient:
    from holdfast.providers.openai_compatible import azure_openai  # noqa: PLC0415

    return azure_openai(
        tokens=needed(access),
        transport=access.transport,
        endpoint=access.connection.base_url or "",
        api_version=access.connection.api_version,
        headers=access.headers,
        name=access.connection.provider,
    )


def _chat(access: Access) -> ModelClient:
    """Make the client of whoever speaks Chat Completions."""
    from holdfast.assembly.chat_dialects import spoken_dialect  # noqa: PLC0415
    from holdfast.providers.openai_compatible import VENDORS, openai_compatible  # noqa: PLC0415

    connection = access.connection
    # Under `openai` alone it is Responses.
    kind = "openai" if connection.kind == "openai-chat" else connection.kind
    vendor = VENDORS.get(kind)
    if vendor is None:
        _refuse_unknown(connection)
        vendor = VENDORS["compatible"]
    if vendor.needs_key:
        needed(access)
    return openai_compatible(
        msgspec.structs.replace(
            vendor, name=connection.provider, dialect=spoken_dialect(connection, vendor.dialect)
        ),
        tokens=access.tokens,
        transport=access.transport,
        base_url=connection.base_url,
        headers=_openai_headers(access),
    )


def _refuse_unknown(connection: Connection) -> None:
    """Refuse a provider that nobody knows, unless it is known where its server is."""
    if connection.base_url is None:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"there is no provider {connection.provider!r}; write its base_url into "
            f"[providers.{connection.provider}] of the configuration file, or pass base_url",
            provider=connection.provider,
        )


MAKERS: dict[str, Maker] = {
    "anthropic": _anthropic,
    "azure": _azure,
    "azure-responses": _azure_responses,
    "compatible-responses": _responses,
    "deepseek-responses": _responses,
    "gemini": _gemini,
    "ollama": _ollama,
    "openai": _responses,
    "openai-chat": _chat,
    "openrouter-responses": _responses,
    "perplexity": _responses,
    "vertex": _vertex,
    "xai-responses": _responses,
}


def make_client(access: Access) -> ModelClient:
    """Make the client of a provider by its kind; whoever is not known speaks Chat Completions.

    Raises:
        ConfigError: CONFIG_INVALID for a provider without an address, or a dialect of a protocol
            that has none.

    """
    connection = access.connection
    make = MAKERS.get(connection.kind, _chat)
    if make is _chat:
        return make(access)
    if connection.dialect is not None:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"[providers.{connection.provider}]: only Chat Completions has dialects, and "
            f"{connection.kind!r} speaks something else",
            provider=connection.provider,
        )
    return make(access)


def refuse_unknown_words(connection: Connection, file: ConfigFile) -> None:
    """Raise CONFIG_INVALID for a kind or a dialect of the file that is none."""
    from holdfast.providers.openai_compatible import VENDORS  # noqa: PLC0415
    from holdfast.providers.wire.chat_completions.dialects import DIALECTS  # noqa: PLC0415

    entry = file.providers.get(connection.provider)
    if entry is None:
        return
    kinds = {*MAKERS, *VENDORS}
    for field, word, known in (("kind", entry.kind, kinds), ("dialect", entry.dialect, DIALECTS)):
        if isinstance(word, str) and word not in known:
            told = (
                f"{unknown_name(word, dict.fromkeys(known))}; known are {', '.join(sorted(known))}"
            )
            raise file.error(("providers", connection.provider, field), told)


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
