"""The environment: what it says, and where it puts the user's folders.

This is the one module that reads it; all others are handed a mapping or a value. A variable that
is set to nothing counts as not set. Values of credentials are never returned here: what is said of
a key is the name of the variable that holds it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import get_args, get_origin

import msgspec

from holdfast.vocabulary.agent_defaults import AgentDefaults
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.option_declarations import Declared, declared_fields
from holdfast.vocabulary.settings import RuntimeSettings, Settings

PREFIX = "HOLDFAST_"
APPLICATION = "holdfast"
CONFIG_FILE = "config.toml"


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


class Variable(msgspec.Struct, frozen=True):
    """A variable of ours: the option that it sets, and how its text is read."""

    path: str
    """The option's dotted path."""
    declared: Declared

    def parse(self, text: str) -> Json:
        """Read the text; raises ValueError for what is no number."""
        kinds = get_args(self.declared.kind) or (self.declared.kind,)
        if int in kinds or float in kinds:
            return int(text) if int in kinds else float(text)
        is_list = any(tuple in {kind, get_origin(kind)} for kind in (self.declared.kind, *kinds))
        if not is_list:
            return text
        if self.declared.option.whole:
            return [text]
        return [name for part in text.split(",") if (name := part.strip())]


def _variables_in(kind: type[msgspec.Struct], inside: str = "") -> Iterator[tuple[str, Variable]]:
    for name, declared in declared_fields(kind).items():
        if declared.option.variable is not None:
            yield declared.option.variable, Variable(f"{inside}{name}", declared)
        if declared.struct is not None:
            yield from _variables_in(declared.struct, f"{inside}{name}.")


VARIABLES: Mapping[str, Variable] = dict(
    chain.from_iterable(_variables_in(kind) for kind in (AgentDefaults, Settings, RuntimeSettings))
)
"""The variables that set an option, by their names without the prefix."""


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
            variable.path: PREFIX + name
            for name, variable in VARIABLES.items()
            if self.get(PREFIX + name) is not None
        }

    def values(self) -> JsonObject:
        """Return the options as nested plain values; raises CONFIG_INVALID naming the variable."""
        values: JsonObject = {}
        for name, variable in VARIABLES.items():
            text = self.get(PREFIX + name)
            if text is None:
                continue
            try:
                value = variable.parse(text)
            except ValueError:
                raise ConfigError(
                    ErrorCode.CONFIG_INVALID, f"{PREFIX}{name} must be a number, not {text!r}"
                ) from None
            *tables, last = variable.path.split(".")
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


class Locations(msgspec.Struct, frozen=True, kw_only=True):
    """The user's folders; none of them need exist."""

    config: Path
    data: Path
    """What must be kept: sessions."""
    state: Path
    """What may be lost without harm: logs, history of a prompt."""
    cache: Path
    """What can be had again: models, downloads."""

    @property
    def config_file(self) -> Path:
        """The user's configuration file."""
        return self.config / CONFIG_FILE


def locate(
    environment: Environment, *, home: Path, platform: str, config_dir: Path | None = None
) -> Locations:
    """Return the folders: those asked for, else those the platform's custom names.

    `config_dir` goes before HOLDFAST_CONFIG_DIR; HOLDFAST_HOME puts everything under one roof.
    `platform` is `sys.platform`.
    """
    single = environment.get("HOLDFAST_HOME")
    if single is not None:
        found = _under(Path(single).expanduser())
    elif platform == "win32":
        found = _windows(environment, home)
    else:
        found = _unix(environment, home, platform=platform)
    chosen = config_dir or environment.get("HOLDFAST_CONFIG_DIR")
    if chosen is None:
        return found
    return msgspec.structs.replace(found, config=Path(chosen).expanduser())


def _under(roof: Path) -> Locations:
    return Locations(config=roof, data=roof / "data", state=roof / "state", cache=roof / "cache")


def _unix(environment: Environment, home: Path, *, platform: str) -> Locations:
    library = home / "Library"
    support = library / "Application Support"
    usual = {
        "CONFIG": support if platform == "darwin" else home / ".config",
        "DATA": support if platform == "darwin" else home / ".local" / "share",
        "STATE": support if platform == "darwin" else home / ".local" / "state",
        "CACHE": library / "Caches" if platform == "darwin" else home / ".cache",
    }
    folders = {
        kind.lower(): _absolute(environment.get(f"XDG_{kind}_HOME"), default) / APPLICATION
        for kind, default in usual.items()
    }
    return Locations(**folders)


def _windows(environment: Environment, home: Path) -> Locations:
    roaming = _absolute(environment.get("APPDATA"), home / "AppData" / "Roaming") / APPLICATION
    local = _absolute(environment.get("LOCALAPPDATA"), home / "AppData" / "Local") / APPLICATION
    return Locations(
        config=roaming, data=local / "data", state=local / "state", cache=local / "cache"
    )


def _absolute(value: str | None, default: Path) -> Path:
    """Take a folder from a variable; a relative one would mean another folder in each place."""
    return Path(value) if value is not None and Path(value).is_absolute() else default
