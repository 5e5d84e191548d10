"""Configuration: what arguments, environment and files come to, in that order."""

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import ConfigurationSources, PathInput
from haptera.access.assembly.store_strings import store_fault
from haptera.access.auth.credential_storage import CredentialStorage
from haptera.access.config.connections import ProviderConnection, connection_to
from haptera.access.config.environment import (
    Environment,
    Locations,
    ProviderVariables,
    locate,
    process_environment,
)
from haptera.access.config.file import ConfigFile, user_config
from haptera.access.config.kept_decisions import KeptDecisions
from haptera.access.config.project_file import ProjectFile, find_project_file
from haptera.access.config.resolution import (
    Resolved,
    check_arguments,
    fallback_plan,
    model_named,
    resolve,
)
from haptera.access.config.schema import ModelEntry
from haptera.access.plugins import Plugins
from haptera.kernel.blocks.permission_rules.decisions import PermissionRules
from haptera.kernel.blocks.permission_rules.rules import ACTIONS, Rule, parse_rule
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject, writable
from haptera.model.settings import SETTINGS_WITH_MODELS, Settings, models_in
from haptera.model.vendors import LOCAL, Protocol, names_a_file, split_model
from haptera.ports.model_client import ModelCatalogue
from haptera.providers.catalogue import KnownModels, shipped_catalogue
from haptera.providers.vendors import VENDORS, ollama_url, vendor_of
from haptera.system.clock import Clock
from haptera.system.logs import scrubbed_logger
from haptera.system.own_places import OwnPlaces, UserFolders, hold_places

EMBEDDED_MODEL = f"{LOCAL}/{VENDORS[LOCAL].default_model}"


class ConfigurationFolders:
    """Where configuration is on this machine, and what its user decided about projects."""

    def __init__(self, sources: ConfigurationSources) -> None:
        variables = sources.environment
        self.environment = Environment(
            process_environment() if variables is None else variables, provider_variables()
        )
        self.cwd = Path.cwd() if sources.cwd is None else Path(sources.cwd)
        if sources.cwd is not None:
            check_folder(self.cwd, option="cwd")
        # The variables that were given, not those of the process.
        self.home = Path(self.environment.get("HOME") or Path.home())
        self.folders: Locations = locate(self.environment, home=self.home, platform=sys.platform)
        """The user's folders on this machine."""
        self.decisions = KeptDecisions(self.folders.data)
        self.credentials = CredentialStorage(self.folders.data)
        chosen = sources.config_dir
        self.config_folder = self.folders.config if chosen is None else Path(chosen).expanduser()
        """Where the user's own files are."""
        file = sources.config_path or self.environment.location("config_path")
        hold_places(self, self._own_places(file))

    def _own_places(self, file: PathInput | None) -> OwnPlaces:
        """Return what tools must stay out of, whatever folder they are given."""
        found = self.folders
        folders = [self.config_folder, found.config, found.data, found.state, found.cache]
        if file is not None:
            folders.append(self.cwd / Path(file).expanduser())
        user = UserFolders(
            home=str(self.home.absolute()),
            **{
                kind: self.environment.get(f"XDG_{kind.upper()}_HOME")
                for kind in ("config", "data", "state", "cache")
            },
        )
        return OwnPlaces(
            folders=tuple(dict.fromkeys(str(folder.absolute()) for folder in folders)),
            users=(user,),
        )

    @property
    def model_folder(self) -> Path:
        """Where weights of local models are kept."""
        return self.folders.cache / "models"


def check_folder(path: Path, *, option: str) -> None:
    """Refuse a folder that does not exist.

    Raises:
        ConfigError: CONFIG_INVALID naming the option.

    """
    if not path.is_dir():
        fault = "is not a folder" if path.exists() else "does not exist"
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"option {option!r}: {str(path)!r} {fault}; name a folder that exists",
        )


def find_project(sources: ConfigurationSources) -> tuple[ConfigurationFolders, ProjectFile | None]:
    """Find the file of the project, whatever the rest of the configuration says."""
    folders = ConfigurationFolders(sources)
    return folders, find_project_file(folders.cwd, folders.decisions)


class ModelBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Which models the sessions of others may not use."""

    refused: frozenset[str] = frozenset()
    """Providers whose models run tools of their own, for sessions without tools."""
    paths: frozenset[str] = frozenset()
    """The files that a local model may be named by."""

    def check(self, model: str) -> None:
        """Refuse a model by its name alone: nothing is looked up or opened.

        Raises:
            ConfigError: CONFIG_INVALID saying why.

        """
        provider, name = split_model(model)
        if provider in self.refused:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the model {model!r} is run by an agent with tools of its own, and this owner may "
                "use no tools; choose another model",
                provider=provider,
            )
        if provider == LOCAL and names_a_file(name) and name not in self.paths:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the model {model!r} is the path of a file; this owner may name only local models "
                "of the catalogue, and files that the server lists",
                provider=provider,
            )


class Configuration(ConfigurationFolders):
    """What holds for one agent, and where its providers are."""

    bounds: ModelBounds | None = None
    """Which models its sessions may not use; None: any may be used."""

    def __init__(self, arguments: JsonObject, sources: ConfigurationSources) -> None:
        super().__init__(sources)
        file = user_config(
            self.environment,
            cwd=self.cwd,
            home=self.home,
            platform=sys.platform,
            config_dir=sources.config_dir,
            config_path=sources.config_path,
        )
        self.file: ConfigFile = replace(file, find_models=shipped_catalogue().full_names)
        self.project_file: ProjectFile | None = find_project_file(self.cwd, self.decisions)
        project = ConfigFile() if self.project_file is None else self.project_file.config()
        self.resolved = self._with_longest(
            resolve(
                arguments,
                environment=self.environment,
                file=self.file,
                project=project,
            )
        )
        self.permission_rules = PermissionRules(
            [
                *_rules_of(self.file.defaults, "user file"),
                *_rules_of(project.defaults, "project file"),
                *_rules_of(arguments, "program"),
            ]
        )
        self.plugins = self._find_plugins(project)
        if (wrong := store_fault(self.resolved.agent.store, self.plugins)) is not None:
            raise self.fault("store", wrong)
        if self.resolved.agent.log is not None:
            # Only if it was named: the level may be one that the program itself has set.
            scrubbed_logger("haptera").setLevel(self.resolved.agent.log.upper())

    def _find_plugins(self, project: ConfigFile) -> Plugins:
        """Return the plugins, admitting those that anything but the project's file names.

        Raises:
            ConfigError: CONFIG_INVALID if that file names another one.

        """
        resolved, file = self.resolved, self.file
        # The variable turns them off whatever the program says: it is for the one who runs it.
        is_on = resolved.agent.plugins and self.environment.values().get("plugins", True)
        tables = (name for name, table in file.providers.items() if table.kind or table.base_url)
        plugins = Plugins(is_on=is_on, apart=[self.cwd], taken=(*VENDORS, *tables))
        settings = resolved.settings
        named = {
            "model": (settings.model,),
            "fallbacks": tuple(step.model for step in settings.fallbacks),
            "compaction.model": (settings.compaction.model or "",),
            "title_model": (resolved.agent.title_model or "",),
        }
        of_project = {path for path in named if resolved.origin_of(path) == "project"}
        in_plans = (step.model for plan in file.fallbacks.values() for step in plan)
        models = [
            *(model for path in named.keys() - of_project for model in named[path]),
            *(entry.model for entry in file.models.values()),
            *in_plans,
        ]
        plugins.admit((*file.providers, *(split_model(model)[0] for model in models)))
        for path in sorted(of_project):
            for model in named[path]:
                try:
                    plugins.check_provider(split_model(model)[0])
                except ConfigError as error:
                    raise project.error(("defaults", *path.split(".")), error.message) from None
        return plugins

    def fault(self, path: str, message: str) -> ConfigError:
        """Make the error of a setting or an option that is wrong, naming where it was said."""
        origin = self.resolved.origin_of(path)
        if origin == "file":
            return self.file.error(("defaults", *path.split(".")), message)
        variable = self.environment.options().get(path) if origin == "environment" else None
        return ConfigError(ErrorCode.CONFIG_INVALID, f"{variable or f'option {path!r}'}: {message}")

    def _model_named(self, path: str, name: str) -> str:
        """Return the full name of a model that a setting names; see `fault`."""
        try:
            return model_named(name, self.file)
        except ConfigError as error:
            # The setting and its source replace the error, which knows only the name of the model.
            raise self.fault(path, error.message) from None

    @property
    def model(self) -> str:
        """The model that is asked: the one that was named, or the best that a found key allows."""
        if self.resolved.settings.model:
            return self.resolved.settings.model
        return (
            _default_model(self.environment.providers_with_keys())
            # After the keys in variables, which go before a login for one and the same provider,
            # too.
            or _default_model(self.providers_with_logins())
            or EMBEDDED_MODEL
        )

    @property
    def settings(self) -> Settings:
        """What new sessions start with; every model in it by its full name."""
        settings = self.resolved.settings
        mode = "default" if settings.permission_mode == "ask" else settings.permission_mode
        fallbacks = tuple(
            replace(step, model=model_named(step.model, self.file)) for step in settings.fallbacks
        )
        compaction = settings.compaction
        if compaction.model:
            named = self._model_named("compaction.model", compaction.model)
            compaction = replace(compaction, model=named)
        return replace(
            settings,
            model=self.model,
            fallbacks=fallbacks,
            permission_mode=mode,
            compaction=compaction,
        )

    @property
    def ceiling(self) -> Settings:
        """What no setting of a session or a query can exceed."""
        return self.resolved.settings

    def check_models(self, settings: Settings) -> None:
        """Refuse settings that name a model which the sessions may not use: see `ModelBounds`.

        A model of a plugin may be used if its provider was named; see `Plugins`.

        Raises:
            ConfigError: CONFIG_INVALID naming the model.

        """
        for model in models_in(settings):
            if self.bounds is not None:
                self.bounds.check(model)
            self.plugins.check_provider(split_model(model)[0])

    def own_files(self) -> frozenset[str]:
        """Return the files of local models that this configuration itself names."""
        aliases = (entry.model for entry in self.file.models.values())
        own = (*models_in(self.settings), *aliases, self.title_model or "")
        return frozenset(name for provider, name in map(split_model, own) if provider == LOCAL)

    @property
    def project(self) -> str:
        """What new sessions belong to."""
        return self.resolved.agent.project or writable(str(self.cwd))

    @property
    def title_model(self) -> str | None:
        """The model that makes titles, by its full name.

        Raises:
            ConfigError: CONFIG_INVALID when there is no such model.

        """
        named = self.resolved.agent.title_model
        return None if named is None else self._model_named("title_model", named)

    def connection(self, provider: str) -> ProviderConnection:
        """Return the way to a provider."""
        return connection_to(
            provider,
            environment=self.environment,
            file=self.file,
            stored=self.credentials.credentials,
        )

    def protocols_of(self, providers: Iterable[str]) -> dict[str, Protocol]:
        """Return the protocols of providers, by their tables or their names, if they are known."""
        tables, found = self.file.providers, {}
        for provider in providers:
            kind = (tables[provider].kind if provider in tables else None) or provider
            if kind in VENDORS or provider in tables:
                found[provider] = vendor_of(kind).protocol
        return found

    def providers_with_logins(self) -> tuple[str, ...]:
        """Return the known providers for which a credential is stored, the default one first.

        Raises:
            ConfigError: CONFIG_INVALID when others can read the stored credentials.

        """
        stored = self.credentials.credentials()
        return tuple(name for name in VENDORS if name in stored)

    def changed(self, changes: JsonObject) -> JsonObject:
        """Check changed settings, and replace short names of models by what they stand for.

        Raises:
            ConfigError: CONFIG_INVALID naming the setting.

        """
        check_arguments(changes)
        return self.in_full(changes)

    def in_full(self, changes: JsonObject) -> JsonObject:
        """Replace short names of models in checked settings by what they stand for.

        Raises:
            ConfigError: CONFIG_INVALID naming a model that the sessions may not use.

        """
        changes = _plain_mode(changes)
        if name := changes.get("model"):
            # What is named wins over what comes with the short name of a model.
            changes = {**self._stands_for(name), **changes, "model": model_named(name, self.file)}
        compaction = changes.get("compaction") or {}
        if summariser := compaction.get("model"):
            named_compaction = compaction | {"model": model_named(summariser, self.file)}
            changes = {**changes, "compaction": named_compaction}
        if "fallbacks" in changes:
            named = [
                {**step, "model": model_named(step["model"], self.file)}
                for step in changes["fallbacks"]
            ]
            changes = {**changes, "fallbacks": named}
        naming = {name: changes[name] for name in SETTINGS_WITH_MODELS & changes.keys()}
        named_settings = msgspec.convert(naming, Settings)
        self.plugins.admit(split_model(model)[0] for model in models_in(named_settings))
        self.check_models(named_settings)
        return changes

    def _stands_for(self, name: str) -> JsonObject:
        """Return the settings that come with a model by its name in the file."""
        plan = fallback_plan(name, self.file)
        planned: JsonObject = {"fallbacks": msgspec.to_builtins(plan)} if plan else {}
        if (alias := self.file.models.get(name)) is None:
            return planned
        longest = self._longest(alias)
        return planned | ({} if longest is None else {"max_tokens": longest}) | alias.settings

    def _with_longest(self, resolved: Resolved) -> Resolved:
        longest = self._longest(resolved.alias)
        # What was set by name wins over the largest that the model can give.
        if longest is None or resolved.settings.max_tokens:
            return resolved
        settings = msgspec.structs.replace(resolved.settings, max_tokens=longest)
        return msgspec.structs.replace(resolved, settings=settings)

    def _longest(self, alias: ModelEntry | None) -> int | None:
        """Return how much a model is asked for at most, where its protocol demands a number."""
        if alias is None or alias.max_output is None:
            return None
        provider = split_model(alias.model)[0]
        is_demanded = self.protocols_of([provider]).get(provider) == "messages"
        return alias.max_output if is_demanded else None

    def known_models(self, clock: Clock) -> ModelCatalogue:
        """Return what is known of models: the user's own facts first, then the catalogue's."""
        windows = {
            entry.model: entry.context_window
            for entry in self.file.models.values()
            if entry.context_window is not None
        }
        return KnownModels(
            catalogue=shipped_catalogue(),
            clock=clock,
            prices=self.file.prices,
            windows=windows,
            same_as=self._same_models(),
            local_window=_local_window,
        )

    def _same_models(self) -> dict[str, str]:
        """Return which known provider each table of the file is, if it is one.

        A table with a URL of its own is another server, whose prices are not known. At Azure every
        customer has one.
        """
        return {
            name: entry.kind
            for name, entry in self.file.providers.items()
            if entry.kind and (entry.base_url is None or _is_azure(entry.kind))
        }


def _default_model(providers: Iterable[str]) -> str | None:
    """Return the default model of the first provider that has one."""
    found = ((name, VENDORS[name].default_model) for name in providers)
    return next((f"{name}/{model}" for name, model in found if model), None)


def _plain_mode(values: JsonObject) -> JsonObject:
    """Write the permission mode as `default`, also where it was given as `ask`."""
    is_alias = values.get("permission_mode") == "ask"
    return {**values, "permission_mode": "default"} if is_alias else values


def _rules_of(values: JsonObject, source: str) -> list[Rule]:
    """Read the permission rules of one source; all of them count, whatever the others say.

    Raises:
        ConfigError: CONFIG_INVALID naming the rule that cannot be understood.

    """
    given = msgspec.to_builtins(values.get("permissions", {}))
    return [
        parse_rule(text, action, source=source)
        for action in ACTIONS
        for text in given.get(action, ())
    ]


def _local_window(model: str) -> int | None:
    weights = late.load_catalogue().get(model)
    return None if weights is None else weights.context


def _is_azure(kind: str) -> bool:
    vendor = VENDORS.get(kind)
    return vendor is not None and vendor.url_form == "azure"


def provider_variables() -> dict[str, ProviderVariables]:
    """Return the variables of all vendors that are remote, as configuration reads them."""
    return {
        vendor.name: ProviderVariables(
            keys=vendor.key_variables,
            key_header=vendor.key_header,
            base_url=vendor.url_variables,
            token=vendor.token_variables,
            more=vendor.more_variables,
            account=vendor.account,
            read_url=ollama_url if vendor.url_form == "ollama" else None,
        )
        for vendor in VENDORS.values()
        if vendor.is_remote
    }
