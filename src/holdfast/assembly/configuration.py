"""Configuration: what arguments, environment and the user's file come to, in that order."""

import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.assembly.configuration_places import ConfigurationPlaces
from holdfast.config.connections import Connection, connection_to
from holdfast.config.environment import Environment, process_environment
from holdfast.config.file import ConfigFile
from holdfast.config.locations import Locations, locate
from holdfast.config.resolution import (
    Resolved,
    check_arguments,
    fallback_plan,
    model_named,
    resolve,
)
from holdfast.config.schema import ModelEntry
from holdfast.config.user_file import user_config
from holdfast.ports.clock import Clock
from holdfast.ports.model_catalogue import ModelCatalogue
from holdfast.providers.catalogue import Catalogue
from holdfast.providers.known_models import KnownModels
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.settings import Settings

# What is asked when a key is there and no model is named: a good general model of that provider.
_DEFAULT_MODELS = {
    "anthropic": "anthropic/claude-sonnet-5",
    "openai": "openai/gpt-5",
    "gemini": "gemini/gemini-2.5-flash",
    "openrouter": "openrouter/openrouter/auto",
    "groq": "groq/llama-3.3-70b-versatile",
    "deepseek": "deepseek/deepseek-chat",
    "mistral": "mistral/mistral-large-latest",
    "xai": "xai/grok-4",
}
EMBEDDED_MODEL = "local/smollm2"


class Configuration:
    """What holds for one agent, and where its providers are."""

    def __init__(self, arguments: JsonObject, places: ConfigurationPlaces) -> None:
        variables = places.environment
        self.environment = Environment(process_environment() if variables is None else variables)
        self.cwd = Path(places.cwd) if places.cwd is not None else Path.cwd()
        self.home = Path(self.environment.get("HOME") or Path.home())
        self.file: ConfigFile = user_config(
            self.environment,
            cwd=self.cwd,
            home=self.home,
            platform=sys.platform,
            config_dir=places.config_dir,
            config_path=places.config_path,
        )
        self.resolved = self._with_longest(
            resolve(arguments, environment=self.environment, file=self.file)
        )
        _refuse_unknown_mode(self.resolved.agent.permission_mode)

    @property
    def model(self) -> str:
        """The model that is asked: the one that was named, or the best that a found key allows."""
        if self.resolved.settings.model:
            return self.resolved.settings.model
        for provider in self.environment.providers_with_keys():
            if provider in _DEFAULT_MODELS:
                return _DEFAULT_MODELS[provider]
        return EMBEDDED_MODEL

    @property
    def settings(self) -> Settings:
        """What new sessions start with; every model in it by its full name."""
        settings = self.resolved.settings
        fallbacks = tuple(
            replace(step, model=model_named(step.model, self.file)) for step in settings.fallbacks
        )
        return replace(settings, model=self.model, fallbacks=fallbacks)

    @property
    def places(self) -> Locations:
        """The user's folders on this machine."""
        return locate(self.environment, home=self.home, platform=sys.platform)

    @property
    def model_folder(self) -> Path:
        """Where weights of local models are kept."""
        return self.places.cache / "models"

    def connection(self, provider: str) -> Connection:
        """Return the way to a provider."""
        return connection_to(provider, environment=self.environment, file=self.file)

    def changed(self, changes: JsonObject) -> JsonObject:
        """Check changed settings, and replace short names of models by what they stand for.

        Raises:
            ConfigError: CONFIG_INVALID naming the setting.

        """
        check_arguments(changes)
        if name := changes.get("model"):
            changes = {**self._stands_for(name), **changes, "model": model_named(name, self.file)}
        if "fallbacks" in changes:
            named = [
                {**step, "model": model_named(step["model"], self.file)}
                for step in changes["fallbacks"]
            ]
            changes = {**changes, "fallbacks": named}
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
        if longest is None or resolved.settings.max_tokens:
            return resolved
        settings = msgspec.structs.replace(resolved.settings, max_tokens=longest)
        return msgspec.structs.replace(resolved, settings=settings)

    def _longest(self, alias: ModelEntry | None) -> int | None:
        """Return how much a model is asked for at most, where its protocol demands a number."""
        if alias is None or alias.max_output is None:
            return None
        kind = self.connection(alias.model.partition("/")[0]).kind
        return alias.max_output if kind == "anthropic" else None

    def known_models(self, clock: Clock) -> ModelCatalogue:
        """Return what is known of models: the user's own facts first, then the catalogue's."""
        windows = {
            entry.model: entry.context_window
            for entry in self.file.models.values()
            if entry.context_window is not None
        }
        return KnownModels(
            catalogue=Catalogue(),
            clock=clock,
            prices=self.file.prices,
            windows=windows,
            same_as=self._same_models(),
        )

    def _same_models(self) -> dict[str, str]:
        """Return which known provider each table of the file is, if it is one.

        A table with an address of its own is somebody else's server, whose prices are not known.
        At Azure every user has an address.
        """
        return {
            name: entry.kind
            for name, entry in self.file.providers.items()
            if entry.kind and (entry.base_url is None or entry.kind.startswith("azure"))
        }


def _refuse_unknown_mode(mode: str | None) -> None:
    """Refuse a mode that nothing would keep: a switch for safety is never quietly ignored."""
    if mode not in {None, "ask"}:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"permission_mode {mode!r} is not there yet; 'ask' is, and tools may be denied by name "
            "with denied_tools",
        )
