"""Model clients: finds the client behind `provider/model`, making each client once."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import (
    OwnAccess,
    PathInput,
    TransportFactory,
    checked_model,
)
from haptera.access.assembly.configuration import Configuration
from haptera.access.config.connections import (
    ProviderConnection,
    check_own_url,
    header_values,
    key_source,
    missing_key,
    refused_key_advice,
)
from haptera.access.config.file import ConfigFile
from haptera.access.config.schema import ProviderEntry
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.log.entry import Entry
from haptera.model.log.sessions import SessionChanged
from haptera.model.secrets import Secret
from haptera.model.vendors import VENDOR_FIELDS, split_model
from haptera.options.wording import meant_name, unknown_name
from haptera.ports.model_client import ModelClient, missing_members
from haptera.ports.native_agent import NativeAgent
from haptera.ports.session_store import Store
from haptera.ports.telemetry import Begun, QueryBegun, Span, Telemetry, ToolBegun, TurnBegun
from haptera.providers.vendors import VENDORS, Vendor, protocol_of, trace_name_of, vendor_of
from haptera.system.clock import Clock
from haptera.system.token_source import TokenSource
from haptera.system.token_sources import CallableTokenSource, StaticTokenSource

if TYPE_CHECKING:
    from haptera.providers.transport.protocol import Transport
    from haptera.providers.wire.chat_completions.dialects import Dialect


class NamedProviders:
    """Tells a program's telemetry what its conventions call each provider."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def begin(self, begun: Begun) -> Span:
        """Begin a span below the current one."""
        match begun:
            case QueryBegun():
                name = trace_name_of(split_model(begun.model)[0])
                begun = msgspec.structs.replace(begun, provider_name=name)
            case TurnBegun():
                name = trace_name_of(begun.provider)
                begun = msgspec.structs.replace(begun, provider_name=name)
            case ToolBegun():
                pass
        return self._telemetry.begin(begun)


