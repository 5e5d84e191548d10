"""How to reach a provider: its URL, where its key is, and the source that reads the key.

A key is bound to its URL. A key in a variable named after a provider is for that provider
only, not for others of the same kind; a key in the file is not sent to a URL that the environment
put in the file's place; a stored credential is sent only to the URL that it was stored for.
"""

from collections.abc import Callable, Mapping

import msgspec

from haptera.access.auth.credential_storage import Keyring, StoredCredential, installed_keyring
from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.access.config.environment import Environment, ProviderVariables
from haptera.access.config.file import ConfigFile
from haptera.access.config.provider_urls import host_fault, url_fault
from haptera.access.config.schema import KeyReference, ProviderEntry
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.secrets import remember
from haptera.model.vendors import VENDOR_FIELDS, VendorFields
from haptera.system.token_source import TokenKind, TokenSource
from haptera.system.token_sources import (
    CallableTokenSource,
    CommandTokenSource,
    EnvironmentTokenSource,
)


class ProviderConnection(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the way to one provider."""

    provider: str
    """Its name in `provider/model`."""
    kind: str
    """Which known provider or protocol it is."""
    table: str = ""
    """The table of the file that speaks for it, if there is one."""
    base_url: str | None = None
    """None means the provider's own."""
    key: KeyReference | None = None
    auth_token: KeyReference | None = None
    """A token that is sent as `Authorization: Bearer` instead of a key."""
    stored: StoredCredential | None = None
    """What `haptera login` stored; only where there is neither a key nor a token."""
    stored_as: str = ""
    """The provider that it was stored for."""
    oauth: OAuthSettings | None = None
    """How to log in, if not with a key."""
    headers: dict[str, str | KeyReference] = {}
    dialect: str | JsonObject | None = None
    fields: VendorFields = VendorFields()


def connection_to(
    provider: str,
    *,
    environment: Environment,
    file: ConfigFile,
    stored: Callable[[], Mapping[str, StoredCredential]] = dict,
) -> ProviderConnection:
    """Return the way to a provider; `stored` reads the credentials of `haptera login`.

    Raises CONFIG_INVALID for a URL that cannot be one, and for a stored credential that is for
    another URL.
    """
    own = environment.providers.get(provider, ProviderVariables())
    table, entry = _table_of(provider, own.account or provider, file)
    values = environment.provider(provider)
    if values.base_url is not None and (wrong := url_fault(values.base_url)):
        variables = " or ".join(own.base_url)
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"{variables}: {wrong}")
    key = KeyReference(env=values.key_variable) if values.key_variable is not None else entry.key
    token = values.token_variable
    redirected = values.base_url is not None and values.base_url != entry.base_url
    if redirected and key is not None and values.key_variable is None:
        raise file.error(
            ("providers", table, "key"),
            f"would be sent to {values.base_url}, which is set in the environment; "
            "write that URL as base_url beside the key if this is meant",
        )
    name = _stored_name(provider, own.account or provider, file)
    # Read only where it counts: what is stored may be damaged, and a key does not need it.
    credential = stored().get(name) if key is None and token is None else None
    base_url = values.base_url or entry.base_url
    if credential is not None and credential.base_url != base_url:
        raise _stored_elsewhere(name, credential, base_url)
    return ProviderConnection(
        provider=provider,
        # The table of an account says which kind the account is, not this provider.
        kind=(entry.kind or provider) if table == provider else provider,
        table=table if table in file.providers else "",
        base_url=base_url,
        key=key,
        auth_token=KeyReference(env=token) if token is not None else None,
        stored=credential,
        stored_as=name if credential is not None else "",
        oauth=entry.oauth,
        headers=entry.headers,
        dialect=entry.dialect,
        fields=VendorFields(
            **{name: values.more.get(name) or getattr(entry, name) for name in VENDOR_FIELDS}
        ),
    )


def _table_of(provider: str, account: str, file: ConfigFile) -> tuple[str, ProviderEntry]:
    """Return the table that speaks for a provider: its own, else that of its account.

    A key and the URL that it is for are in one table, so they stay together.
    """
    own, shared = file.providers.get(provider), file.providers.get(account)
    if own is None and shared is not None and shared.kind in {None, account}:
        return account, shared
    return provider, own or ProviderEntry()


