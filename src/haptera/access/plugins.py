"""Plugins: what installed packages offer by entry points, under names that are no row of ours.

They are listed from the metadata of the installed distributions, without importing any of their
code. A plugin is imported when it is used under a name that the program or the user's own
configuration has named. Names in a project's file, in a log or in a request to a server are not
enough: those who write them must not choose which code runs.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from haptera.kernel.blocks.tool_registry.registry import ToolInput
from haptera.kernel.blocks.tool_registry.tool import Tool
from haptera.model.errors import AgentError, ConfigError, ErrorCode
from haptera.model.late_names import late_module, on_first_use
from haptera.options.wording import meant_name
from haptera.ports.model_client import ModelClient, missing_members
from haptera.ports.native_agent import NativeAgent
from haptera.ports.session_store import Store

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from haptera.formats import formats
    from haptera.formats.formats import Format
else:  # few programs export
    formats = on_first_use("haptera.formats.formats")

PluginKind: TypeAlias = Literal["providers", "native_agents", "stores", "formats", "tools"]
PLUGIN_KINDS: tuple[PluginKind, ...] = get_args(PluginKind)
BUILT_IN_TOOLS = frozenset(
    [
        *("read", "write", "edit", "list", "glob", "grep", "shell", "read_output", "todo"),
        *("web_fetch", "recall", "load_skill"),
    ]
)
_NOUNS: dict[PluginKind, str] = {
    "providers": "provider",
    "native_agents": "provider",
    "stores": "store",
    "formats": "format",
    "tools": "tool",
}
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ImportError)
"""What reading metadata raises that is not as it should be."""
_AGENT_MEMBERS = ("provider", "open", "resume_session", "prompt", "find", "read", "close")
_STORE_MEMBERS = ("log", "index", "leases", "inbox", "blobs", "search", "close")


def group_of(kind: PluginKind) -> str:
    """Return the entry-point group in which packages offer plugins of a kind."""
    return f"haptera.{kind}"


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """What an installed distribution offers under a name."""

    name: str
    kind: PluginKind
    distribution: str
    version: str
    target: str
    """The object that it refers to, as `module:attribute`."""

    @property
    def origin(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}"


def installed_plugins(apart: Iterable[Path]) -> tuple[Plugin, ...]:
    """Return what installed distributions offer, but for those in the folders `apart`.

    Reads metadata only. A distribution whose metadata cannot be read offers nothing.
    """
    metadata = late_module("importlib.metadata")
    plugins: list[Plugin] = []
    seen: set[str] = set()
    for distribution in metadata.distributions(path=_search_path(apart)):
        offered = _offered_by(distribution)
        # As for an import, the first distribution of a name on the path is the one that counts.
        name = re.sub(r"[-_.]+", "-", offered[0].distribution).lower() if offered else ""
        if name not in seen:
            plugins += offered
            seen |= {name} if name else set()
    return tuple(sorted(plugins, key=lambda each: (PLUGIN_KINDS.index(each.kind), each.name)))


def _offered_by(distribution: "Distribution") -> list[Plugin]:
    kinds = {group_of(kind): kind for kind in PLUGIN_KINDS}
    try:
        points = [each for each in distribution.entry_points if each.group in kinds]
        return [
            Plugin(
                name=each.name,
                kind=kinds[each.group],
                distribution=str(distribution.metadata["Name"]),
                version=str(distribution.version),
                target=each.value,
            )
            for each in points
        ]
    except _DAMAGED:
        return []


def _search_path(apart: Iterable[Path]) -> list[str]:
    """Return the part of `sys.path` where distributions are looked for.

    The folders `apart` are left out with all that is in them, but not the folder that the running
    interpreter installs packages into: a project often has its environment in its own folder.
    """
    refused = [os.path.realpath(folder) for folder in apart]
    own = set(_own_folders())
    folders = dict.fromkeys(os.path.realpath(entry) for entry in sys.path)
    return [each for each in folders if each in own or not _is_in(each, refused)]


def _own_folders() -> Iterator[str]:
    site = late_module("site")
    for folder in (*site.getsitepackages(), site.getusersitepackages()):
        yield os.path.realpath(folder)


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


class Plugins:
    """The plugins that one agent may use. Owns which names load one; imports each when it is used.

    A name that is taken never finds a plugin: those of built-in providers, of tables of the
    configuration file that say where a provider is, and of what the program passed as an object.
    """

    def __init__(self, *, is_on: bool, apart: Sequence[Path], taken: Iterable[str]) -> None:
        self.is_on = is_on
        self._apart = list(apart)
        self._taken = set(taken)
        self._named: set[str] = set()
        self._is_restricted = False

    def keep_apart(self, folder: Path) -> None:
        """Use nothing that is in a folder: the workspace of the agent."""
        self._apart.append(folder)
        self.__dict__.pop("installed", None)

    def take(self, providers: Iterable[str]) -> None:
        """Find no plugin under these names: the program has passed objects for them."""
        self._taken |= set(providers)

    def admit(self, providers: Iterable[str]) -> None:
        """Let plugins be loaded as these providers, which the program or its user named.

        Does nothing once `restrict` was called: then those who name a provider are others.
        """
        if not self._is_restricted:
            self._named |= set(filter(None, providers))

    def restrict(self) -> None:
        """Load no plugin from now on but those that were named before."""
        self._is_restricted = True

    @cached_property
    def installed(self) -> tuple[Plugin, ...]:
        """What is installed; nothing while plugins are off. The metadata is read once."""
        return installed_plugins(self._folders_apart()) if self.is_on else ()

    def _folders_apart(self) -> list[Path]:
        # The folder of the process, too: an agent may be told another one.
        return [*self._apart, Path(os.path.realpath(os.curdir))]

    def find(self, kind: PluginKind, name: str) -> Plugin | None:
        """Return the plugin of a name; None if no installed distribution offers it.

        Raises:
            ConfigError: CONFIG_INVALID if two offer the name.

        """
        kinds = {kind} if _NOUNS[kind] != "provider" else {"providers", "native_agents"}
        offered = [each for each in self.installed if each.kind in kinds and each.name == name]
        if len(offered) > 1:
            offers = " and ".join(f"{each.origin} ({group_of(each.kind)})" for each in offered)
            raise _unusable(offered[0], f"it is offered by {offers}; uninstall all but one of them")
        return next((each for each in offered if each.kind == kind), None)

    def check_provider(self, name: str) -> None:
        """Refuse a plugin that was not admitted; a provider that is no plugin passes.

        Raises:
            ConfigError: CONFIG_INVALID saying who may name it.

        """
        if not name or name in self._taken or name in self._named:
            return
        plugin = self.find("providers", name) or self.find("native_agents", name)
        if plugin is not None:
            raise _unusable(
                plugin,
                f"it is a plugin, of {plugin.origin}, and a plugin is loaded only if the program "
                "or the user's own configuration names it, not by a project's file, a stored "
                f"session or a request to a server. Pass model='{name}/<model>' to Agent, or write "
                f"[providers.{name}] into the user's configuration file",
            )

    def is_native(self, provider: str) -> bool:
        """Whether a named plugin is an agent that keeps its own session."""
        if provider in self._taken or provider not in self._named:
            return False
        return any(
            each.kind == "native_agents" and each.name == provider for each in self.installed
        )

    def native_providers(self) -> list[str]:
        """Return the named plugins that are agents with a session of their own."""
        return sorted(filter(self.is_native, self._named))

    def make_client(self, provider: str) -> ModelClient | None:
        """Return the model client that a plugin makes; None if no plugin has the name.

        Raises:
            ConfigError: CONFIG_INVALID if it may not be loaded, or cannot be used.

        """
        self.check_provider(provider)
        if provider in self._taken or (plugin := self.find("providers", provider)) is None:
            return None
        client: Any = self._made(plugin)
        _check_members(plugin, client, missing_members(client))
        checked: ModelClient = client
        return checked

    def make_agent(self, provider: str) -> NativeAgent | None:
        """Return the native agent that a plugin makes; None if no plugin has the name.

        Raises:
            ConfigError: CONFIG_INVALID if it may not be loaded, or cannot be used.

        """
        self.check_provider(provider)
        if provider in self._taken or (plugin := self.find("native_agents", provider)) is None:
            return None
        agent: Any = self._made(plugin)
        _check_members(plugin, agent, _missing(agent, _AGENT_MEMBERS))
        checked: NativeAgent = agent
        return checked

    def make_store(self, name: str, location: str, *, owner: str) -> Store:
        """Return the store that a plugin makes for a location.

        Raises:
            ConfigError: CONFIG_INVALID if no plugin has the name, or it cannot be used.

        """
        plugin = self.find("stores", name)
        if plugin is None:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{name!r} is not a store")
        store: Any = self._made(plugin, location, owner=owner)
        _check_members(plugin, store, _missing(store, _STORE_MEMBERS))
        checked: Store = store
        return checked

    def format_named(self, name: str) -> "Format | None":
        """Return the format that a plugin describes; None if no plugin has the name.

        Raises:
            ConfigError: CONFIG_INVALID if it may not be loaded, or cannot be used.

        """
        if (
            name in {formats.ARCHIVE, *formats.FORMATS}
            or (plugin := self.find("formats", name)) is None
        ):
            return None
        if self._is_restricted:
            raise _unusable(plugin, "it is a plugin, which no request to a server can load")
        loaded = self._loaded(plugin)
        if not isinstance(loaded, formats.Format):
            raise _unusable(plugin, f"{_place(plugin)} is no Format")
        return loaded

    def tools(self, names: Collection[str]) -> list[ToolInput]:
        """Return the tools of plugins; none while plugins are off.

        Raises:
            ConfigError: CONFIG_INVALID if no plugin has a name, or one cannot be used.

        """
        return [each for name in names for each in self._tools_of(name)] if self.is_on else []

    def _tools_of(self, name: str) -> Sequence[ToolInput]:
        if name in BUILT_IN_TOOLS:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"tool_plugins: {name!r} is a built-in tool, which no plugin can replace",
            )
        plugin = self.find("tools", name)
        if plugin is None:
            names = [each.name for each in self.installed if each.kind == "tools"]
            reason = f"tool_plugins: no installed package offers a tool {name!r}"
            raise ConfigError(ErrorCode.CONFIG_INVALID, reason + meant_name(name, names))
        loaded: Any = self._loaded(plugin)
        tools: Sequence[ToolInput] = loaded if isinstance(loaded, list | tuple) else (loaded,)
        for each in tools:
            own = each.name if isinstance(each, Tool) else getattr(each, "__name__", "")
            if own in BUILT_IN_TOOLS:
                raise _unusable(plugin, f"{plugin.origin} has a tool {own!r}, which is built in")
        return tools

    def _made(self, plugin: Plugin, *arguments: object, **named: object) -> object:
        make: Any = self._loaded(plugin)
        try:
            result: object = make(*arguments, **named)
        except AgentError:
            raise
        except Exception as error:
            # The message names the package but not what it raised, which may quote a key.
            raise _unusable(plugin, f"{_place(plugin)} raised {type(error).__name__}") from error
        return result

    def _loaded(self, plugin: Plugin) -> object:
        self._refuse_code_apart(plugin)
        metadata = late_module("importlib.metadata")
        try:
            point = metadata.EntryPoint(plugin.name, plugin.target, group_of(plugin.kind))
            loaded: object = point.load()
        except Exception as error:
            raise _unusable(plugin, f"{_place(plugin)} raised {type(error).__name__}") from error
        return loaded

    def _refuse_code_apart(self, plugin: Plugin) -> None:
        """Refuse code that would be imported from a folder apart, wherever its metadata is.

        Python looks in the working folder first in some programs, and a package can be installed so
        that its code stays in a folder of its author.
        """
        package = re.split(r"[.:\s]", plugin.target, maxsplit=1)[0]
        try:
            spec = late_module("importlib.util").find_spec(package)
        except (ImportError, ValueError):
            spec = None
        if spec is None:  # the import will say so
            return
        refused = [os.path.realpath(folder) for folder in self._folders_apart()]
        own = list(_own_folders())
        for each in (spec.origin, *(spec.submodule_search_locations or ())):
            place = os.path.realpath(each or "/")
            if each and _is_in(place, refused) and not _is_in(place, own):
                reason = f"the code of {plugin.origin} is in {place}, in the working folder"
                raise _unusable(plugin, f"{reason} or the workspace, from which none is loaded")


def names_offered_twice(plugins: Iterable[Plugin]) -> frozenset[tuple[str, str]]:
    """Return the names that more than one plugin offers, each with what it is a name of."""
    counts = Counter((_NOUNS[each.kind], each.name) for each in plugins)
    return frozenset(key for key, count in counts.items() if count > 1)


def noun_of(kind: PluginKind) -> str:
    """Return what a plugin of a kind is to its user."""
    return _NOUNS[kind]


def _missing(value: object, members: Iterable[str]) -> list[str]:
    return [name for name in members if not hasattr(value, name)]


def _check_members(plugin: Plugin, value: object, missing: Sequence[str]) -> None:
    if missing:
        raise _unusable(plugin, f"what {_place(plugin)} made has no {', '.join(missing)}")
    provider = getattr(value, "provider", plugin.name)
    if provider != plugin.name:
        raise _unusable(plugin, f"what {_place(plugin)} made calls itself {provider!r}")


def _place(plugin: Plugin) -> str:
    return f"{plugin.target} of {plugin.origin}"


def _unusable(plugin: Plugin, reason: str) -> ConfigError:
    noun = _NOUNS[plugin.kind]
    return ConfigError(
        ErrorCode.CONFIG_INVALID,
        f"the {noun} {plugin.name!r} cannot be used: {reason}",
        provider=plugin.name if noun == "provider" else None,
    )
