"""The environment: the one place that reads it; everybody else is handed a mapping or a value.

A variable that is set to nothing counts as not set. Values of credentials are never returned here:
what is said of a key is the name of the variable that holds it.
"""

import os
from collections.abc import Callable, Mapping

import msgspec

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import Json, JsonObject

PREFIX = "HOLDFAST_"


def process_environment() -> Mapping[str, str]:
    """Return the process's environment; the mapping shows later changes."""
    return os.environ  # noqa: TID251 - this is the room the rule points to


def read(environment: Mapping[str, str], *names: str) -> str | None:
    """Return the first of `names` that is set to something, without the space around it."""
    for name in names:
        if value := environment.get(name, "").strip():
            return value
    return None


class ProviderVariables(msgspec.Struct, frozen=True, kw_only=True):
    """Which variables users already have for a provider; the first one that is set counts."""

    keys: tuple[str, ...] = ()
    base_url: tuple[str, ...] = ()
    more: dict[str, tuple[str, ...]] = {}
    """Other things that a provider can be told: its name in our words, and its variables."""


def _key_only(prefix: str) -> ProviderVariables:
    return ProviderVariables(keys=(f"{prefix}_API_KEY",), base_url=(f"{prefix}_BASE_URL",))


_OWN_VARIABLES: Mapping[str, ProviderVariables] = {
    "anthropic": ProviderVariables(
        keys=("ANTHROPIC_API_KEY",),
        base_url=("ANTHROPIC_BASE_URL",),
        more={"auth_token": ("ANTHROPIC_AUTH_TOKEN",)},
    ),
    "openai": ProviderVariables(
        keys=("OPENAI_API_KEY",),
        base_url=("OPENAI_BASE_URL",),
        more={"organization": ("OPENAI_ORG_ID",), "project": ("OPENAI_PROJECT_ID",)},
    ),
    "gemini": ProviderVariables(
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url=("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
    ),
    "vertex": ProviderVariables(
        more={
            "project": ("GOOGLE_CLOUD_PROJECT",),
            "location": ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"),
        }
    ),
    "openrouter": _key_only("OPENROUTER"),
    "azure": ProviderVariables(
        keys=("AZURE_OPENAI_API_KEY",),
        base_url=("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL"),
        more={"api_version": ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")},
    ),
    "groq": _key_only("GROQ"),
    "deepseek": _key_only("DEEPSEEK"),
    "mistral": _key_only("MISTRAL"),
    "xai": _key_only("XAI"),
    "together": ProviderVariables(
        keys=("TOGETHER_API_KEY", "TOGETHERAI_API_KEY"), base_url=("TOGETHER_BASE_URL",)
    ),
    "fireworks": _key_only("FIREWORKS"),
    "cerebras": _key_only("CEREBRAS"),
    "cohere": ProviderVariables(
        keys=("COHERE_API_KEY", "CO_API_KEY"), base_url=("COHERE_BASE_URL",)
    ),
    "moonshot": _key_only("MOONSHOT"),
    "perplexity": ProviderVariables(
        keys=("PERPLEXITY_API_KEY", "PPLX_API_KEY"), base_url=("PERPLEXITY_BASE_URL",)
    ),
    "zai": _key_only("ZAI"),
    "ollama": ProviderVariables(keys=("OLLAMA_API_KEY",), base_url=("OLLAMA_HOST",)),
    "vllm": _key_only("VLLM"),
    "lmstudio": _key_only("LMSTUDIO"),
    "llamacpp": _key_only("LLAMACPP"),
}

SAME_ACCOUNT: Mapping[str, str] = {
    "openai-chat": "openai",
    "azure-responses": "azure",
    "deepseek-responses": "deepseek",
    "openrouter-responses": "openrouter",
    "xai-responses": "xai",
}
"""Providers that are another one's account by a second protocol, with its key and address."""

PROVIDER_VARIABLES: Mapping[str, ProviderVariables] = {
    **_OWN_VARIABLES,
    **{name: _OWN_VARIABLES[account] for name, account in SAME_ACCOUNT.items()},
}
"""By our name of the provider, in the order in which a found key decides the default one."""


def _text(value: str) -> Json:
    return value


def _names(value: str) -> Json:
    return [name for part in value.split(",") if (name := part.strip())]


def _one(value: str) -> Json:
    return [value]


OPTIONS: Mapping[str, tuple[str, Callable[[str], Json]]] = {
    "CONFIG_DIR": ("config_dir", _text),
    "CONFIG_PATH": ("config_path", _text),
    "HOME": ("home", _text),
    "STORE": ("store", _text),
    "OWNER": ("owner", _text),
    "PROJECT": ("project", _text),
    "LOG": ("log", _text),
    "PERMISSION_MODE": ("permission_mode", _text),
    "CLAUDE_EXECUTABLE": ("claude_executable", _text),
    "MODEL": ("model", _text),
    "THINKING": ("thinking", _text),
    "SYSTEM_PROMPT": ("system_prompts", _one),
    "MAX_TOKENS": ("max_tokens", int),
    "TEMPERATURE": ("temperature", float),
    "SEED": ("seed", int),
    "CACHE_TTL": ("cache_ttl", _text),
    "ALLOWED_TOOLS": ("allowed_tools", _names),
    "DENIED_TOOLS": ("denied_tools", _names),
    "MAX_TURNS": ("limits.turns", int),
    "MAX_COST": ("limits.cost", float),
    "MAX_RETRIES": ("retry.max_retries", int),
    "CONNECT_TIMEOUT": ("timeouts.connect", float),
    "FIRST_BYTE_TIMEOUT": ("timeouts.first_byte", float),
    "BETWEEN_BYTES_TIMEOUT": ("timeouts.between_bytes", float),
    "CONTENT_TIMEOUT": ("timeouts.content", float),
    "MAX_SESSIONS": ("max_concurrent_sessions", int),
    "SESSION_TIMEOUT": ("session_timeout", float),
    "CLOSE_DRAIN_TIMEOUT": ("close_drain_seconds", float),
}
"""What can be set, without the prefix: the option's path, and how its text is read."""


class ProviderEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says of one provider."""

    key_variable: str | None = None
    """The variable that holds the key; never its value."""
    base_url: str | None = None
    more: dict[str, str] = {}
    """Other things, by our names; `auth_token` is the name of a variable, too."""


class Environment:
    """Variables as they were handed in. Shows their names, never their values."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = variables
        """For token sources, which look a variable up anew for each request."""

    def __repr__(self) -> str:
        return f"Environment({', '.join(sorted(self.options()))})"

    def get(self, *names: str) -> str | None:
        """Return the first of `names` that is set to something."""
        return read(self.variables, *names)

    def options(self) -> dict[str, str]:
        """Return which variables of ours are set, by option path."""
        return {
            path: PREFIX + name
            for name, (path, _) in OPTIONS.items()
            if self.get(PREFIX + name) is not None
        }

    def values(self) -> JsonObject:
        """Return the options as nested plain values; raises CONFIG_INVALID naming the variable."""
        values: JsonObject = {}
        for name, (path, parse) in OPTIONS.items():
            text = self.get(PREFIX + name)
            if text is None:
                continue
            try:
                value = parse(text)
            except ValueError:
                raise ConfigError(
                    ErrorCode.CONFIG_INVALID, f"{PREFIX}{name} must be a number, not {text!r}"
                ) from None
            *tables, last = path.split(".")
            inner = values
            for table in tables:
                inner = inner.setdefault(table, {})
            inner[last] = value
        return values

    def unknown_options(self) -> tuple[str, ...]:
        """Return variables that have our prefix and mean nothing to us."""
        ours = (name for name in self.variables if name.startswith(PREFIX))
        return tuple(sorted(name for name in ours if name.removeprefix(PREFIX) not in OPTIONS))

    def provider(self, name: str) -> ProviderEnvironment:
        """Return what is set for a provider that has variables of its own."""
        known = PROVIDER_VARIABLES.get(name, ProviderVariables())
        base_url = self.get(*known.base_url)
        more = {}
        for what, variables in known.more.items():
            variable = self._first_set(variables)
            if variable is not None:
                more[what] = variable if what == "auth_token" else self.get(variable) or ""
        return ProviderEnvironment(
            key_variable=self._first_set(known.keys),
            base_url=_host_url(base_url) if name == "ollama" and base_url else base_url,
            more=more,
        )

    def providers_with_keys(self) -> tuple[str, ...]:
        """Return the providers for which a key is set, the default one first."""
        return tuple(
            name for name, known in PROVIDER_VARIABLES.items() if self._first_set(known.keys)
        )

    def _first_set(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if self.get(name) is not None), None)


def _host_url(host: str) -> str:
    """Make a URL of a host as Ollama takes it: the scheme and the port may be missing."""
    scheme, _, rest = host.rpartition("://")
    address = rest.rstrip("/")
    # A server is told to listen everywhere by this address; nobody can be reached at it.
    address = address.replace("0.0.0.0", "127.0.0.1", 1)  # noqa: S104
    has_port = address.rpartition("]")[2].count(":") == 1 or scheme == "https"
    if address.startswith(":"):
        address, has_port = "127.0.0.1" + address, True
    return f"{scheme or 'http'}://{address}{'' if has_port else ':11434'}"
