"""The port to HTTP for auth: one form is posted, and the whole answer comes back."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from haptera.model.secrets import Secret


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request. Its body may hold a secret, so it is not printed."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"HttpAnswer(status={self.status})"


class Http(Protocol):
    """Posts forms.

    - A redirect is returned like any other answer; it is never followed.
    - It raises NETWORK if the peer cannot be reached, TIMEOUT if it does not answer in time,
      STREAM_INTERRUPTED if the answer breaks off, and PROTOCOL for a body of more than 64 KiB.
    - What it raises holds no field of the form.
    """

    async def post_form(self, url: str, fields: Mapping[str, str | Secret]) -> HttpAnswer:
        """Send `fields` as `application/x-www-form-urlencoded` and wait for the whole answer."""
        ...
