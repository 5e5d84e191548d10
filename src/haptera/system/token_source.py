"""The port to credentials: a token for each request, and the place it may be sent to."""

from typing import Literal, Protocol, TypeAlias

import msgspec

from haptera.model.secrets import Secret

TokenKind: TypeAlias = Literal["key", "oauth"]
"""A plain key, or a token that a person's login stands behind."""


class Origin(msgspec.Struct, frozen=True):
    """Where a request goes: a credential is bound to all three."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


class TokenSource(Protocol):
    """Gives the credential of one request.

    - `token` is called once for each request; the caller does not keep what it returns.
    - It raises CONFIG_MISSING where there is no credential, AUTH where one could not be had.
    - A source that is bound to an origin gives nothing to any other one.
    """

    @property
    def kind(self) -> TokenKind:
        """What sort of credential this is."""
        ...

    async def token(self, origin: Origin) -> Secret:
        """Return the credential for a request to `origin`."""
        ...
