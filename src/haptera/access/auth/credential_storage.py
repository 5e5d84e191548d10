"""Stored credentials: the keys and tokens of `haptera login`, in the keyring or in a private file.

The file `credentials.json` lists every stored credential; it holds the secret itself only where
there is no keyring. So it can be said which providers have a credential without unlocking one.
"""

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec

from haptera.model.errors import ConfigError, ErrorCode, StoreError
from haptera.model.secrets import Secret
from haptera.system.atomic_files import file_lock, replace_file
from haptera.system.token_source import TokenKind

CREDENTIALS_FILE = "credentials.json"
SERVICE = "haptera"
"""The service under which the keyring has our secrets; the user is the provider."""
_VERSION = 1
_LARGEST = 1 << 20
_USABLE = 1.0
"""The least priority of a backend that keeps secrets safely; plain files and stand-ins have less.
"""

StorageKind: TypeAlias = Literal["keyring", "file"]
T = TypeVar("T")


class Keyring(Protocol):
    """What is used of the `keyring` package to read."""

    def get_password(self, service_name: str, username: str) -> str | None:
        """Return a password, or None if there is none."""
        ...


class WritableKeyring(Keyring, Protocol):
    """What is used of the `keyring` package to keep secrets."""

    def set_password(self, service_name: str, username: str, password: str) -> None:
        """Keep a password."""
        ...

    def delete_password(self, service_name: str, username: str) -> None:
        """Remove a password."""
        ...


def installed_keyring() -> Keyring:
    """Return the `keyring` package; raises CONFIG_MISSING where it is not installed."""
    try:
        return cast("Keyring", importlib.import_module("keyring"))
    except ImportError:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            "a key is to be read from the keyring, but the package 'keyring' is not installed",
        ) from None


def usable_keyring() -> WritableKeyring | None:
    """Return the desktop's keyring, or None where there is none that keeps secrets safely."""
    # A backend may fail in any way while it looks for its service.
    with suppress(Exception):
        package = importlib.import_module("keyring")
        if package.get_keyring().priority >= _USABLE:
            return cast("WritableKeyring", package)
    return None


