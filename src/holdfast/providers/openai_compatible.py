"""Vendors that speak Chat Completions: where they are, which dialect they speak, how they auth."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from holdfast.ports.token_source import TokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.transport.protocol import Transport
from holdfast.providers.wire.chat_completions import chat_protocol
from holdfast.providers.wire.chat_completions.dialects import (
    AZURE,
    COHERE,
    DEEPSEEK,
    FIREWORKS,
    GENERIC,
    GROQ,
    LLAMA_CPP,
    LM_STUDIO,
    MISTRAL,
    OLLAMA,
    OPENAI,
    OPENROUTER,
    TOGETHER,
    VLLM,
    XAI,
    Dialect,
)
from holdfast.vocabulary.errors import ConfigError, ErrorCode

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor as data. The environment is read by whoever assembles a client, not here."""

    name: str
    dialect: Dialect
    base_url: str = ""
    """Empty where it has to be given."""
    key_variables: tuple[str, ...] = ()
    """Variables that may hold the key, the first that is set counts."""
    url_variables: tuple[str, ...] = ()
    """Variables that may hold the base URL."""
    needs_key: bool = True


def _hosted(dialect: Dialect, base_url: str, *variables: str) -> Vendor:
    return Vendor(name=dialect.name, dialect=dialect, base_url=base_url, key_variables=variables)


def _plain(name: str, base_url: str, *variables: str) -> Vendor:
    return Vendor(name=name, dialect=GENERIC, base_url=base_url, key_variables=variables)


def _local(dialect: Dialect, port: int, *url_variables: str) -> Vendor:
    return Vendor(
        name=dialect.name,
        dialect=dialect,
        base_url=f"http://localhost:{port}/v1",
        key_variables=(f"{dialect.name.upper()}_API_KEY",),
        url_variables=url_variables,
        needs_key=False,
    )


VENDORS = {
    vendor.name: vendor
    for vendor in (
        replace(
            _hosted(OPENAI, "https://api.openai.com/v1", "OPENAI_API_KEY"),
            url_variables=("OPENAI_BASE_URL",),
        ),
        replace(
            _hosted(AZURE, "", "AZURE_OPENAI_API_KEY"), url_variables=("AZURE_OPENAI_ENDPOINT",)
        ),
        _hosted(OPENROUTER, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        _hosted(GROQ, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _hosted(DEEPSEEK, "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
        _hosted(MISTRAL, "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        _hosted(XAI, "https://api.x.ai/v1", "XAI_API_KEY"),
        _hosted(TOGETHER, "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _hosted(FIREWORKS, "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        _hosted(COHERE, "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY", "CO_API_KEY"),
        # These keep close enough to OpenAI's own that no dialect of theirs is needed. Moonshot and
        # Z.ai have platforms of their own in China, with other accounts: api.moonshot.cn/v1 and
        # open.bigmodel.cn/api/paas/v4.
        _plain("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        _plain("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
        _plain("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
        _local(VLLM, 8000, "VLLM_BASE_URL"),
        _local(LM_STUDIO, 1234, "LMSTUDIO_BASE_URL"),
        _local(LLAMA_CPP, 8080, "LLAMACPP_BASE_URL"),
        # Its native protocol is preferred; OLLAMA_HOST names a host, not a base URL.
        _local(OLLAMA, 11434),
        Vendor(name=GENERIC.name, dialect=GENERIC, needs_key=False),
    )
}

AZURE_VERSION_VARIABLES = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")


def openai_compatible(
    vendor: Vendor,
    *,
    tokens: TokenSource | None,
    transport: Transport,
    base_url: str | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> WireModelClient:
    """Make the client of a vendor; a `base_url` is with `/v1` where the server has it.

    Raises:
        ConfigError: CONFIG_MISSING when neither vendor nor caller knows where the server is.

    """
    return WireModelClient(
        provider=vendor.name,
        protocol=chat_protocol(vendor.dialect),
        endpoint=Endpoint(base_url=_place(vendor, base_url), headers=dict(headers)),
        tokens=tokens,
        transport=transport,
    )


def azure_openai(
    *,
    tokens: TokenSource,
    transport: Transport,
    endpoint: str,
    api_version: str | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    name: str = AZURE.name,
) -> WireModelClient:
    """Make the client of an Azure resource, whose models are called by their deployments.

    With an `api_version` the deployment is in the path, as it was for long; without one the newer
    path is used, which has neither.
    """
    vendor = VENDORS[AZURE.name]
    dialect = AZURE if api_version else replace(AZURE, path="/openai/v1/chat/completions")
    return WireModelClient(
        provider=name,
        protocol=chat_protocol(dialect),
        endpoint=Endpoint(
            base_url=_place(vendor, endpoint),
            headers=dict(headers),
            key_header="api-key",
            query={"api-version": api_version} if api_version else {},
        ),
        tokens=tokens,
        transport=transport,
    )


def _place(vendor: Vendor, given: str | None) -> str:
    place = given or vendor.base_url
    if place:
        return place
    ways = ["pass base_url", *(f"set {name}" for name in vendor.url_variables)]
    raise ConfigError(
        ErrorCode.CONFIG_MISSING, f"no base URL for {vendor.name!r}: {' or '.join(ways)}"
    )