_NATIVE_VENDORS = frozenset(row.name for row in VENDORS.values() if row.protocol == "native")


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the program says of all its clients."""

    clock: Clock
    transport: TransportFactory | None = None
    """None is HTTP as the environment has it set up."""
    record_to: PathInput | None = None
    """The file that requests and answers are written to, for `haptera.testing.ReplayClient`."""
    store: Callable[[], Store] | None = None
    """The store of the sessions, for what native agents keep of theirs."""
    claude_options: Mapping[str, object] = msgspec.field(default_factory=dict)
    """What is handed through to claude-agent-sdk."""


class ModelClients:
    """The clients of one agent, by provider. Owns and closes those that it made itself."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        given: Iterable[ModelClient | NativeAgent],
        own: OwnAccess,
        options: ClientOptions,
    ) -> None:
        self._configuration = configuration
        # A key that is nothing comes of a variable that is not set: the usual places may have one.
        is_blank = isinstance(own.api_key, str) and not own.api_key.strip()
        self._own = msgspec.structs.replace(own, api_key=None) if is_blank else own
        self._options = options
        self._own_provider = provider = checked_model(configuration.model)[0]
        if own.base_url:
            environment, file = configuration.environment, configuration.file
            check_own_url(own.base_url, provider, environment=environment, file=file)
        clients = tuple(map(_checked, given))
        self._plugins = configuration.plugins
        self._plugins.take(client.provider for client in clients)
        if own.base_url:  # a server that the program names, and no plugin
            self._plugins.take([provider])
        self._given = {
            client.provider: self._recorded(client)
            for client in clients
            if not isinstance(client, NativeAgent)
        }
        # Kept apart: `close` leaves open what was handed in.
        self._given_agents = [client for client in clients if isinstance(client, NativeAgent)]
        self._native = _by_provider(self._given_agents)
        self._made: dict[str, ModelClient] = {}

    @property
    def native_providers(self) -> frozenset[str]:
        """The providers whose models native agents run."""
        return _NATIVE_VENDORS.union(self._native, self._plugins.native_providers())

    def _checked_model(self, model: str) -> tuple[str, str]:
        """Split the model that is asked, unless it may not be used; see `ModelBounds`.

        Looked at here, too, and not only where a model is named: a log may name any.
        """
        model = model or self._configuration.model
        if self._configuration.bounds is not None:
            self._configuration.bounds.check(model)
        return checked_model(model)

    def is_native(self, model: str) -> bool:
        """Whether a native agent runs a model."""
        provider = split_model(model or self._configuration.model)[0]
        return (
            provider in self._native
            or provider in _NATIVE_VENDORS
            or (provider not in self._given and self._plugins.is_native(provider))
        )

    async def native(self, model: str) -> tuple[NativeAgent, str] | None:
        """Return the native agent that runs a model, and the model's own name; None for others."""
        provider, name = self._checked_model(model)
        agent = self._native.get(provider)
        if agent is None and protocol_of(provider) == "native":
            agent = self._native[provider] = self._make_native(provider)
        elif agent is None and (new := self._plugins.make_agent(provider)) is not None:
            agent = self._native[provider] = new
        return None if agent is None else (agent, name)

    async def delete_transcripts(self, owner: str, entries: Iterable[Entry]) -> None:
        """Delete what native agents kept in the store for a session, by the entries of its log."""
        changes = [entry.changes for entry in entries if isinstance(entry, SessionChanged)]
        named = {each.get("native_session_id") for each in changes} - {None}
        store = self._options.store
        if named and store is not None:
            transcripts = late.stored_transcripts(store, owner, self._options.clock)
            for native_id in named:
                await transcripts.delete({"project_key": "", "session_id": native_id})

    def _make_native(self, provider: str) -> NativeAgent:
        configuration = self._configuration
        connection = configuration.connection(provider)
        _refuse_other_fields(connection.table, configuration.file)
        # A key that the program gives is for the provider of its model, and is sent to no other.
        own = self._own if provider == self._own_provider else OwnAccess()
        return late.ClaudeAgent(
            configuration.resolved.agent.claude_agent,
            late.AgentSurroundings(
                environment=configuration.environment.variables,
                cwd=configuration.cwd,
                clock=self._options.clock,
                store=self._options.store,
                tokens=self._tokens(connection, own, self._transport),
                base_url=own.base_url or connection.base_url,
                extras=self._options.claude_options,
            ),
        )

    async def route(self, model: str) -> tuple[ModelClient, str]:
        """Return the client for a model, and the model's name without its provider."""
        model = model or self._configuration.model
        if self._configuration.bounds is not None:
            self._configuration.bounds.check(model)
        provider, name = split_model(model)
        client = self._given.get(provider) or self._made.get(provider)
        # No wait between the look-up and the assignment: each client is made once.
        if client is None or not name:
            checked_model(model)
            client = self._made[provider] = self._recorded(self._make(provider))
        return client, name

    async def close(self) -> None:
        """Close the clients that were made here; those that were handed in are their owner's."""
        # Taken out first: a second close, while this one waits, finds none.
        made, self._made = self._made, {}
        native, self._native = self._native, _by_provider(self._given_agents)
        own = [agent for agent in native.values() if agent not in self._given_agents]
        # One that fails to close does not keep the others open; its error is raised in the end.
        async with contextlib.AsyncExitStack() as closing:
            for agent in own:
                closing.push_async_callback(agent.close)
            for client in made.values():
                closing.push_async_callback(client.close)

    def _make(self, provider: str) -> ModelClient:
        configuration = self._configuration
        protocol = protocol_of(provider)
        if protocol == "native" or self._plugins.is_native(provider):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                "a native agent cannot be used where a model is needed, for example as a fallback",
                provider=provider,
            )
        if protocol == "process":
            _refuse_other_fields(provider, configuration.file)
            is_named = bool(configuration.resolved.settings.model)
            return late.LocalModelClient(folder=configuration.model_folder, is_named=is_named)
        environment, file = configuration.environment, configuration.file
        connection = configuration.connection(provider)
        _refuse_unknown_words(connection.table, file)
        _refuse_other_fields(connection.table, file)
        own = self._own if provider == self._own_provider else OwnAccess()
        if own.base_url is not None:
            connection = msgspec.structs.replace(connection, base_url=own.base_url)
        # A client of a plugin is made without arguments, so it could not be told the URL.
        if connection.base_url is None and (client := self._plugins.make_client(provider)):
            return client
        vendor = _vendor_of(connection, (*configuration.file.providers, *self._given))
        dialect = _dialect_of(connection, vendor)
        transport = self._transport()
        tokens = self._tokens(connection, own, lambda: transport)
        if tokens is None and (vendor.needs_key or connection.oauth is not None):
            raise missing_key(
                provider,
                environment=environment,
                file=file,
                without_key=_kind_without_key(connection, vendor),
            )
        return late.make_client(
            vendor,
            late.VendorAccess(
                tokens=tokens,
                provider=provider,
                base_url=connection.base_url,
                headers={**header_values(connection, environment, file), **own.headers},
                dialect=dialect,
                fields=connection.fields,
                clock=self._options.clock,
                is_bearer=own.api_key is None
                and connection.key is None
                and connection.auth_token is not None,
                transport=transport,
                advice=refused_key_advice(
                    connection, environment, file, is_own=own.api_key is not None
                ),
            ),
        )

    def _transport(self) -> "Transport":
        if self._options.transport is not None:
            return self._options.transport()
        return late.AiohttpTransport(environment=self._configuration.environment.variables)

    def _recorded(self, client: ModelClient) -> ModelClient:
        """Write down what a client is asked and answers; each provider has a file of its own."""
        if self._options.record_to is None:
            return client
        path = self._configuration.cwd / self._options.record_to
        if client.provider != self._own_provider:
            path = path.with_name(f"{path.stem}.{client.provider}{path.suffix}")
        return late.RecordingClient(client, path, clock=self._options.clock)

    def _tokens(
        self, connection: ProviderConnection, own: OwnAccess, transport: TransportFactory
    ) -> TokenSource | None:
        given = own.api_key
        if isinstance(given, str | Secret):
            return StaticTokenSource(given)
        if callable(given):
            return CallableTokenSource(given)
        if given is not None:
            return given
        reference = connection.key or connection.auth_token
        if reference is None and connection.stored is not None:
            return late.stored_source(
                connection,
                self._configuration.credentials,
                transport=transport(),
                clock=self._options.clock,
            )
        if reference is None:
            return None
        return key_source(reference, environment=self._configuration.environment)


