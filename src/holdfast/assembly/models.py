"""Models: finds the client behind `provider/model`, making each client once."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.assembly.configuration_places import PathInput
from holdfast.ports.clock import Clock
from holdfast.ports.model_client import ModelClient
from holdfast.ports.token_source import TokenSource
from holdfast.vocabulary.errors import ConfigError, ErrorCode
from holdfast.vocabulary.secrets import Secret, remember

TokenFunction: TypeAlias = Callable[[], "str | Secret | Awaitable[str | Secret]"]
TransportFactory: TypeAlias = Callable[[], "Transport"]
"""Makes the way to a provider; called once for each."""

if TYPE_CHECKING:
    from holdfast.assembly.configuration import Configuration
    from holdfast.config.connections import Connection
    from holdfast.providers.transport.protocol import Transport


class OwnAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What the program itself says of the way to its model's provider."""

    api_key: str | Secret | TokenSource | TokenFunction | None = None
    base_url: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"OwnAccess(base_url={self.base_url!r})"


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the program says of all its clients, whoever they speak to."""

    clock: Clock
    transport: TransportFactory | None = None
    """None is HTTP as the environment has it set up."""
    record_to: PathInput | None = None
    """The file that requests and answers are written to, for `holdfast.testing.ReplayClient`."""


def split_model(model: str) -> tuple[str, str]:
    """Split `provider/model`.

    Raises:
        ConfigError: CONFIG_INVALID when one of them is missing.

    """
    if model.startswith("local:"):
        return "local", model.removeprefix("local:")
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

    def __init__(
        self,
        configuration: "Configuration",
        *,
        given: Iterable[ModelClient],
        own: OwnAccess,
        options: ClientOptions,
    ) -> None:
        self._configuration = configuration
        # A key that is nothing comes of a variable that is not set: the usual places may have one.
        is_blank = isinstance(own.api_key, str) and not own.api_key.strip()
        self._own = msgspec.structs.replace(own, api_key=None) if is_blank else own
        self._options = options
        self._own_provider = split_model(configuration.model)[0]
        self._given = {client.provider: self._recorded(client) for client in given}
        self._made: dict[str, ModelClient] = {}

    async def route(self, model: str) -> tuple[ModelClient, str]:
        """Return the client for a model, and the model's name without its provider."""
        provider, name = split_model(model or self._configuration.model)
        client = self._given.get(provider) or self._made.get(provider)
        if client is None:
            client = self._made[provider] = self._recorded(self._make(provider))
        return client, name

    async def close(self) -> None:
        """Close the clients that were made here; those that were handed in are their owner's."""
        made, self._made = self._made, {}
        for client in made.values():
            await client.close()

    def _make(self, provider: str) -> ModelClient:
        # Only what is used is imported: HTTP, and one vendor.
        from holdfast.assembly.vendors import (  # noqa: PLC0415
            Access,
            MissingKeyError,
            local_client,
            make_client,
            refuse_unknown_words,
        )
        from holdfast.config.connections import missing_key  # noqa: PLC0415
        from holdfast.providers.entry_points import offered_client  # noqa: PLC0415

        configuration = self._configuration
        if provider == "local":
            return local_client(configuration)
        connection = configuration.connection(provider)
        refuse_unknown_words(connection, configuration.file)
        own = self._own if provider == self._own_provider else OwnAccess()
        if own.base_url is not None:
            connection = msgspec.structs.replace(connection, base_url=own.base_url)
        if connection.base_url is None and (offered := offered_client(provider)) is not None:
            return offered
        access = Access(
            connection=connection,
            tokens=self._tokens(connection, own),
            headers={**_headers(connection, configuration), **own.headers},
            transport=self._transport(),
            clock=self._options.clock,
            is_bearer=own.api_key is None and connection.key is None,
        )
        try:
            return make_client(access)
        except MissingKeyError as error:
            raise missing_key(error.provider, file=configuration.file) from None

    def _transport(self) -> "Transport":
        if self._options.transport is not None:
            return self._options.transport()
        from holdfast.providers.transport.http import AiohttpTransport  # noqa: PLC0415

        return AiohttpTransport(environment=self._configuration.environment.variables)

    def _recorded(self, client: ModelClient) -> ModelClient:
        """Write down what a client is asked and answers; each provider has a file of its own."""
        if self._options.record_to is None:
            return client
        from holdfast.testing.recording import RecordingClient  # noqa: PLC0415 - only if asked for

        path = self._configuration.cwd / self._options.record_to
        if client.provider != self._own_provider:
            path = path.with_name(f"{path.stem}.{client.provider}{path.suffix}")
        return RecordingClient(client, path, clock=self._options.clock)

    def _tokens(self, connection: "Connection", own: OwnAccess) -> TokenSource | None:
        from holdfast.auth.token_sources import (  # noqa: PLC0415 - only what is used
            CallableTokenSource,
            StaticTokenSource,
        )
        from holdfast.config.key_sources import key_source  # noqa: PLC0415

        given = own.api_key
        if isinstance(given, str | Secret):
            return StaticTokenSource(given)
        if callable(given):
            return CallableTokenSource(given)
        if given is not None:
            return given
        reference = connection.key or connection.auth_token
        if reference is None:
            return None
        return key_source(reference, environment=self._configuration.environment)


def _headers(connection: "Connection", configuration: "Configuration") -> dict[str, str]:
    """Return the headers of a connection; one that refers to a variable is looked up."""
    found: dict[str, str] = {}
    for name, value in connection.headers.items():
        if isinstance(value, str):
            found[name] = value
            continue
        variable = value.env or ""
        found[name] = configuration.environment.variables.get(variable, "").strip()
        # Where a value is looked up instead of written down, it is a secret.
        remember(found[name])
        if not found[name]:
            place = ("providers", connection.provider, "headers", name)
            raise configuration.file.error(place, f"the variable {variable} is not set")
    return found
