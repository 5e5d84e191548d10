"""Token sources of stored credentials: a key, or a login whose tokens are refreshed over HTTP."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from haptera.access.auth.credential_storage import CredentialStorage
from haptera.access.auth.oauth import OAuthTokenSource
from haptera.access.config.connections import ProviderConnection
from haptera.model.errors import ConfigError, ErrorCode, ProviderError, RequestError
from haptera.model.secrets import Secret
from haptera.model.settings import Timeouts
from haptera.ports.http import HttpAnswer
from haptera.providers.transport.protocol import HttpRequest
from haptera.system.clock import Clock
from haptera.system.token_source import Origin, TokenKind, TokenSource

if TYPE_CHECKING:
    from haptera.providers.transport.protocol import Reply, Transport

_LONGEST_SECONDS = 60.0
_LARGEST_ANSWER = 64 * 1024
_TIMEOUTS = Timeouts(connect=10, first_byte=30, between_bytes=10, content=30)


class TransportHttp:
    """Posts forms over a transport; implements `Http`. Does not own the transport."""

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport

    async def post_form(self, url: str, fields: Mapping[str, str | Secret]) -> HttpAnswer:
        """Send `fields` as a form and wait for the whole answer."""
        plain = {
            name: value.reveal() if isinstance(value, Secret) else value
            for name, value in fields.items()
        }
        request = HttpRequest(
            url=url,
            headers={
                "content-type": "application/x-www-form-urlencoded",
                "accept": "application/json",
            },
            body=urlencode(plain).encode(),
            timeouts=_TIMEOUTS,
        )
        try:
            # The timeouts of the transport bound each wait; a server that sends a byte at a time
            # would pass them all.
            async with asyncio.timeout(_LONGEST_SECONDS):
                reply = await self._transport.send(request)
                return HttpAnswer(status=reply.status, body=await _whole_body(reply))
        except TimeoutError:
            message = f"the answer took longer than {_LONGEST_SECONDS:g} s"
            raise RequestError(ErrorCode.TIMEOUT, message) from None


async def _whole_body(reply: "Reply") -> bytes:
    body = bytearray()
    try:
        while piece := await reply.read():
            body += piece
            # Tokens are short; a wrong URL may answer with anything.
            if len(body) > _LARGEST_ANSWER:
                message = f"the answer has more than {_LARGEST_ANSWER} bytes"
                raise ProviderError(ErrorCode.PROTOCOL, message)
    finally:
        # Also of a body that was not read to its end: the connection is not used again.
        reply.close()
    return bytes(body)


class StoredKeySource:
    """A key of `haptera login`, read for every request."""

    kind: TokenKind = "key"

    def __init__(self, provider: str, storage: CredentialStorage) -> None:
        self._provider = provider
        self._storage = storage

    async def token(self, _origin: Origin) -> Secret:
        """Return the key; raises CONFIG_MISSING when it is not stored any more."""
        # A keyring is asked over a socket and may wait for a person.
        return await asyncio.to_thread(self._storage.key, self._provider)


def stored_source(
    connection: ProviderConnection,
    storage: CredentialStorage,
    *,
    transport: "Transport",
    clock: Clock,
) -> TokenSource:
    """Return the source of a connection's stored credential, which is read for every request.

    Raises:
        ConfigError: CONFIG_MISSING when the configuration does not say any more how to refresh it.

    """
    name, stored = connection.stored_as, connection.stored
    if stored is None or stored.kind == "key":
        return StoredKeySource(name, storage)
    if connection.oauth is None:
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            f"the login to {name!r} needs [providers.{name}.oauth] of the configuration file, "
            "which is not there any more",
            provider=connection.provider,
        )
    http = TransportHttp(transport)
    return OAuthTokenSource(name, connection.oauth, storage, http=http, clock=clock)