def _refuse_unknown_words(table: str, file: ConfigFile) -> None:
    """Raise CONFIG_INVALID for a kind or a dialect of the file that is none."""
    entry = file.providers.get(table, ProviderEntry())
    known: dict[str, Collection[str]] = {}
    if entry.kind is not None:
        # What is not remote is sent no requests, so a table of a server cannot be of its kind.
        known["kind"] = [vendor.name for vendor in VENDORS.values() if vendor.is_remote]
    if isinstance(entry.dialect, str):
        # Only then: it loads a wire protocol, which most agents do not use.
        known["dialect"] = late.DIALECTS
    for field, words in known.items():
        if (word := getattr(entry, field)) not in words:
            told = f"{unknown_name(word, words)}; known are {', '.join(sorted(words))}"
            raise file.error(("providers", table, field), told)


def _refuse_other_fields(table: str, file: ConfigFile) -> None:
    """Raise CONFIG_INVALID for a field of the file that the vendor of its table does not take."""
    entry = file.providers.get(table, ProviderEntry())
    vendor = vendor_of(entry.kind or table)
    for field in VENDOR_FIELDS:
        if getattr(entry, field) is not None and field not in vendor.more_variables:
            told = f"{vendor.name!r} does not take {field!r}"
            raise file.error(("providers", table, field), told)


