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

from haptera.model.agent_defaults import AgentDefaults, FileLocations
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import Json, JsonObject, writable
from haptera.model.own_name import FORMER_NAME
from haptera.model.settings import PoolSettings, RuntimeSettings, Settings
from haptera.options.declarations import Declared, allowed_words, declared_fields
from haptera.options.wording import meant_name
from haptera.system.logs import scrubbed_logger

PREFIX = "HAPTERA_"
_FORMER_PREFIX = f"{FORMER_NAME.upper()}_"
APPLICATION = "haptera"
CONFIG_FILE = "config.toml"
_logger = scrubbed_logger(__name__)
_ON, _OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
"""How a switch may be written, in any case."""


def process_environment() -> Mapping[str, str]:
    """Return the process's environment; the mapping shows later changes.

    Warns once of each variable that is set under the name that it had before.
    """
    variables = os.environ  # noqa: TID251 - this is the module the rule points to
    _warn_of_former_names(variables)
    return variables


def read(environment: Mapping[str, str], *names: str) -> str | None:
    """Return the first of `names` that is set to something, without the space around it."""
    for name in names:
        if value := environment.get(name, "").strip():
            return value
    return None


class ProviderVariables(msgspec.Struct, frozen=True, kw_only=True):
    """Which variables users already have for a provider; the first one that is set counts."""

    keys: tuple[str, ...] = ()
    key_header: str = ""
    """The header that the key is sent in."""
    base_url: tuple[str, ...] = ()
    token: tuple[str, ...] = ()
    """Variables for a token that is sent instead of a key."""
    more: dict[str, tuple[str, ...]] = {}
    """The `VendorFields` that the provider takes, and the variables of each."""
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
        """Read the text; raises ValueError with what is accepted, where it is not any text."""
        kinds = get_args(self.declared.kind) or (self.declared.kind,)
        if bool in kinds:
            if text.lower() not in {*_ON, *_OFF}:
                raise ValueError(f"{', '.join(_ON)} or {', '.join(_OFF)}")
            return text.lower() in _ON
        if int in kinds or float in kinds:
            try:
                return int(text) if int in kinds else float(text)
            except ValueError:
                raise ValueError("a whole number" if int in kinds else "a number") from None
        words = allowed_words(self.declared.kind)
        if words and writable(text) != text:  # no text: it cannot even be compared with them
            raise ValueError(f"one of {', '.join(words)}")
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
    chain.from_iterable(
        _variables_in(kind) for kind in (AgentDefaults, Settings, RuntimeSettings, PoolSettings)
    )
)
"""The variables that set an option, by their names without the prefix."""

LOCATION_VARIABLES: Mapping[str, Variable] = dict(_variables_in(FileLocations))
"""The variables that say where files are, by their names without the prefix."""
_warned_of: set[str] = set()


def _warn_of_former_names(variables: Mapping[str, str]) -> None:
    names = {name for name in variables if name.startswith(_FORMER_PREFIX)} - _warned_of
    current = {*VARIABLES, *LOCATION_VARIABLES}
    for name in sorted(names):
        new = name.removeprefix(_FORMER_PREFIX)
        if new in current and read(variables, name):
            _warned_of.add(name)
            _logger.warning("%s is not read; the variable is %s now", name, PREFIX + new)


_LOCATIONS = {variable.path: PREFIX + name for name, variable in LOCATION_VARIABLES.items()}


_NONE: Mapping[str, ProviderVariables] = MappingProxyType({})


class ProviderEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says of one provider."""

    key_variable: str | None = None
    """The variable that holds the key; never its value."""
    token_variable: str | None = None
    """The variable that holds a token; never its value."""
    base_url: str | None = None
    more: dict[str, str] = {}
    """Values of `VendorFields`, by field."""


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

    @property
    def key_headers(self) -> frozenset[str]:
        """The headers in which providers get their keys, in lower case."""
        return frozenset(variables.key_header.lower() for variables in self.providers.values())

    def get(self, *names: str) -> str | None:
        """Return the first of `names` that is set to something."""
        return read(self.variables, *names)

    def location(self, name: str) -> str | None:
        """Return what is set for a field of `FileLocations`."""
        return self.get(_LOCATIONS[name])

    def options(self) -> dict[str, str]:
        """Return which variables of ours are set, by option path."""
        return {
            variable.path: PREFIX + name
            for name, variable in VARIABLES.items()
            if self.get(PREFIX + name) is not None
        }

    def unread(self) -> dict[str, str]:
        """Return the variables with our prefix that nothing reads, and what may have been meant."""
        current = {*VARIABLES, *LOCATION_VARIABLES}
        ours = {name for name in self.variables if name.startswith(PREFIX) and self.get(name)}
        names = sorted(name.removeprefix(PREFIX) for name in ours)
        return {
            PREFIX + name: meant_name(name, current, prefix=PREFIX)
            for name in names
            if name not in current
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
            except ValueError as error:
                raise ConfigError(
                    ErrorCode.CONFIG_INVALID, f"{PREFIX}{name} must be {error}, not {text!r}"
                ) from None
            *tables, last = variable.path.split(".")
            inner = values
            for table in tables:
                inner = inner.setdefault(table, {})
            inner[last] = value
        return values

    def provider(self, name: str) -> ProviderEnvironment:
        """Return what is set for a provider that has variables of its own."""
        row = self.providers.get(name, ProviderVariables())
        base_url = self.get(*row.base_url)
        more = {field: self.get(*variables) for field, variables in row.more.items()}
        return ProviderEnvironment(
            key_variable=self._first_set(row.keys),
            token_variable=self._first_set(row.token),
            base_url=row.read_url(base_url) if row.read_url and base_url else base_url,
            more={field: value for field, value in more.items() if value is not None},
        )

    def providers_with_keys(self) -> tuple[str, ...]:
        """Return the providers for which a key is set, the default one first."""
        return tuple(
            name for name, variables in self.providers.items() if self._first_set(variables.keys)
        )

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

    `config_dir` goes before HAPTERA_CONFIG_DIR; HAPTERA_HOME puts everything under one roof.
    `platform` is `sys.platform`.
    """
    single = environment.location("home")
    if single is not None:
        places = _under(Path(single).expanduser())
    elif platform == "win32":
        places = _windows(environment, home)
    else:
        places = _unix(environment, home, platform=platform)
    chosen = config_dir or environment.location("config_dir")
    if chosen is None:
        return places
    return msgspec.structs.replace(places, config=Path(chosen).expanduser())


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
    # The XDG variables count on macOS, too: users who set them there mean them.
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
