"""The environment: the one module that reads it; all others are handed a mapping or a value.

A variable that is set to nothing counts as not set. Values of credentials are never returned here:
what is said of a key is the name of the variable that holds it.
"""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import Json, JsonObject

PREFIX = "HOLDFAST_"


def process_environment() -> Mapping[str, str]:
    """Return the process's environment; the mapping shows later changes."""
    return os.environ  # noqa: TID251 - this is the module the rule points to


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
    account: str = ""
    """The provider whose table of the file it goes by, if it has none of its own."""
    read_url: Callable[[str], str] | None = None
    """Makes the base URL of a value that need not be one yet."""


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


_NONE: Mapping[str, ProviderVariables] = MappingProxyType({})


class ProviderEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says of one provider."""

    key_variable: str | None = None
    """The variable that holds the key; never its value."""
    base_url: str | None = None
    more: dict[str, str] = {}
    """Other things, by our names; `auth_token` is the name of a variable, too."""


class Environment:
    """Variables as they were handed in. Shows their names, never their values.

    `providers` says which variables belong to which provider, in the order in which a key that is
    found decides the default one; configuration itself knows no provider.
    """

    def __init__(
        self, variables: Mapping[str, str], providers: Mapping[str, ProviderVariables] = _NONE
    ) -> None:
        self.variables = variables
        """For token sources, which look a variable up anew for each request."""
        self.providers = providers

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

    def provider(self, name: str) -> ProviderEnvironment:
        """Return what is set for a provider that has variables of its own."""
        known = self.providers.get(name, ProviderVariables())
        base_url = self.get(*known.base_url)
        more = {}
        for what, variables in known.more.items():
            variable = self._first_set(variables)
            if variable is not None:
                more[what] = variable if what == "auth_token" else self.get(variable) or ""
        return ProviderEnvironment(
            key_variable=self._first_set(known.keys),
            base_url=known.read_url(base_url) if known.read_url and base_url else base_url,
            more=more,
        )

    def providers_with_keys(self) -> tuple[str, ...]:
        """Return the providers for which a key is set, the default one first."""
        return tuple(name for name, known in self.providers.items() if self._first_set(known.keys))

    def _first_set(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if self.get(name) is not None), None)
