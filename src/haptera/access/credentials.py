"""Credentials: which providers have one and where it is; log in, store a key, log out.

Surfaces that keep keys of their own write them as these are written: with `file_lock`,
`replace_file` and `write_all`.
"""

import asyncio
import sys
from typing import Literal, TypeAlias

import msgspec

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.assembly.configuration import Configuration, provider_variables
from haptera.access.auth.credential_storage import StorageKind, StoredCredential
from haptera.access.auth.oauth import (
    InvalidAuthorisationCodeError,
    LoginDialogue,
    TokenExchangeFailedError,
)
from haptera.access.config.schema import KeyReference
from haptera.model.errors import AgentError, ConfigError, ErrorCode
from haptera.model.secrets import Secret
from haptera.options.wording import meant_name
from haptera.system.atomic_files import file_lock, replace_file, write_all
from haptera.system.clock import SystemClock

__all__ = [
    "CredentialDescription",
    "InvalidAuthorisationCodeError",
    "LoginDialogue",
    "LoginMethod",
    "TokenExchangeFailedError",
    "file_lock",
    "find_credentials",
    "has_browser",
    "log_in",
    "log_out",
    "login_method",
    "login_providers",
    "replace_file",
    "store_key",
    "stored_credentials",
    "write_all",
]

LoginMethod: TypeAlias = Literal["key", "oauth"]
_SHORTEST_KEY = 8
_LONGEST_KEY = 16 * 1024


class CredentialDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A credential that is found for a provider; never the credential itself."""

    provider: str
    source: str
    """Where it is, for people: `variable OPENAI_API_KEY`, `login (keyring)`."""
    problem: str | None = None
    """Why it cannot be used, and what to do."""


def find_credentials(
    sources: ConfigurationSources | None = None,
) -> tuple[CredentialDescription, ...]:
    """Return the credentials of all providers in the order in which a default model is chosen.

    Of each provider the one that would be used: a variable, the configuration file's, or a login.

    Raises:
        ConfigError: CONFIG_INVALID when the configuration is wrong.

    """
    configuration = Configuration({}, sources or ConfigurationSources())
    stored = _stored(configuration)
    # A dictionary and no set: the order decides about the default model.
    names = dict.fromkeys((*provider_variables(), *configuration.file.providers, *stored))
    credentials = (_described(name, configuration, stored) for name in names)
    return tuple(each for each in credentials if each is not None)


def stored_credentials(sources: ConfigurationSources | None = None) -> dict[str, StorageKind]:
    """Return the providers with a stored credential, and where each is kept.

    Raises:
        ConfigError: CONFIG_INVALID when others can read the file of credentials.

    """
    configuration = Configuration({}, sources or ConfigurationSources())
    credentials = configuration.credentials.credentials()
    return {provider: each.place for provider, each in credentials.items()}


def login_providers(sources: ConfigurationSources | None = None) -> tuple[str, ...]:
    """Return the providers that one can log in to: those of the file, then all that take a key."""
    configuration = Configuration({}, sources or ConfigurationSources())
    names = (name for name, each in provider_variables().items() if each.keys)
    return tuple(dict.fromkeys((*configuration.file.providers, *names)))


def login_method(provider: str, sources: ConfigurationSources | None = None) -> LoginMethod:
    """Return how one logs in to a provider.

    Raises:
        ConfigError: CONFIG_INVALID when there is no such provider.

    """
    configuration = Configuration({}, sources or ConfigurationSources())
    names = {*provider_variables(), *configuration.file.providers}
    if provider not in names:
        meant = meant_name(provider, names)
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"there is no provider {provider!r}{meant}; for a server of your own, write "
            f"[providers.{provider}] with its base_url into the configuration file first",
        )
    entry = configuration.file.providers.get(provider)
    return "key" if entry is None or entry.oauth is None else "oauth"


def store_key(
    provider: str,
    key: str | Secret,
    *,
    keyring: bool = True,
    sources: ConfigurationSources | None = None,
) -> CredentialDescription:
    """Store a key for a provider, in the desktop's keyring if there is one, else in a private file.

    Raises:
        ConfigError: CONFIG_INVALID when there is no such provider, or this cannot be a key.
        StoreError: UNAVAILABLE when it cannot be written.

    """
    # Only for its check that there is such a provider.
    login_method(provider, sources)
    text = (key.reveal() if isinstance(key, Secret) else key).strip()
    if not _SHORTEST_KEY <= len(text) <= _LONGEST_KEY or not _is_printable(text):
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"this is not a key: a key has at least {_SHORTEST_KEY} characters, and no spaces",
        )
    configuration = Configuration({}, sources or ConfigurationSources())
    facts = _facts(configuration, provider, keyring=keyring)
    saved = configuration.credentials.save_key(provider, Secret(text), facts)
    return CredentialDescription(provider=provider, source=_source_of(configuration, saved))


async def log_in(
    provider: str,
    dialogue: LoginDialogue,
    *,
    paste: bool = False,
    keyring: bool = True,
    sources: ConfigurationSources | None = None,
) -> CredentialDescription:
    """Let a person log in by OAuth 2, as `[providers.NAME.oauth]` says, and store the tokens.

    `paste` waits for no callback: the person pastes the URL that the browser ended at. The same
    happens where `dialogue.show` opened no browser.

    Raises:
        ConfigError: CONFIG_INVALID when there is no such provider, CONFIG_MISSING when its table
            has no oauth.
        InvalidAuthorisationCodeError: when the answer does not belong to this login, was a refusal,
            or its code is expired.
        TokenExchangeFailedError: when the token endpoint cannot be reached or issues no token.
        RequestError: TIMEOUT when no answer comes within five minutes.
        StoreError: UNAVAILABLE when the tokens cannot be written.

    """
    method = login_method(provider, sources)
    configuration = Configuration({}, sources or ConfigurationSources())
    settings = configuration.file.providers[provider].oauth if method == "oauth" else None
    if settings is None:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            f"{provider!r} has no [providers.{provider}.oauth] in the configuration file; "
            "store a key instead",
        )
    facts = _facts(configuration, provider, keyring=keyring)
    transport = late.AiohttpTransport(environment=configuration.environment.variables)
    try:
        tokens = await late.log_in_with_oauth(
            settings,
            dialogue,
            http=late.TransportHttp(transport),
            clock=SystemClock(),
            paste=paste,
        )
    finally:
        await transport.close()
    save = configuration.credentials.save_tokens
    # A keyring may ask the person for a password, and the file has a lock.
    saved = await asyncio.to_thread(save, provider, tokens, facts)
    return CredentialDescription(provider=provider, source=_source_of(configuration, saved))


def log_out(provider: str, sources: ConfigurationSources | None = None) -> bool:
    """Remove what is stored for a provider; returns whether there was anything.

    Variables and the configuration file are left alone. Tokens are not revoked at the provider.

    Raises:
        ConfigError: CONFIG_INVALID when others can read the file of credentials.
        StoreError: UNAVAILABLE when it cannot be written.

    """
    configuration = Configuration({}, sources or ConfigurationSources())
    return configuration.credentials.remove(provider) is not None


def has_browser(sources: ConfigurationSources | None = None) -> bool:
    """Whether this machine can show a browser in a window of its own; one in a terminal cannot."""
    if sys.platform in {"darwin", "win32"}:
        return True
    environment = Configuration({}, sources or ConfigurationSources()).environment
    return environment.get("DISPLAY", "WAYLAND_DISPLAY", "BROWSER") is not None


def _stored(configuration: Configuration) -> dict[str, StoredCredential]:
    try:
        return configuration.credentials.credentials()
    except ConfigError:
        # `_described` says so for each provider that would need them.
        return {}


def _described(
    provider: str, configuration: Configuration, stored: dict[str, StoredCredential]
) -> CredentialDescription | None:
    """Describe the credential of a provider, if it has one of its own."""
    variable = configuration.environment.provider(provider).key_variable
    entry = configuration.file.providers.get(provider)
    variables = configuration.environment.providers.get(provider)
    # A second protocol of a vendor uses the key of its account, unless the file has a table for it.
    account = variables.account if variables is not None and entry is None else ""
    source = None
    if variable is not None:
        source = f"variable {variable}"
    elif entry is not None and entry.key is not None:
        source = f"configuration file, {_reference(entry.key)}"
    elif (record := stored.get(provider) or stored.get(account)) is not None:
        source = _source_of(configuration, record)
    if source is None:
        return None
    return CredentialDescription(
        provider=provider, source=source, problem=_problem(provider, configuration, variable)
    )


def _problem(provider: str, configuration: Configuration, variable: str | None) -> str | None:
    try:
        configuration.connection(provider)
    except AgentError as error:
        return error.message
    value = configuration.environment.variables.get(variable, "") if variable else None
    if value is not None and len(value.strip()) < _SHORTEST_KEY:
        return f"{variable} is too short to be a key; set {variable} again"
    return None


def _reference(key: KeyReference) -> str:
    if key.env is not None:
        return f"variable {key.env}"
    return "a command" if key.command is not None else f"keyring {key.keyring}"


def _source_of(configuration: Configuration, stored: StoredCredential) -> str:
    where = "keyring" if stored.place == "keyring" else str(configuration.credentials.path)
    return f"login, {'tokens' if stored.kind == 'oauth' else 'key'} in {where}"


def _facts(configuration: Configuration, provider: str, *, keyring: bool) -> StoredCredential:
    """Return what is known of a credential that is stored now: the URL that it is for."""
    url = configuration.environment.provider(provider).base_url
    entry = configuration.file.providers.get(provider)
    return StoredCredential(
        kind="key",
        place="keyring" if keyring else "file",
        base_url=url or (entry.base_url if entry is not None else None),
        saved=SystemClock().time_ms(),
    )


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
