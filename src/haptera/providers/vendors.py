"""Vendors: one row for every provider that is known by name. To add a vendor, add a row.

Everything else is derived from the rows: `assembly.configuration` passes their environment
variables to the configuration, `vendor_clients` makes a client from a row, and the catalogue looks
up whose models a row offers. Tests compare docs/providers.md and docs/configuration.md with the
table. Every agent loads this module, so it imports no protocol: a row names protocol and dialect.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from haptera.model.vendors import CLAUDE_AGENT, LOCAL, VENDOR_FIELDS, Protocol

UrlForm: TypeAlias = Literal["plain", "azure", "vertex", "ollama"]
"""How the base URL is made.

`plain`: it is the URL as given. `azure`: from the URL of a customer's own resource. `vertex`: from
the host of a location, the project and the location. `ollama`: from a host, whose scheme and port
may be missing.
"""

_OLLAMA_PORT = 11434
_USUAL_PORTS = {"http": 80, "https": 443}
_LOOPBACK = {str(IPv4Address(0)): "127.0.0.1", str(IPv6Address(0)): "::1"}
"""The wildcard addresses that a server may listen on, and where a client reaches it then."""


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One provider as data."""

    name: str
    """The name in `provider/model`, and the `kind` of a table in the configuration file."""
    protocol: Protocol
    dialect: str = ""
    """The name of the protocol's dialect; empty for a protocol without dialects, or for the one
    that it uses by default."""
    base_url: str = ""
    """With the API version, if the URL has one; empty if the user must set it."""
    url_form: UrlForm = "plain"
    key_header: str = "authorization"
    """The header for a key; in `authorization` it is sent as a bearer token."""
    key_variables: tuple[str, ...] = ()
    """Environment variables for the key; the first one that is set counts."""
    url_variables: tuple[str, ...] = ()
    """Environment variables for the base URL; the first one that is set counts."""
    token_variables: tuple[str, ...] = ()
    """Environment variables for a token that is sent as a bearer token in place of a key."""
    more_variables: dict[str, tuple[str, ...]] = {}
    """The `VendorFields` that it takes, with the environment variables of each; a table of the file
    that has others is refused."""
    needs_key: bool = True
    needs: tuple[str, ...] = ()
    """Which of `more_variables` must be set, in the table or by a variable."""
    account: str = ""
    """The vendor whose key, URL and table this one uses: the same account, another protocol."""
    same_models_as: str = ""
    """The vendor whose models it offers with the same names and prices; default: `account`."""
    catalogue_name: str | None = ""
    """Its name in the source of the catalogue, for `scripts/build_catalogue.py`; empty: `name`;
    None: the source does not have it, so its models have no prices."""
    default_model: str = ""
    """Used if no model is named and this vendor's key is the first one found."""
    trace_name: str = ""
    """The name in OpenTelemetry's conventions (`gen_ai.provider.name`); default: `account`, else
    `name`."""

    @property
    def is_remote(self) -> bool:
        """Whether requests are sent to it, with a key and at a URL that can be configured."""
        return self.protocol not in {"native", "process"}

    def __post_init__(self) -> None:
        for field in self.more_variables:
            if field not in VENDOR_FIELDS:
                raise ValueError(f"{self.name}: {field!r} is not a field of VendorFields")
        for field in self.needs:
            if field not in self.more_variables:
                raise ValueError(f"{self.name}: {field!r} is needed and not in more_variables")


def _vendor(name: str, base_url: str, *more_keys: str, dialect: str = "") -> Vendor:
    """Return a vendor with Chat Completions and the usual variables."""
    prefix = name.upper()
    return Vendor(
        name=name,
        protocol="chat",
        dialect=dialect or name,
        base_url=base_url,
        key_variables=(f"{prefix}_API_KEY", *more_keys),
        url_variables=(f"{prefix}_BASE_URL",),
    )


def _server(name: str, port: int) -> Vendor:
    """Return a local server with Chat Completions."""
    vendor = _vendor(name, f"http://localhost:{port}/v1")
    return replace(vendor, needs_key=False, catalogue_name=None)


