"""The user's configuration file: read, checked and turned into values.

An error names the file, the line and the field. The file never holds a secret: keys are named by
where they are. A user who can write the file decides where keys are sent, so a file that others can
write is refused.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from haptera.access.config.environment import Environment, locate
from haptera.access.config.provider_urls import url_fault
from haptera.access.config.schema import (
    HOW_TO_NAME_A_KEY,
    MODEL_FIELDS,
    KeyReference,
    McpServerEntry,
    ModelEntry,
    PriceEntry,
    ProviderEntry,
    RatesEntry,
    without_decimals,
)
from haptera.access.config.toml_lines import key_lines, line_of
from haptera.kernel.blocks.permission_rules.rules import ACTIONS, parse_rule
from haptera.kernel.blocks.pricing import Price, PriceList, PriceTier, Rates
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import Json, JsonObject, toml_words
from haptera.model.late_names import late_module
from haptera.model.settings import ModelStep, PoolSettings, RuntimeSettings, Settings
from haptera.model.tools import SERVER_NAME
from haptera.model.vendors import split_model
from haptera.options.checks import KeyPath, checked_table, dotted, refuse_unknown
from haptera.options.merging import check_values
from haptera.options.wording import unknown_name

T = TypeVar("T")

SECTIONS = ("defaults", "runtime", "providers", "models", "fallbacks", "prices", "mcpServers")
LARGEST_CONFIG_FILE = 1 << 20
_MOST_STEPS = 50
_KEY_NAME = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
# `tomllib` takes time in the square of the number of names.
_DEEP_KEY = rf"(?m)(?:^|[\[{{,])[ \t]*+{_KEY_NAME}(?:[ \t]*+\.[ \t]*+{_KEY_NAME}){{{_MOST_STEPS}}}"
_OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH
_SECRET_FIELDS = frozenset({"api_key", "apikey", "auth_token", "password", "secret", "token"})
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})
"""Headers that hold a secret for any receiver; providers have their own beside them."""
_HOW_TO_NAME_A_HEADER = (
    'say where the secret is instead, which for a header is a variable: { env = "VARIABLE" }'
)
_HOW_TO_NAME_A_VARIABLE = 'say which variable of yours holds the secret: { env = "VARIABLE" }'
_TELLING_NAME = r"(?i)(token|secret|passw(or)?d|credentials?|(api|access|auth)_?key)$"
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NO_HEADER = r"[\r\n\x00]"


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a file says; without a file, nothing."""

    path: Path | None = None
    defaults: JsonObject = {}
    """Settings and agent defaults, as checked plain values."""
    runtime: JsonObject = {}
    """How sessions are held, and how many a pool keeps open."""
    providers: dict[str, ProviderEntry] = {}
    models: dict[str, ModelEntry] = {}
    fallbacks: dict[str, tuple[ModelStep, ...]] = {}
    """By alias or `provider/model`; `default` is for every other one."""
    prices: dict[str, PriceList] = {}
    mcp_servers: dict[str, McpServerEntry] = {}
    """By name; as they stand in the file, those that are disabled included."""
    lines: dict[KeyPath, int] = {}
    find_models: Callable[[str], Sequence[str]] = lambda _: ()
    """Finds the full names of models that may be meant by a name without a provider."""

    def error(self, path: KeyPath, message: str) -> ConfigError:
        """Make the error for a field of this file: it names the file, the line and the field."""
        line = line_of(self.lines, path)
        where = f"{self.path or 'configuration'}{f', line {line}' if line else ''}"
        return ConfigError(ErrorCode.CONFIG_INVALID, f"{where}: {dotted(path)}: {message}")


def user_config(
    environment: Environment,
    *,
    cwd: Path,
    home: Path,
    platform: str,
    config_dir: str | os.PathLike[str] | None = None,
    config_path: str | os.PathLike[str] | None = None,
) -> ConfigFile:
    """Read the user's file.

    A file named by `config_path` or HAPTERA_CONFIG_PATH must exist; the one in the folder of
    `config_dir`, HAPTERA_CONFIG_DIR or the platform need not. Relative paths are taken from `cwd`.
    """
    path, required = user_config_path(
        environment,
        cwd=cwd,
        home=home,
        platform=platform,
        config_dir=config_dir,
        config_path=config_path,
    )
    return load_config(path, required=required, key_headers=environment.key_headers)


