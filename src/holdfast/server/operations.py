"""Operations: every route as data, from which routing, checks of access and OpenAPI are made.

A handler gets a `Call`: the caller, and the path, query and body as values that were checked. What
is not declared is not served, and an operation without a scope is public, which a test compares
with the list of public routes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from holdfast import AgentError
from holdfast.server.access import COOKIE, Access, Principal, Scope
from holdfast.server.event_stream import EventEncoder
from holdfast.server.gate import BodyTooLargeError
from holdfast.server.limits import RateLimit
from holdfast.server.problems import ProblemError, problem_of
from holdfast.server.sessions import Hub, OwnerSessions

BodyT = TypeVar("BodyT")
QueryT = TypeVar("QueryT", bound=msgspec.Struct)
JSON = "application/json"
_DEEPEST = 64
_NOBODY = Principal(owner="", scopes=frozenset())


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operation without parameters takes."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to an operation, checked."""

    request: Request
    principal: Principal
    server: "Server"
    path: Mapping[str, str]
    query: Any
    body: Any

    @property
    def sessions(self) -> OwnerSessions:
        """The sessions of the caller."""
        return self.server.hub.owner(self.principal.owner)


Handler = Callable[[Call], Awaitable[Response]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One route: what it takes, what it answers, who may call it."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    scope: Scope | None
    """None: public."""
    query: type[msgspec.Struct] = Nothing
    body: type | None = None
    """The type of a JSON body; `bytes`: a file, which the handler reads."""
    status: int = 200
    also: tuple[int, ...] = ()
    """Other statuses of success with the same type of answer."""
    answer: Any = None
    """The type of the answer; None: no content, a file or a stream."""
    media: tuple[str, ...] = (JSON,)
    tag: str = "sessions"


class Server:
    """What all operations share."""

    def __init__(self, hub: Hub, access: Access, operations: Sequence[Operation]) -> None:
        self.hub = hub
        self.access = access
        self.operations = tuple(operations)
        self.encoder = EventEncoder()
        self._rate = RateLimit(hub.settings.requests_per_second)
        self._failures = RateLimit(hub.settings.failures_per_second)

    def routes(self) -> list[Route]:
        """Return one route for each path."""
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in self.operations:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        return [Endpoint.route(self, path, methods) for path, methods in by_path.items()]

    def authorise(self, operation: Operation, request: Request) -> Principal:
        """Return the caller of an operation.

        Raises:
            ProblemError: 401, 403 or 429.

        """
        if operation.scope is None:
            return _NOBODY
        principal = self._principal_of(request)
        if principal is None:
            self.count_failure(request)
            raise ProblemError(
                401, "TOKEN_REQUIRED", "send a valid token as `Authorization: Bearer`"
            )
        self._rate.take(principal.owner)
        self.hub.owner(principal.owner)
        if operation.scope not in principal.scopes:
            raise ProblemError(403, "SCOPE_MISSING", f"this key does not allow {operation.scope!r}")
        if principal.by_cookie and operation.method != "GET":
            _check_same_site(request.headers)
        return principal

    def count_failure(self, request: Request) -> None:
        """Count a request with a wrong credential.

        Raises:
            ProblemError: 429 when there are too many from one client.

        """
        self._failures.take(request.client.host if request.client else "")

    def _principal_of(self, request: Request) -> Principal | None:
        told = request.headers.get("authorization")
        if told is not None:
            kind, _, token = told.partition(" ")
            return self.access.principal_of(token.strip()) if kind.lower() == "bearer" else None
        if (key := request.headers.get("x-api-key")) is not None:
            return self.access.principal_of(key)
        return self.access.principal_of_cookie(request.cookies.get(COOKIE))


class Endpoint:
    """Checks a request against the operations of one path, and calls the handler."""

    def __init__(self, server: Server, operations: Mapping[str, Operation]) -> None:
        self._server = server
        self.operations = operations

    @classmethod
    def route(cls, server: Server, path: str, operations: Mapping[str, Operation]) -> Route:
        """Return the route of a path."""
        route = Route(path, cls(server, operations), methods=list(operations))
        route.methods = set(operations)  # a HEAD of a stream would never end
        return route

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        try:
            answer = await self._call(self.operations[request.method], request)
        except ProblemError as problem:
            answer = problem.answer()
        except AgentError as error:
            answer = problem_of(error).answer()
        except BodyTooLargeError:
            answer = ProblemError(413, "TOO_LARGE", "the body is too large").answer()
        await answer(scope, receive, send)

    async def _call(self, operation: Operation, request: Request) -> Response:
        principal = self._server.authorise(operation, request)
        if operation.scope is not None and self._server.hub.is_closing:
            raise ProblemError(
                503, "SHUTTING_DOWN", "the server shuts down", retryable=True, retry_after=1.0
            )
        has_json = operation.body not in {None, bytes}
        call = Call(
            request=request,
            principal=principal,
            server=self._server,
            path=request.path_params,
            query=_query_of(request, operation.query),
            body=await body_of(request, operation.body) if has_json and operation.body else None,
        )
        return await operation.handler(call)


def _check_same_site(headers: Mapping[str, str]) -> None:
    """Refuse a change that a browser could have sent by itself.

    Raises:
        ProblemError: 403.

    """
    if headers.get("x-csrf") != "1" or "origin" not in headers:
        raise ProblemError(
            403, "CSRF_REFUSED", "with a cookie, a change needs Origin and the header X-CSRF: 1"
        )


async def body_of(request: Request, kind: type[BodyT]) -> BodyT:
    """Read and check a JSON body; an absent one is an empty object.

    Raises:
        ProblemError: 400 or 415.

    """
    content = await request.body()
    told = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content and told != JSON:
        raise ProblemError(415, "CONTENT_TYPE", f"a body is {JSON}")
    if content.count(b"[") + content.count(b"{") > _DEEPEST and _depth(content) > _DEEPEST:
        raise ProblemError(400, "TOO_DEEP", f"a body is nested at most {_DEEPEST} deep")
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ProblemError(400, "BODY_INVALID", f"the body is not valid: {error}") from error


def _query_of(request: Request, kind: type[QueryT]) -> QueryT:
    """Check the query string: unknown and repeated names are refused, not ignored."""
    given: dict[str, str] = {}
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name, value in request.query_params.multi_items():
        if name not in known or name in given:
            raise ProblemError(400, "QUERY_INVALID", f"there is no parameter {name[:60]!r} here")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemError(400, "QUERY_INVALID", f"the query is not valid: {error}") from error


def _depth(content: bytes) -> int:
    """Return how deep brackets are nested; brackets in strings count, so it is an upper bound."""
    deepest = depth = 0
    for byte in content:
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def json_answer(value: object, *, status: int = 200, **headers: str) -> Response:
    """Return a value as JSON."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    named["content-type"] = JSON
    return Response(msgspec.json.encode(value), status_code=status, headers=named)
