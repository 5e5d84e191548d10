"""Configuration: what arguments, environment and the user's file come to, in that order."""

import sys
from pathlib import Path

import msgspec

from holdfast.assembly.configuration_places import ConfigurationPlaces
from holdfast.config.connections import Connection, connection_to
from holdfast.config.environment import Environment, process_environment
from holdfast.config.file import ConfigFile
from holdfast.config.locations import Locations, locate
from holdfast.config.resolution import Resolved, fallback_plan, model_named, resolve
from holdfast.config.schema import ModelEntry
from holdfast.config.user_file import user_config
from holdfast.ports.clock import Clock
from holdfast.ports.model_catalogue import ModelCatalogue
from holdfast.providers.catalogue import Catalogue
from holdfast.providers.known_models import KnownModels
from holdfast.vocabulary.json_types import JsonObject

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

    def named(self, changes: JsonObject) -> JsonObject:
        """Replace a short name of a model in changed settings by what it stands for."""
        name = changes.get("model")
        if not name:
            return changes
        plan = fallback_plan(name, self.file)
        planned = {"fallbacks": msgspec.to_builtins(plan)} if plan else {}
        beside: JsonObject = {}
        if (alias := self.file.models.get(name)) is not None:
            longest = self._longest(alias)
            beside = ({} if longest is None else {"max_tokens": longest}) | alias.settings
        return {**planned, **beside, **changes, "model": model_named(name, self.file)}

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
            catalogue=Catalogue(), clock=clock, prices=self.file.prices, windows=windows
        )