def user_config_path(
    environment: Environment,
    *,
    cwd: Path,
    home: Path,
    platform: str,
    config_dir: str | os.PathLike[str] | None = None,
    config_path: str | os.PathLike[str] | None = None,
) -> tuple[Path, bool]:
    """Return where the user's file is, and whether it must exist; see `user_config`."""
    # A folder that the caller gives goes before a file that the environment names.
    named = config_path or (None if config_dir else environment.location("config_path"))
    if named is not None:
        return cwd / Path(named).expanduser(), True
    folder = Path(config_dir) if config_dir is not None else None
    folders = locate(environment, home=home, platform=platform, config_dir=folder)
    return cwd / folders.config_file, False


def load_config(
    path: Path, *, required: bool = False, key_headers: frozenset[str] = frozenset()
) -> ConfigFile:
    """Read the user's file; one that is not there says nothing, unless it is `required`.

    Raises CONFIG_MISSING for a required file that is not there, CONFIG_INVALID for a wrong one.
    """
    try:
        with path.open("rb") as file:
            _refuse_shared(path, os.fstat(file.fileno()))
            # One byte more tells that the file is too large.
            content = file.read(LARGEST_CONFIG_FILE + 1)
    except FileNotFoundError:
        if not required:
            return ConfigFile()
        raise ConfigError(
            ErrorCode.CONFIG_MISSING, f"the configuration file {path} does not exist"
        ) from None
    except OSError as error:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"the configuration file {path} cannot be read: {error.strerror}",
        ) from error
    if len(content) > LARGEST_CONFIG_FILE:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"{path} is larger than {LARGEST_CONFIG_FILE} bytes"
        )
    try:
        # Editors on Windows put a byte order mark in front, which TOML does not allow.
        return parse_config(content.decode("utf-8-sig"), path=path, key_headers=key_headers)
    except UnicodeDecodeError:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{path} is not UTF-8 text") from None


def parse_config(
    text: str, *, path: Path | None = None, key_headers: frozenset[str] = frozenset()
) -> ConfigFile:
    """Check a file's text; raises CONFIG_INVALID for the first thing that is wrong in it.

    `key_headers` are the headers in which providers get their keys, in lower case.
    """
    tomllib = late_module("tomllib")
    where = path or "the configuration"
    if re.search(_DEEP_KEY, text):
        message = f"{where} has a key of more than {_MOST_STEPS} names"
        raise ConfigError(ErrorCode.CONFIG_INVALID, message)
    try:
        # Prices are kept exactly as they are written; `without_decimals` is for everything else.
        raw = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{where} is not valid TOML: {error}") from None
    nothing = ConfigFile(path=path, lines=key_lines(text))
    return _Reader(raw, nothing, secret_headers=_SECRET_HEADERS | key_headers).read()


def _refuse_shared(path: Path, facts: os.stat_result) -> None:
    """Refuse a file that another user could have written."""
    if os.name != "posix":
        return
    if facts.st_mode & _OTHERS_CAN_WRITE:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"{path} can be written by others, who could redirect your keys: chmod 600 {path}",
        )
    if facts.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{path} belongs to another user")


