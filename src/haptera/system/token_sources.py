"""Token sources: a fixed key, an environment variable, a function, a command.

A source is called once for each request. `BoundTokenSource` binds any of them to one origin, so
that a credential is sent to no other host.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import urlsplit

from haptera.model.errors import ConfigError, ErrorCode, ProviderError
from haptera.model.secrets import Secret, without_secrets
from haptera.system.token_source import Origin, TokenKind, TokenSource

COMMAND_SECONDS = 10.0
"""How long a token command may run."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class StaticTokenSource:
    """The same credential for every request."""

    def __init__(self, secret: Secret | str, *, kind: TokenKind = "key") -> None:
        self.kind: TokenKind = kind
        self._secret = secret if isinstance(secret, Secret) else Secret(secret)

    async def token(self, _origin: Origin) -> Secret:
        """Return the credential."""
        return self._secret


class EnvironmentTokenSource:
    """An environment variable, read for every request."""

    def __init__(
        self, name: str, environment: Mapping[str, str], *, kind: TokenKind = "key"
    ) -> None:
        self.kind: TokenKind = kind
        self._name = name
        self._environment = environment

    async def token(self, origin: Origin) -> Secret:
        """Return the variable's value; raises CONFIG_MISSING if it is not set."""
        value = self._environment.get(self._name, "").strip()
        if not value:
            raise ConfigError(
                ErrorCode.CONFIG_MISSING,
                f"no credential for {origin.host}: set {self._name} or pass api_key",
            )
        return Secret(value)


class CallableTokenSource:
    """A function of the user, sync (run in a thread) or async."""

    def __init__(
        self,
        function: Callable[[], str | Secret | Awaitable[str | Secret]],
        *,
        kind: TokenKind = "key",
    ) -> None:
        self.kind: TokenKind = kind
        self._function = function

    async def token(self, origin: Origin) -> Secret:
        """Call the function; raises AUTH if it fails or returns an empty value."""
        try:
            value = await self._call()
        except Exception as error:  # noqa: BLE001 - a function of the user may raise anything
            # The exception may quote the credential, so only its type is repeated.
            failure = _no_token(origin, f"the function raised {type(error).__name__}")
            raise failure from without_secrets(error)
        if not isinstance(value, str | Secret):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the function for the key returned {type(value).__name__}, not text",
            )
        secret = value if isinstance(value, Secret) else Secret(value)
        if not secret:
            raise _no_token(origin, "the function returned nothing")
        return secret

    async def _call(self) -> str | Secret:
        # A plain function may return an awaitable, too, as a lambda around an async one does.
        is_async = inspect.iscoroutinefunction(self._function)
        value = self._function() if is_async else await asyncio.to_thread(self._function)
        return value if isinstance(value, str | Secret) else await value


class CommandTokenSource:
    """The first line that a command prints; it is run without a shell."""

    def __init__(
        self, command: Sequence[str], *, kind: TokenKind = "key", seconds: float = COMMAND_SECONDS
    ) -> None:
        self.kind: TokenKind = kind
        self._command = tuple(command)
        self._seconds = seconds

    async def token(self, origin: Origin) -> Secret:
        """Run the command; raises AUTH if it fails, prints nothing or takes too long."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                # A command that asks for something gets an end of file, and does not wait at the
                # terminal.
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise _no_token(origin, f"{self._command[0]!r} cannot be started") from error
        try:
            async with asyncio.timeout(self._seconds):
                printed = Secret(_first_line((await process.communicate())[0]))
        except TimeoutError as error:
            raise _no_token(
                origin, f"{self._command[0]!r} took longer than {self._seconds:g} s"
            ) from error
        finally:
            await _end(process)
        if process.returncode:
            raise _no_token(origin, f"{self._command[0]!r} ended with {process.returncode}")
        if not printed:
            raise _no_token(origin, f"{self._command[0]!r} printed nothing")
        return printed


class BoundTokenSource:
    """A source that gives its credential for one origin only."""

    def __init__(self, source: TokenSource, origin: Origin) -> None:
        self._source = source
        self._origin = origin

    @property
    def kind(self) -> TokenKind:
        """The kind of the credential."""
        return self._source.kind

    async def token(self, origin: Origin) -> Secret:
        """Return the credential; raises CONFIG_INVALID for any origin but the bound one."""
        if origin != self._origin:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the credential is for {self._origin} and was not sent to {origin}",
            )
        # The source may be the user's own, so its result is checked, whatever it declares.
        answer: object = await self._source.token(origin)
        value = answer.reveal() if isinstance(answer, Secret) else answer
        if not isinstance(value, str):
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"the credential for {origin.host} must be text, not {type(value).__name__}",
            )
        # A key from a file may end with a line end, which a header cannot contain.
        return Secret(value.strip())


def origin_of(url: str) -> Origin:
    """Return the origin of `url`; raises ValueError if it has none."""
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    if not parts.hostname or port is None:
        raise ValueError(f"{url!r} names no http or https host")
    return Origin(scheme=parts.scheme, host=parts.hostname, port=port)


def _first_line(printed: bytes) -> str:
    return printed.decode("utf-8", "replace").strip().partition("\n")[0].strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it still runs."""
    if process.returncode is None:
        process.kill()
        # A caller that is cancelled must not leave a zombie behind.
        await asyncio.shield(process.wait())


def _no_token(origin: Origin, reason: str) -> ProviderError:
    return ProviderError(ErrorCode.AUTH, f"no credential for {origin.host}: {reason}")
