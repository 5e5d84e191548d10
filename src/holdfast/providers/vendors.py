"""Vendors: every provider that is known by its name, one row each. A new vendor is a row here.

The rest is derived from the rows: `assembly.configuration` hands their variables to configuration,
`vendor_clients` makes a client from a row, the catalogue looks up whose models a row offers. Tests
compare docs/providers.md and docs/configuration.md with the table. It is loaded with every agent,
so it imports no protocol: a row names its protocol and its dialect.
"""

from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

Protocol: TypeAlias = Literal["messages", "responses", "chat", "generate_content", "ollama"]
"""Anthropic Messages, OpenAI Responses, OpenAI Chat Completions, Gemini generateContent, and
Ollama's own."""

UrlForm: TypeAlias = Literal["plain", "azure", "vertex", "ollama"]
"""How the URL of a request begins.

`plain`: with the base URL as it is. `azure`: with the URL of a customer's own resource, as its
page shows it. `vertex`: with the host of a location, then project and location. `ollama`: with a
host, for which scheme and port may be left out.
"""

_OLLAMA_PORT = 11434
_USUAL_PORTS = {"http": 80, "https": 443}


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One provider as data."""

    name: str
    """Its name in `provider/model`, and as `kind` of a table in the configuration file."""
    protocol: Protocol
    dialect: str = ""
    """The protocol's dialect by its name; empty where the protocol has none to choose from."""
    base_url: str = ""
    """With the version where it has one; empty where it has to be given."""
    url_form: UrlForm = "plain"
    key_header: str = "authorization"
    """Where a plain key goes; in `authorization` it is sent as a bearer token."""
    key_variables: tuple[str, ...] = ()
    """Variables that may hold the key; the first one that is set counts."""
    url_variables: tuple[str, ...] = ()
    """Variables that may hold the base URL; the first one that is set counts."""
    more_variables: dict[str, tuple[str, ...]] = {}
    """Variables for other fields of a provider's table, by the name of the field. `auth_token` is
    a token that is sent as a bearer token instead of a key."""
    needs_key: bool = True
    needs: tuple[str, ...] = ()
    """Other fields of a provider's table that have to be given, by the table or a variable."""
    account: str = ""
    """The vendor whose key, URL and table this one uses: the same account by another protocol."""
    same_models_as: str = ""
    """The vendor whose models it offers under the same names and prices; `account` if left out."""
    default_model: str = ""
    """Used when this vendor's key is the first one found and no model is named."""


def _vendor(name: str, base_url: str, *more_keys: str, dialect: str = "") -> Vendor:
    """Return a vendor of Chat Completions with the usual variables."""
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
    """Return a server of Chat Completions on this machine."""
    return replace(_vendor(name, f"http://localhost:{port}/v1"), needs_key=False)


def _also(first: Vendor, name: str, protocol: Protocol) -> Vendor:
    """Return the second name of an account, for another protocol at the same URL."""
    return replace(first, name=name, protocol=protocol, account=first.name, default_model="")


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
)
_OPENROUTER = replace(
    _vendor("openrouter", "https://openrouter.ai/api/v1"), default_model="openrouter/auto"
)
_DEEPSEEK = replace(_vendor("deepseek", "https://api.deepseek.com"), default_model="deepseek-chat")
_XAI = replace(_vendor("xai", "https://api.x.ai/v1"), default_model="grok-4")

_ROWS = (
    Vendor(
        name="anthropic",
        protocol="messages",
        base_url="https://api.anthropic.com",
        key_header="x-api-key",
        key_variables=("ANTHROPIC_API_KEY",),
        url_variables=("ANTHROPIC_BASE_URL",),
        more_variables={"auth_token": ("ANTHROPIC_AUTH_TOKEN",)},
        default_model="claude-sonnet-5",
    ),
    _OPENAI,
    _also(_OPENAI, "openai-chat", "chat"),
    Vendor(
        name="gemini",
        protocol="generate_content",
        base_url="https://generativelanguage.googleapis.com",
        key_header="x-goog-api-key",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variables=("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
        default_model="gemini-2.5-flash",
    ),
    Vendor(
        name="vertex",
        protocol="generate_content",
        url_form="vertex",
        more_variables={
            "project": ("GOOGLE_CLOUD_PROJECT",),
            "location": ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"),
        },
        needs=("project",),
        same_models_as="gemini",
    ),
    _AZURE,
    _also(_AZURE, "azure-responses", "responses"),
    _OPENROUTER,
    _also(_OPENROUTER, "openrouter-responses", "responses"),
    replace(
        _vendor("groq", "https://api.groq.com/openai/v1"), default_model="llama-3.3-70b-versatile"
    ),
    _DEEPSEEK,
    _also(_DEEPSEEK, "deepseek-responses", "responses"),
    replace(_vendor("mistral", "https://api.mistral.ai/v1"), default_model="mistral-large-latest"),
    _XAI,
    _also(_XAI, "xai-responses", "responses"),
    _vendor("together", "https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    _vendor("fireworks", "https://api.fireworks.ai/inference/v1"),
    # These keep close enough to OpenAI's own that no dialect of theirs is needed. Moonshot and
    # Z.ai have platforms of their own in China, with other accounts: api.moonshot.cn/v1 and
    # open.bigmodel.cn/api/paas/v4.
    _vendor("cerebras", "https://api.cerebras.ai/v1", dialect="compatible"),
    _vendor("cohere", "https://api.cohere.ai/compatibility/v1", "CO_API_KEY"),
    _vendor("moonshot", "https://api.moonshot.ai/v1", dialect="compatible"),
    # Its Chat Completions ended in September 2026; its Agent API is Responses under a new name.
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
    ),
    _server("vllm", 8000),
    _server("lmstudio", 1234),
    _server("llamacpp", 8080),
    Vendor(name="compatible", protocol="chat", dialect="compatible", needs_key=False),
    Vendor(name="compatible-responses", protocol="responses", dialect="plain", needs_key=False),
)

VENDORS: dict[str, Vendor] = {row.name: row for row in _ROWS}
"""By name, in the order in which a key that is found decides the default model."""


def ollama_url(host: str) -> str:
    """Return the URL that a value of OLLAMA_HOST means, read as Ollama's own client reads it.

    A server's wildcard means this machine. What is no host is returned with a scheme and otherwise
    as it is, so that the check of URLs can say what is wrong with it.
    """
    given = host.strip()
    url = given if "://" in given else f"http://{given}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if parts.scheme not in _USUAL_PORTS or parts.username or parts.query or parts.fragment:
        return url
    name = parts.hostname or "127.0.0.1"
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 - named, not bound
    name = f"[{name}]" if ":" in name else name
    usual = _USUAL_PORTS[parts.scheme] if "://" in given else _OLLAMA_PORT
    return f"{parts.scheme}://{name}:{port or usual}{parts.path.rstrip('/')}"