class StoredCredential(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a stored credential; not the secret."""

    kind: TokenKind
    place: StorageKind
    base_url: str | None = None
    """The URL that it was stored for; None is the provider's usual one."""
    saved: int = 0
    """When it was stored, in milliseconds since 1970."""


class OAuthTokens(msgspec.Struct, frozen=True, kw_only=True):
    """What an authorization server issued."""

    access: Secret
    refresh: Secret | None = None
    expires: int | None = None
    """When the access token expires, in milliseconds since 1970; None: not known."""


class _Record(StoredCredential, frozen=True, kw_only=True):
    """A credential in the file."""

    secret: str | None = None
    """None when the keyring has it."""

    # Without the secret: the `repr` of a value can reach a log or a traceback.
    def __repr__(self) -> str:
        return f"_Record(kind={self.kind!r}, place={self.place!r})"

    def facts(self) -> StoredCredential:
        """Return what is known of it, without the secret."""
        return StoredCredential(
            kind=self.kind, place=self.place, base_url=self.base_url, saved=self.saved
        )


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    version: int = _VERSION
    credentials: dict[str, _Record] = {}


class _KeptTokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens as they are kept."""

    access: str
    refresh: str | None = None
    expires: int | None = None

    def __repr__(self) -> str:
        return "_KeptTokens()"


def _text_of(tokens: OAuthTokens) -> Secret:
    stored = _KeptTokens(
        access=tokens.access.reveal(),
        refresh=tokens.refresh.reveal() if tokens.refresh else None,
        expires=tokens.expires,
    )
    return Secret(msgspec.json.encode(stored).decode())


class CredentialStorage:
    """Reads and writes stored credentials. Owns the file and its lock.

    - The file is replaced in one step and is readable by its owner only. When others can read or
      write it, it is refused (CONFIG_INVALID).
    - No message of an error holds a secret.
    """

    def __init__(
        self, folder: Path, *, keyring: Callable[[], WritableKeyring | None] = usable_keyring
    ) -> None:
        self.path = folder / CREDENTIALS_FILE
        self._keyring = keyring

    @property
    def refresh_lock_path(self) -> Path:
        """The file of the lock that is held while tokens are refreshed."""
        return self.path.with_name("credentials.refresh.lock")

    def credentials(self) -> dict[str, StoredCredential]:
        """Return what is stored, by provider. Asks no keyring."""
        return {name: each.facts() for name, each in self._read().credentials.items()}

    def find(self, provider: str) -> StoredCredential | None:
        """Return what is known of one credential."""
        return self.credentials().get(provider)

    def key(self, provider: str) -> Secret:
        """Return a stored key; raises CONFIG_MISSING where there is none."""
        return Secret(self._secret(provider, "key"))

    def tokens(self, provider: str) -> OAuthTokens:
        """Return stored tokens; raises CONFIG_MISSING where there are none."""
        text = self._secret(provider, "oauth")
        try:
            stored = msgspec.json.decode(text, type=_KeptTokens)
        except ValueError:
            raise self._unreadable() from None
        return OAuthTokens(
            access=Secret(stored.access),
            refresh=Secret(stored.refresh) if stored.refresh else None,
            expires=stored.expires,
        )

    def save_key(self, provider: str, key: Secret, facts: StoredCredential) -> StoredCredential:
        """Store a key in place of what was stored for a provider; returns where it is now.

        A keyring that refuses is passed over for the file.

        Raises:
            StoreError: UNAVAILABLE when the file cannot be written.

        """
        return self._save(provider, key, msgspec.structs.replace(facts, kind="key"))

    def save_tokens(
        self, provider: str, tokens: OAuthTokens, facts: StoredCredential
    ) -> StoredCredential:
        """Store tokens, as `save_key` stores a key."""
        return self._save(provider, _text_of(tokens), msgspec.structs.replace(facts, kind="oauth"))

    def renew_tokens(
        self, provider: str, tokens: OAuthTokens, *, of: StoredCredential, saved: int
    ) -> bool:
        """Store tokens in place of those that `of` describes; returns whether these were there.

        Where they were not, after a logout or another login, nothing is stored.
        """

        def change(before: _File) -> tuple[_File, bool]:
            stored = before.credentials.get(provider)
            if stored is None or stored.facts() != of:
                return before, False
            facts = msgspec.structs.replace(of, saved=saved)
            after = self._file_with(before, provider, secret=_text_of(tokens), facts=facts)
            return after, True

        return self._change(change)

    def remove(self, provider: str) -> StoredCredential | None:
        """Remove a credential; returns what was known of it, None if there was none.

        Raises:
            StoreError: UNAVAILABLE when the file cannot be written, or the keyring refuses.

        """

        def change(before: _File) -> tuple[_File, StoredCredential | None]:
            stored = before.credentials.get(provider)
            # First from the keyring: if it refuses, the file still leads to the secret, and
            # removing can be tried again.
            if stored is not None and stored.place == "keyring" and not self._forget(provider):
                message = f"the keyring did not remove the credential of {provider!r}"
                raise StoreError(ErrorCode.UNAVAILABLE, message)
            others = {
                name: record for name, record in before.credentials.items() if name != provider
            }
            facts = None if stored is None else stored.facts()
            return msgspec.structs.replace(before, credentials=others), facts

        return self._change(change)

    def _save(self, provider: str, secret: Secret, facts: StoredCredential) -> StoredCredential:
        def change(before: _File) -> tuple[_File, StoredCredential]:
            after = self._file_with(before, provider, secret=secret, facts=facts)
            return after, after.credentials[provider].facts()

        return self._change(change)

    def _file_with(
        self, before: _File, provider: str, *, secret: Secret, facts: StoredCredential
    ) -> _File:
        """Return the file with a credential, whose secret is in the keyring if that takes it."""
        in_keyring = facts.place == "keyring" and self._put(provider, secret)
        old = before.credentials.get(provider)
        # The file is about to say that the secret is elsewhere, so nothing would lead to the old
        # one any more.
        if old is not None and old.place == "keyring" and not in_keyring:
            self._forget(provider)
        record = _Record(
            kind=facts.kind,
            place="keyring" if in_keyring else "file",
            base_url=facts.base_url,
            saved=facts.saved,
            secret=None if in_keyring else secret.reveal(),
        )
        return _File(credentials={**before.credentials, provider: record})

    def _put(self, provider: str, secret: Secret) -> bool:
        ring = self._keyring()
        # A backend raises errors of its own: locked, refused by its user, gone.
        with suppress(Exception):
            if ring is not None:
                ring.set_password(SERVICE, provider, secret.reveal())
                # Read back, because a backend may accept a secret and not keep it.
                return ring.get_password(SERVICE, provider) == secret.reveal()
        return False

    def _forget(self, provider: str) -> bool:
        ring = self._keyring()
        with suppress(Exception):
            if ring is not None and ring.get_password(SERVICE, provider) is not None:
                ring.delete_password(SERVICE, provider)
            return ring is not None
        return False

    def _secret(self, provider: str, kind: TokenKind) -> str:
        record = self._read().credentials.get(provider)
        secret = record.secret if record is not None and record.kind == kind else None
        if record is not None and record.kind == kind and record.place == "keyring":
            ring = self._keyring()
            with suppress(Exception):
                secret = None if ring is None else ring.get_password(SERVICE, provider)
        if not secret:
            reason = self._why_none(record, kind)
            raise ConfigError(
                ErrorCode.CONFIG_MISSING,
                f"no credential for {provider!r}: {reason}; run `haptera login {provider}`",
                provider=provider,
            )
        return secret

    def _why_none(self, record: _Record | None, kind: TokenKind) -> str:
        if record is None:
            return "none is stored"
        if record.kind != kind:
            return f"the one that is stored is of the kind {record.kind!r}, not {kind!r}"
        if record.place == "keyring":
            return "the keyring does not give it out"
        return f"{self.path} does not hold its secret"

    def _read(self) -> _File:
        try:
            with self.path.open("rb") as file:
                # Of the open file, not of its path: what is checked is what is read.
                self._refuse_shared(os.fstat(file.fileno()))
                content = file.read(_LARGEST)
        except FileNotFoundError:
            return _File()
        except OSError as error:
            message = f"{self.path} cannot be read: {error.strerror}"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message) from None
        try:
            decoded = msgspec.json.decode(content, type=_File)
        except ValueError:
            raise self._unreadable() from None
        if decoded.version > _VERSION:
            message = f"{self.path} was written by a newer version of Haptera"
            raise ConfigError(ErrorCode.CONFIG_INVALID, message)
        return decoded

    def _refuse_shared(self, facts: os.stat_result) -> None:
        if os.name != "posix":
            return
        if facts.st_mode & 0o077:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"{self.path} holds keys and other users can read or write it: "
                f"chmod 600 {self.path}, and replace the keys if others use this machine",
            )
        if facts.st_uid not in {os.geteuid(), 0}:
            raise ConfigError(ErrorCode.CONFIG_INVALID, f"{self.path} belongs to another user")

    def _unreadable(self) -> ConfigError:
        message = f"{self.path} is damaged; remove it and run `haptera login` again"
        return ConfigError(ErrorCode.CONFIG_INVALID, message)

    def _change(self, change: Callable[[_File], tuple[_File, T]]) -> T:
        """Replace the file by a changed one, for one process at a time."""
        try:
            with file_lock(self.path):
                before = self._read()
                after, result = change(before)
                if after != before:
                    replace_file(self.path, msgspec.json.encode(after))
                return result
        except OSError as error:
            reason = error.strerror
        # Raised outside of the handler: the frames of what failed hold the file's content.
        message = f"the credential could not be written to {self.path}: {reason}"
        raise StoreError(ErrorCode.UNAVAILABLE, message)
