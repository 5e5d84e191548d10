"""Bodies of requests: how large one may be, and how long it may take to come.

The size is known before anything is read, from the operation that gets the body. The time is that
of the body as a whole: a client that sends a byte now and then does not get more of it.
"""

import asyncio

from starlette.requests import Request
from starlette.types import Message, Receive

from haptera.server.limits import ServerSettings
from haptera.server.operations import FILE_TYPES, JSON, ServedOperation
from haptera.server.problems import ProblemError

_UNREAD_BYTES = 4 * 1024
"""What may come with a request whose operation takes nothing: some clients send `{}`."""
_PUBLIC_SECONDS = 10.0
"""How long a body may take that comes without a credential."""


def largest_body(operation: ServedOperation, settings: ServerSettings) -> int:
    """Return how many bytes the body of a request to an operation has at most."""
    if operation.body is bytes:
        return settings.import_bytes
    if operation.body is None:
        return _UNREAD_BYTES
    return min(settings.body_bytes, operation.body_bytes or settings.body_bytes)


def limited_by(operation: ServedOperation, settings: ServerSettings, request: Request) -> Request:
    """Return a request whose body is as large and slow as its operation allows."""
    seconds = settings.import_seconds if operation.body is bytes else settings.body_seconds
    if operation.scope is None:
        seconds = min(seconds, _PUBLIC_SECONDS)
    return limited_request(request, largest_body(operation, settings), seconds=seconds)


def limited_request(request: Request, limit: int, *, seconds: float) -> Request:
    """Return a request whose body has at most `limit` bytes and comes within some seconds from now.

    Reading it raises ProblemError: 413 before anything is read when it says to be larger, or as
    soon as it is; 408 when its time is over.
    """
    return Request(request.scope, _bounded(request, limit, seconds=seconds))


def check_file(request: Request) -> None:
    """Check the type of a body that is a file.

    Raises:
        ProblemError: 415.

    """
    if _content_type(request) not in FILE_TYPES:
        raise ProblemError(415, "CONTENT_TYPE", f"a file is sent as {' or '.join(FILE_TYPES)}")


async def json_of(request: Request) -> bytes:
    """Read the body of a request.

    Raises:
        ProblemError: 415 when it says to be something other than JSON, 413 when there is more of it
            than allowed, 408 when it does not come.

    """
    content = await request.body()
    # A form of another site can send some types without a preflight, but not this one.
    if content and _content_type(request) != JSON:
        raise ProblemError(415, "CONTENT_TYPE", f"send the header Content-Type: {JSON}")
    return content


def _bounded(request: Request, limit: int, *, seconds: float) -> Receive:
    """Count the bytes of a body as they come, until its time is over."""
    seen, is_complete = 0, False
    end = asyncio.get_running_loop().time() + seconds
    # The gate has checked that it is a number.
    is_too_large = int(request.headers.get("content-length", "0")) > limit

    async def count() -> Message:
        nonlocal seen, is_complete
        if is_complete:
            return await request.receive()  # this waits for the client to leave
        if is_too_large:
            raise _too_large(limit)
        try:
            async with asyncio.timeout_at(end):
                message = await request.receive()
        except TimeoutError:
            raise ProblemError(
                408, "BODY_TIMEOUT", "the body of the request did not come in time"
            ) from None
        is_complete = not message.get("more_body", False)
        seen += len(message.get("body", b""))
        if seen > limit:
            raise _too_large(limit)
        return message

    return count


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_large(limit: int) -> ProblemError:
    return ProblemError(413, "TOO_LARGE", f"a body has at most {limit} bytes")