def _stored_name(provider: str, account: str, file: ConfigFile) -> str:
    """Return the provider whose stored credential counts: its account's, if it has no table."""
    other = file.providers.get(account)
    is_account = other is None or other.kind in {None, account}
    return account if provider not in file.providers and is_account else provider


def _stored_elsewhere(
    provider: str, credential: StoredCredential, base_url: str | None
) -> ConfigError:
    meant = credential.base_url or "the provider's usual URL"
    return ConfigError(
        ErrorCode.CONFIG_INVALID,
        f"the stored credential of {provider!r} is for {meant} and is not sent to "
        f"{base_url or 'the usual one'}; run `haptera login {provider}` if this is meant",
        provider=provider,
    )


def check_own_url(url: str, provider: str, *, environment: Environment, file: ConfigFile) -> None:
    """Refuse an option `base_url` that leads to no server.

    Raises:
        ConfigError: CONFIG_INVALID with what may be meant.

    """
    kind = file.providers.get(provider, ProviderEntry()).kind or provider
    # Those of some providers may be a host alone.
    is_read = environment.providers.get(kind, ProviderVariables()).read_url is not None
    if not is_read and (fault := host_fault(url)) is not None:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"option 'base_url': {url!r} {fault}")


def header_values(
    connection: ProviderConnection, environment: Environment, file: ConfigFile
) -> dict[str, str]:
    """Return the headers of a connection; one that refers to a variable is looked up.

    Raises:
        ConfigError: CONFIG_INVALID naming the header whose variable is not set.

    """
    values: dict[str, str] = {}
    for name, value in connection.headers.items():
        if isinstance(value, str):
            values[name] = value
            continue
        variable = value.env or ""
        values[name] = environment.variables.get(variable, "").strip()
        # Where a value is looked up instead of written down, it is a secret.
        remember(values[name])
        if not values[name]:
            place = ("providers", connection.provider, "headers", name)
            raise file.error(place, f"the variable {variable} is not set")
    return values


def refused_key_advice(
    connection: ProviderConnection, environment: Environment, file: ConfigFile, *, is_own: bool
) -> str:
    """Say where a key comes from that its provider refuses, or where one can be put.

    `is_own`: whether the program itself gave it.
    """
    if is_own:
        return "check the key that was passed as api_key="
    reference = connection.key or connection.auth_token
    if reference is not None and reference.env is not None:
        return f"check the key in the variable {reference.env}, or pass another one as api_key="
    if reference is not None:
        return f"check the key that [providers.{connection.table}] of {file.path} refers to"
    if connection.stored is not None:
        return f"run `haptera login {connection.stored_as}` again, or pass a key as api_key="
    variables = environment.providers.get(connection.provider, ProviderVariables())
    variable = f"set {' or '.join(variables.keys)}, or " if variables.keys else ""
    return f"{variable}pass a key as api_key="


def missing_key(
    provider: str, *, environment: Environment, file: ConfigFile, without_key: str = ""
) -> ConfigError:
    """Make the error for a provider whose key is nowhere: it says where one can be put.

    `without_key` is the kind of servers that are spoken to in the same way and need none.
    """
    variables = environment.providers.get(provider, ProviderVariables())
    variable = f"set {' or '.join(variables.keys)}, " if variables.keys else ""
    where = f" of {file.path}" if file.path is not None else " of the configuration file"
    return ConfigError(
        ErrorCode.CONFIG_MISSING,
        f"there is no key for {provider!r}: {variable}run `haptera login {provider}`, "
        f'write key = {{ env = "VARIABLE" }} into [providers.{provider}]{where}, or pass api_key='
        + (f". A server that needs no key is of the kind {without_key!r}" if without_key else ""),
        provider=provider,
    )


def key_source(
    reference: KeyReference,
    *,
    environment: Environment,
    kind: TokenKind = "key",
    keyring: Callable[[], Keyring] = installed_keyring,
) -> TokenSource:
    """Return the source of a secret, which is not read before a request needs it.

    Raises CONFIG_MISSING for a secret in the keyring where there is no keyring to ask.
    """
    if reference.env is not None:
        return EnvironmentTokenSource(reference.env, environment.variables, kind=kind)
    if reference.command is not None:
        return CommandTokenSource(reference.command, kind=kind)
    service, _, user = (reference.keyring or "").rpartition("/")
    ring = keyring()

    def password() -> str:
        return ring.get_password(service, user) or ""

    return CallableTokenSource(password, kind=kind)
