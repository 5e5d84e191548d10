"""Operations: all that a client can ask for, as data, whichever way the request came.

A handler gets a `Call`: the caller, and the path, query and body as values that were checked. It
returns an answer, a file or events. HTTP and JSON-RPC are made from the same operations: routing,
the check of access, the OpenAPI document. What is not declared is not served, and an operation
without a scope is public, which a test compares with the list of public routes.
"""

import asyncio
import contextlib
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from typing import Any, Literal, TypeAlias

import msgspec

from haptera.model.secrets import token_digest
from haptera.server.access import Access, Principal, Scope
from haptera.server.event_stream import EventEncoder, SentEvent
from haptera.server.limits import OpenLimit, RateLimit
from haptera.server.problems import ProblemError
from haptera.server.sessions import Hub, OwnerSessions

JSON = "application/json"
HTML = "text/html"
FILE_TYPES = ("application/octet-stream", "application/x-ndjson", JSON)
"""What a file may be sent as. None of them is a type that a form of another site can send."""
ONE_SESSION = "/api/v1/sessions/{session_id}"
_PATH_NAME = re.compile(r"\{([a-z_]+)\}")


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operation without parameters takes."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What bodies share: unknown fields are refused."""


async def _no_file() -> AsyncGenerator[bytes, None]:
    return
    yield b""  # makes this a generator, which yields nothing


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to an operation, checked. What has a default here is a header in HTTP."""

    principal: Principal
    server: "Server"
    path: Mapping[str, str]
    query: Any
    body: Any
    file: AsyncIterable[bytes] = msgspec.field(default_factory=_no_file)
    """The content of an operation whose body is `bytes`."""
    root: str = ""
    """The path under which the application is mounted."""
    client: str = ""
    """The network address of the client, by which wrong credentials are counted."""
    is_secure: bool = False
    """Whether the connection has TLS."""
    cookie: str | None = None
    if_match: str | None = None
    """The ETag that a session must still have."""
    last_event_id: str | None = None
    wait: int | None = None
    """How many seconds to wait for the end of a query; None: not at all."""
    wants_stream: bool = False
    """Whether the answer is to be events as they happen."""
    left: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the client has gone: nothing is waited for on its behalf any more."""

    @property
    def sessions(self) -> OwnerSessions:
        """The sessions of the caller."""
        return self.server.hub.owner(self.principal.owner)

    def is_allowed(self) -> bool:
        """Whether the caller's credential still holds; a stream may outlive it."""
        return self.server.access.is_valid(self.principal)


class OperationAnswer(msgspec.Struct, frozen=True):
    """A value as the answer of an operation."""

    value: object = None
    """None: there is nothing to say."""
    status: int | None = None
    """The HTTP status; None: that of the operation."""
    headers: Mapping[str, str] = {}


class FileAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A file as the answer of an operation, in pieces."""

    name: str
    media_type: str
    pieces: AsyncGenerator[bytes, None]
    headers: Mapping[str, str] | None = None
    """More headers of HTTP; None: those of a file to save, which no browser shows."""


class EventAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Events as the answer of an operation, as they happen."""

    batches: AsyncGenerator[list[SentEvent], None]
    """What is ready, at once; the first batch comes immediately. Must be closed."""
    on_end: Callable[[], object]
    """Gives back what the stream holds; must be called, also when no batch was taken."""
    value: object = None
    """What there is to say before the first event."""
    session_id: str | None = None
    """The session of the events; None: each names its own."""
    after: int = 0
    """The `seq` that the events begin after."""
    is_endless: bool = False
    """Whether the events go on until the client leaves."""


AnyAnswer: TypeAlias = OperationAnswer | FileAnswer | EventAnswer
Handler: TypeAlias = Callable[[Call], Awaitable[AnyAnswer]]


async def _unserved(_call: Call) -> AnyAnswer:
    raise TypeError("an operation decorates its handler")


class ServedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: what it takes, what it answers, who may call it. Decorates its handler."""

    method: str
    path: str
    rpc: str | None
    """The method of JSON-RPC; None: the operation is about cookies, which only browsers have."""
    scope: Scope | None
    """None: public."""
    handler: Handler = _unserved
    name: str = ""
    """Empty: that of the handler."""
    summary: str = ""
    """Empty: the first line of what the handler says of itself."""
    query: type[msgspec.Struct] = Nothing
    body: type | None = None
    """The type of a JSON body; `bytes`: a file, which the handler reads."""
    body_bytes: int | None = None
    """The largest body, where it is known to be smaller than that of other operations."""
    options: tuple[Literal["wait", "stream", "if_match"], ...] = ()
    """What else a call can ask for: headers in HTTP, parameters in JSON-RPC."""
    status: int = 200
    also: tuple[int, ...] = ()
    """Other statuses of success with the same type of answer."""
    answer: Any = None
    """The type of the answer; None: no content, a file or a stream."""
    media: tuple[str, ...] = (JSON,)
    tag: str = "sessions"

    def __call__(self, handler: Handler) -> "ServedOperation":
        """Return the operation with its handler, and what that says of itself."""
        return msgspec.structs.replace(
            self,
            handler=handler,
            name=self.name or handler.__name__,
            summary=self.summary or (handler.__doc__ or "").partition("\n")[0],
        )

    @property
    def path_names(self) -> list[str]:
        """The names of the parameters in the path."""
        return _PATH_NAME.findall(self.path)


class Server:
    """What all operations share."""

    def __init__(self, hub: Hub, access: Access, operations: Sequence[ServedOperation]) -> None:
        self.hub = hub
        self.access = access
        self.operations = tuple(operations)
        self.encoder = EventEncoder()
        self._rate = RateLimit(hub.settings.requests_per_second, clock=access.clock)
        self._failures = RateLimit(hub.settings.failures_per_second, clock=access.clock)
        self._readings = RateLimit(hub.settings.readings_per_second, clock=access.clock)
        most = hub.settings.requests_per_owner
        self._requests = OpenLimit("requests", each=most)
        self._public = OpenLimit("requests", each=most)

    def authorise(self, operation: ServedOperation, principal: Principal) -> None:
        """Check that a caller may use an operation.

        Raises:
            ProblemError: 403.

        """
        self.hub.owner(principal.owner)
        if operation.scope not in principal.scopes:
            raise ProblemError(403, "SCOPE_MISSING", f"this key does not allow {operation.scope!r}")

    def count(self, principal: Principal) -> None:
        """Count a request of a caller.

        Raises:
            ProblemError: 429.

        """
        self._rate.take(principal.owner)

    @property
    def requests_in_progress(self) -> int:
        """How many requests are in progress."""
        return self._requests.open + self._public.open

    @contextlib.contextmanager
    def in_progress(self, owner: str, client: str = "") -> Generator[None, None, None]:
        """Count a request while the block runs: for its owner, or for a client that names none.

        Raises:
            ProblemError: 429 when there are too many.

        """
        end = self._requests.begin(owner) if owner else self._public.begin(client)
        try:
            yield
        finally:
            end()

    def check_open(self) -> None:
        """Refuse a call while the server shuts down, or its store does not answer.

        Raises:
            ProblemError: 503.

        """
        if self.hub.is_closing:
            raise ProblemError(
                503, "SHUTTING_DOWN", "the server shuts down", retryable=True, retry_after=1.0
            )
        self.hub.health.refuse()

    def count_failure(self, client: str) -> None:
        """Count a request with a wrong credential.

        Raises:
            ProblemError: 429 when there are too many from one client.

        """
        self._failures.take(client)

    def count_reading(self, token: str) -> None:
        """Count a request with the token of a link, whether it is right or wrong.

        Raises:
            ProblemError: 429 when there are too many with this one.

        """
        self._readings.take(token_digest(token))