def _vendor_of(connection: ProviderConnection, known: Iterable[str]) -> Vendor:
    """Return the row of a connection; a server that is not known speaks Chat Completions.

    Raises:
        ConfigError: CONFIG_INVALID for a provider that is not known and has no URL, CONFIG_MISSING
            for one that is not told what it needs.

    """
    if connection.kind not in VENDORS and connection.base_url is None:
        hint = meant_name(connection.provider, {*VENDORS, *known})
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"there is no provider {connection.provider!r}{hint or '.'} For a server of your own, "
            f"write base_url into [providers.{connection.provider}] of the configuration file, or "
            "pass base_url=",
            provider=connection.provider,
        )
    vendor = vendor_of(connection.kind)
    for field in vendor.needs:
        if not getattr(connection.fields, field):
            variables = " or ".join(vendor.more_variables[field])
            raise ConfigError(
                ErrorCode.CONFIG_MISSING,
                f"{connection.provider} needs a {field}: "
                f"{f'set {variables}, or ' if variables else ''}write {field} "
                f"into [providers.{connection.provider}] of the configuration file",
                provider=connection.provider,
            )
    return vendor


def _kind_without_key(connection: ProviderConnection, vendor: Vendor) -> str:
    """Return the kind that a server of one's own may have if it needs no key; else nothing."""
    if connection.base_url is None or connection.oauth is not None:
        return ""
    kinds = (row for row in VENDORS.values() if not row.needs_key and not row.base_url)
    return next((row.name for row in kinds if row.protocol == vendor.protocol), "")


def _dialect_of(connection: ProviderConnection, vendor: Vendor) -> "Dialect | None":
    """Return the dialect that a table asks for: one by its name, or single differences.

    Raises:
        ConfigError: CONFIG_INVALID for a field or a value that a dialect does not have, and for a
            protocol without dialects.

    """
    wanted = connection.dialect
    if wanted is None:
        return None
    if vendor.protocol != "chat":
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"[providers.{connection.provider}]: only Chat Completions has dialects, and "
            f"{connection.kind!r} speaks something else",
            provider=connection.provider,
        )
    if isinstance(wanted, str):
        if wanted not in late.DIALECTS:
            raise _no_dialect(connection, unknown_name(wanted, late.DIALECTS))
        return late.DIALECTS[wanted]
    fields = [name for name in late.Dialect.__struct_fields__ if name != "name"]
    for name in wanted:
        if name not in fields:
            raise _no_dialect(connection, f"{name!r} is {unknown_name(name, fields)}")
    try:
        usual = late.DIALECTS[vendor.dialect] if vendor.dialect else late.GENERIC
        return msgspec.convert(msgspec.to_builtins(usual) | wanted, late.Dialect)
    except msgspec.ValidationError as error:
        raise _no_dialect(connection, str(error)) from None


def _no_dialect(connection: ProviderConnection, reason: str) -> ConfigError:
    return ConfigError(
        ErrorCode.CONFIG_INVALID,
        f"[providers.{connection.provider}]: dialect: {reason}",
        provider=connection.provider,
    )


def _checked(client: ModelClient | NativeAgent) -> ModelClient | NativeAgent:
    """Return what was given as a model client, if it is one.

    Raises:
        ConfigError: CONFIG_INVALID saying what to pass instead.

    """
    given: object = client
    if isinstance(given, str):
        advice = (
            f"is the text {given!r}. A provider that Haptera knows is named by the model, as in "
            f"Agent('{given.partition('/')[0]}/<model>'), and needs no providers="
        )
    elif isinstance(given, type):
        advice = f"is the class {given.__name__}; pass an instance: {given.__name__}(...)"
    elif not isinstance(given, NativeAgent) and (missing := missing_members(given)):
        advice = (
            f"is of type {type(given).__name__}, which has no {', '.join(missing)}. Each item is a "
            "model client: an object with `provider` (its name), `stream`, `count_tokens` and "
            "`close`"
        )
    elif not isinstance(client.provider, str):
        advice = f"is of type {type(given).__name__}, whose `provider` is no text"
    else:
        return client
    raise ConfigError(ErrorCode.CONFIG_INVALID, f"option 'providers': an item {advice}")


def _by_provider(agents: Iterable[NativeAgent]) -> dict[str, NativeAgent]:
    return {agent.provider: agent for agent in agents}