class _Reader:
    """Turns the parsed tables of one file into values."""

    def __init__(
        self, raw: Mapping[str, Any], nothing: ConfigFile, *, secret_headers: frozenset[str]
    ) -> None:
        self._raw = raw
        self._nothing = nothing
        self._secret_headers = secret_headers

    def read(self) -> ConfigFile:
        for name in self._raw:
            if name not in SECTIONS:
                raise self._complain((name,), self._place_of(name))
        return msgspec.structs.replace(
            self._nothing,
            defaults=self._read_defaults(),
            runtime=self._read_runtime(),
            providers=self._each("providers", self._read_provider),
            models=self._each("models", self._read_model),
            fallbacks=self._each("fallbacks", self._read_fallback),
            prices=self._each("prices", self._read_price),
            mcp_servers=self._each("mcpServers", self._read_server),
        )

    def _place_of(self, name: str) -> str:
        """Say in which table something belongs that stands outside of all, if it is known."""
        if name in {*AgentDefaults.__struct_fields__, *Settings.__struct_fields__}:
            table = "defaults"
        elif name in {*RuntimeSettings.__struct_fields__, *PoolSettings.__struct_fields__}:
            table = "runtime"
        else:
            return unknown_name(name, SECTIONS)
        is_table = isinstance(self._raw[name], dict)
        return f"belongs in the table [{table}]" + (f": write [{table}.{name}]" if is_table else "")

    def _complain(self, path: KeyPath, message: str) -> ConfigError:
        return self._nothing.error(path, toml_words(message))

    def _table(self, path: KeyPath, value: Json) -> JsonObject:
        if not isinstance(value, dict):
            raise self._complain(path, "must be a table")
        return value

    def _each(self, section: str, read: Callable[[KeyPath, Any], T]) -> dict[str, T]:
        table = self._table((section,), self._raw.get(section, {}))
        return {name: read((section, name), value) for name, value in table.items()}

    def _read_defaults(self) -> JsonObject:
        at: KeyPath = ("defaults",)
        values: JsonObject = without_decimals(self._table(at, self._raw.get("defaults", {})))
        self._refuse_plans(at, values)
        check_values(values, (AgentDefaults, Settings), at=at, complain=self._complain)
        self._check_rules((*at, "permissions"), values.get("permissions", {}))
        return values

    def _check_rules(self, at: KeyPath, rules: JsonObject) -> None:
        """Raise for the first permission rule that cannot be understood."""
        for action in ACTIONS:
            for index, text in enumerate(rules.get(action, ())):
                try:
                    parse_rule(text, action)
                except ConfigError as error:
                    raise self._complain((*at, action, index), error.message) from None

    def _read_runtime(self) -> JsonObject:
        at: KeyPath = ("runtime",)
        values: JsonObject = without_decimals(self._table(at, self._raw.get("runtime", {})))
        check_values(values, (PoolSettings, RuntimeSettings), at=at, complain=self._complain)
        return values

    def _refuse_plans(self, at: KeyPath, values: JsonObject) -> None:
        if "fallbacks" in values:
            raise self._complain((*at, "fallbacks"), "belongs in the table [fallbacks]")

    def _read_provider(self, at: KeyPath, value: Json) -> ProviderEntry:
        table = without_decimals(self._table(at, value))
        for field in table.keys() & _SECRET_FIELDS:
            raise self._complain((*at, field), f"write it as key; {HOW_TO_NAME_A_KEY}")
        if isinstance(table.get("key"), str):
            raise self._complain((*at, "key"), HOW_TO_NAME_A_KEY)
        entry = checked_table(table, ProviderEntry, at=at, complain=self._complain)
        self._check_headers((*at, "headers"), entry.headers)
        if entry.base_url is not None and (wrong := url_fault(entry.base_url)):
            raise self._complain((*at, "base_url"), wrong)
        return entry

    def _check_headers(self, at: KeyPath, headers: Mapping[str, str | KeyReference]) -> None:
        """Raise for the first header that is none, or that holds a secret."""
        for name, content in headers.items():
            is_secret = name.lower() in self._secret_headers
            if wrong := _header_fault(name, content, is_secret=is_secret):
                raise self._complain((*at, name), wrong)

    def _read_server(self, at: KeyPath, value: Json) -> McpServerEntry:
        table = without_decimals(self._table(at, value))
        if not re.fullmatch(SERVER_NAME, str(at[-1])):
            raise self._complain(at, "must be named by 1 to 32 letters, digits, '-' and single '_'")
        if isinstance(table.get("token"), str):
            raise self._complain((*at, "token"), HOW_TO_NAME_A_KEY)
        entry = checked_table(table, McpServerEntry, at=at, complain=self._complain)
        if (entry.command is None) == (entry.url is None):
            raise self._complain(at, "give either command or url")
        self._check_headers((*at, "headers"), entry.headers)
        for name, content in entry.env.items():
            if wrong := _variable_fault(name, content):
                raise self._complain((*at, "env", name), wrong)
        # The URL of an MCP server may have a query, which that of a provider must not.
        if entry.url is not None and (wrong := url_fault(entry.url.partition("?")[0])):
            raise self._complain((*at, "url"), wrong)
        return entry

    def _read_model(self, at: KeyPath, value: Json) -> ModelEntry:
        table: JsonObject = without_decimals(self._table(at, value))
        own = {n: v for n, v in table.items() if n in MODEL_FIELDS}
        settings = {n: v for n, v in table.items() if n not in own}
        self._refuse_plans(at, settings)
        check_values(settings, (Settings,), at=at, complain=self._complain)
        entry = checked_table(
            own | {"settings": settings}, ModelEntry, at=at, complain=self._complain
        )
        if "/" in str(at[-1]):
            raise self._complain(at, "a short name must not contain a slash")
        if not _names_a_model(entry.model):
            raise self._complain((*at, "model"), 'must be written as "provider/model"')
        return entry

    def _read_fallback(self, at: KeyPath, value: Json) -> tuple[ModelStep, ...]:
        if not isinstance(value, list):
            raise self._complain(at, "must be a list of models")
        tables = [{"model": step} if isinstance(step, str) else step for step in value]
        return tuple(
            checked_table(table, ModelStep, at=(*at, index), complain=self._complain)
            for index, table in enumerate(tables)
        )

    def _read_price(self, at: KeyPath, value: Json) -> PriceList:
        if not _names_a_model(str(at[-1])):
            raise self._complain(at, 'must be named "provider/model"')
        # Both before the types are checked, whose error leads to the table and not to the number.
        refuse_unknown(value, PriceEntry, at=at, complain=self._complain)
        self._refuse_negative(value, at)
        entry = checked_table(self._table(at, value), PriceEntry, at=at, complain=self._complain)
        tiers = sorted(entry.tiers, key=lambda tier: tier.above)
        price = Price(
            rates=_rates(entry),
            tiers=tuple(PriceTier(above=tier.above, rates=_rates(tier)) for tier in tiers),
        )
        return (price,)

    def _refuse_negative(self, value: Json, at: KeyPath) -> None:
        """Raise for the first number below zero, at any depth."""
        if isinstance(value, dict | list):
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            for step, each in inside:
                self._refuse_negative(each, (*at, step))
        elif isinstance(value, Decimal | int) and not (Decimal(value).is_finite() and value >= 0):
            raise self._complain(at, "must be zero or more")


def _rates(entry: RatesEntry) -> Rates:
    return Rates(**{name: getattr(entry, name) for name in Rates.__struct_fields__})


def _header_fault(name: str, content: str | KeyReference, *, is_secret: bool) -> str | None:
    """Say what is wrong with a header; None if nothing is."""
    if not re.fullmatch(_HEADER_NAME, name):
        return "is not the name of a header"
    if isinstance(content, str):
        if is_secret:
            return f"secrets are not written into this file; {_HOW_TO_NAME_A_HEADER}"
        return "holds a line break" if re.search(_NO_HEADER, content) else None
    return None if content.env is not None else _HOW_TO_NAME_A_HEADER


def _variable_fault(name: str, content: str | KeyReference) -> str | None:
    """Say what is wrong with a variable of an MCP server; None if nothing is."""
    if isinstance(content, str):
        if re.search(_TELLING_NAME, name):
            return f"secrets are not written into this file; {_HOW_TO_NAME_A_VARIABLE}"
        return None
    return None if content.env is not None else _HOW_TO_NAME_A_VARIABLE


def _names_a_model(name: str) -> bool:
    return all(split_model(name))