def _also(first: Vendor, name: str, protocol: Protocol) -> Vendor:
    """Return a second row for the account of `first`, with another protocol at the same URL."""
    return replace(first, name=name, protocol=protocol, account=first.name, default_model="")


_ANTHROPIC = Vendor(
    name="anthropic",
    protocol="messages",
    base_url="https://api.anthropic.com",
    key_header="x-api-key",
    key_variables=("ANTHROPIC_API_KEY",),
    url_variables=("ANTHROPIC_BASE_URL",),
    token_variables=("ANTHROPIC_AUTH_TOKEN",),
    default_model="claude-sonnet-5",
)
_OPENAI = Vendor(
    name="openai",
    protocol="responses",
    dialect="openai",
    base_url="https://api.openai.com/v1",
    key_variables=("OPENAI_API_KEY",),
    url_variables=("OPENAI_BASE_URL",),
    more_variables={"organization": ("OPENAI_ORG_ID",), "project": ("OPENAI_PROJECT_ID",)},
    default_model="gpt-5",
)
_AZURE = Vendor(
    name="azure",
    protocol="chat",
    dialect="azure",
    url_form="azure",
    key_header="api-key",
    key_variables=("AZURE_OPENAI_API_KEY",),
    url_variables=("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL"),
    more_variables={"api_version": ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")},
    trace_name="azure.ai.openai",
)
_OPENROUTER = replace(
    _vendor("openrouter", "https://openrouter.ai/api/v1"), default_model="openrouter/auto"
)
_DEEPSEEK = replace(_vendor("deepseek", "https://api.deepseek.com"), default_model="deepseek-chat")
_XAI = replace(
    _vendor("xai", "https://api.x.ai/v1"),
    catalogue_name="x-ai",
    default_model="grok-4",
    trace_name="x_ai",
)
_COMPATIBLE = Vendor(
    name="compatible",
    protocol="chat",
    dialect="compatible",
    more_variables={"organization": (), "project": ()},
    needs_key=False,
    catalogue_name=None,
)

_ROWS = (
    _ANTHROPIC,
    _OPENAI,
    _also(_OPENAI, "openai-chat", "chat"),
    Vendor(
        name="gemini",
        protocol="generate_content",
        dialect="gemini",
        base_url="https://generativelanguage.googleapis.com",
        key_header="x-goog-api-key",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variables=("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
        catalogue_name="google",
        default_model="gemini-2.5-flash",
        trace_name="gcp.gemini",
    ),
    Vendor(
        name="vertex",
        protocol="generate_content",
        dialect="vertex",
        url_form="vertex",
        more_variables={
            "project": ("GOOGLE_CLOUD_PROJECT",),
            "location": ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"),
        },
        needs=("project",),
        same_models_as="gemini",
        trace_name="gcp.vertex_ai",
    ),
    _AZURE,
    # Its Responses API has no version in the query string, so none can be configured.
    replace(_also(_AZURE, "azure-responses", "responses"), more_variables={}),
    _OPENROUTER,
    _also(_OPENROUTER, "openrouter-responses", "responses"),
    replace(
        _vendor("groq", "https://api.groq.com/openai/v1"), default_model="llama-3.3-70b-versatile"
    ),
    _DEEPSEEK,
    _also(_DEEPSEEK, "deepseek-responses", "responses"),
    replace(
        _vendor("mistral", "https://api.mistral.ai/v1"),
        default_model="mistral-large-latest",
        trace_name="mistral_ai",
    ),
    _XAI,
    _also(_XAI, "xai-responses", "responses"),
    _vendor("together", "https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    _vendor("fireworks", "https://api.fireworks.ai/inference/v1"),
    # Some of these are so close to OpenAI's API that they need no dialect. Moonshot and Z.ai have
    # separate platforms in China, with other accounts: api.moonshot.cn/v1 and
    # open.bigmodel.cn/api/paas/v4.
    _vendor("cerebras", "https://api.cerebras.ai/v1", dialect="compatible"),
    _vendor("cohere", "https://api.cohere.ai/compatibility/v1", "CO_API_KEY"),
    replace(
        _vendor("moonshot", "https://api.moonshot.ai/v1", dialect="compatible"),
        catalogue_name="moonshotai",
    ),
    # It ended Chat Completions in September 2026; its Agent API is the Responses API.
    replace(
        _vendor("perplexity", "https://api.perplexity.ai/v1", "PPLX_API_KEY"), protocol="responses"
    ),
    _vendor("zai", "https://api.z.ai/api/paas/v4", dialect="compatible"),
    Vendor(
        name="ollama",
        protocol="ollama",
        base_url=f"http://127.0.0.1:{_OLLAMA_PORT}",
        url_form="ollama",
        key_variables=("OLLAMA_API_KEY",),
        url_variables=("OLLAMA_HOST",),
        needs_key=False,
        catalogue_name=None,
    ),
    _server("vllm", 8000),
    _server("lmstudio", 1234),
    _server("llamacpp", 8080),
    _COMPATIBLE,
    replace(_COMPATIBLE, name="compatible-responses", protocol="responses", dialect="plain"),
    Vendor(
        name=CLAUDE_AGENT,
        protocol="native",
        base_url=_ANTHROPIC.base_url,
        needs_key=False,
        same_models_as=_ANTHROPIC.name,
    ),
    Vendor(
        name=LOCAL,
        protocol="process",
        needs_key=False,
        catalogue_name=None,
        default_model="smollm2",
    ),
)

VENDORS: dict[str, Vendor] = {row.name: row for row in _ROWS}
"""By name; the first row whose key is found decides the default model."""


def vendor_of(kind: str) -> Vendor:
    """Return the row of a kind; a server that is not known speaks Chat Completions."""
    return VENDORS.get(kind, _COMPATIBLE)


def protocol_of(provider: str) -> Protocol | None:
    """Return how a provider is spoken to; None of one that is not in the table."""
    vendor = VENDORS.get(provider)
    return None if vendor is None else vendor.protocol


def names_in_the_catalogue() -> dict[str, str]:
    """Return the vendors whose models have a table in the catalogue, by their names in its source.

    A vendor with another one's models has that one's table.
    """
    return {
        vendor.catalogue_name or vendor.name: vendor.name
        for vendor in VENDORS.values()
        if vendor.catalogue_name is not None and not (vendor.same_models_as or vendor.account)
    }


def trace_name_of(provider: str) -> str:
    """Return the name of a provider in OpenTelemetry's conventions; of an unknown one, its own."""
    vendor = VENDORS.get(provider)
    return provider if vendor is None else vendor.trace_name or vendor.account or vendor.name


def ollama_url(host: str) -> str:
    """Return the URL for a value of OLLAMA_HOST, as Ollama's own client reads it.

    A wildcard address means this machine. What is not a host is returned unchanged but for a
    scheme, and the later check of URLs reports what is wrong with it.
    """
    host_name = host.strip()
    url = host_name if "://" in host_name else f"http://{host_name}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if parts.scheme not in _USUAL_PORTS or parts.username or parts.query or parts.fragment:
        return url
    name = parts.hostname or "127.0.0.1"
    name = _LOOPBACK.get(name, name)
    name = f"[{name}]" if ":" in name else name
    # With a scheme Ollama's client takes the scheme's port, without one its own.
    usual = _USUAL_PORTS[parts.scheme] if "://" in host_name else _OLLAMA_PORT
    return f"{parts.scheme}://{name}:{port or usual}{parts.path.rstrip('/')}"


def key_advice() -> str:
    """Say how to use a provider instead of a model on this machine, for messages."""
    usual = [vendor for vendor in VENDORS.values() if vendor.default_model and vendor.key_variables]
    names = ", ".join(vendor.key_variables[0] for vendor in usual[:3])
    return f"set the API key of a provider ({names}, ...)"
