"""Models: finds the client behind `provider/model`, making each client once."""

from collections.abc import Iterable

from holdfast.ports.model_client import ModelClient
from holdfast.vocabulary.errors import ConfigError, ErrorCode


def split_model(model: str) -> tuple[str, str]:
    """Split `provider/model`.

    Raises:
        ConfigError: CONFIG_INVALID when one of them is missing.

    """
    provider, _, name = model.partition("/")
    if not provider or not name:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"model {model!r} must be written as 'provider/model', "
            "for example 'anthropic/claude-sonnet-5'",
        )
    return provider, name


class ModelClients:
    """The clients of one agent, by provider. Owns and closes those that it made itself."""

    def __init__(self, given: Iterable[ModelClient] = ()) -> None:
        self._given = {client.provider: client for client in given}
        self._made: dict[str, ModelClient] = {}

    async def route(self, model: str) -> tuple[ModelClient, str]:
        """Return the client for a model, and the model's name without its provider."""
        if not model:
            raise ConfigError(
                ErrorCode.CONFIG_MISSING, "no model is named; pass one as 'provider/model'"
            )
        provider, name = split_model(model)
        client = self._given.get(provider) or self._made.get(provider)
        if client is None:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID, f"there is no provider {provider!r} for {model!r}"
            )
        return client, name

    async def close(self) -> None:
        """Close the clients that were made here; those that were handed in are their owner's."""
        for client in self._made.values():
            await client.close()
        self._made.clear()
