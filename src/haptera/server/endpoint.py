"""Endpoints: operations as routes of HTTP. Checks a request, calls the handler, answers."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import TypeVar

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from haptera import AgentError
from haptera.server.access import COOKIE, LOGIN_HEADER, Access, Principal
from haptera.server.bodies import check_file, json_of, limited_by
from haptera.server.decoding import decode_body, decoded_in_turn, field_names
from haptera.server.event_stream import SSE
from haptera.server.operations import (
    HTML,
    AnyAnswer,
    Call,
    EventAnswer,
    ServedOperation,
    Server,
)
from haptera.server.problems import ProblemError, problem_of
from haptera.server.responses import problem_page, problem_response, response_of
from haptera.system.owned_tasks import OwnedTasks

QueryT = TypeVar("QueryT", bound=msgspec.Struct)
_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:$|[,;])', re.IGNORECASE | re.ASCII)
SOCKET_PROTOCOL = "haptera"
_LOGIN_PROTOCOL = f"{SOCKET_PROTOCOL}.login."
"""Before the secret of a login, in the one header of a WebSocket that a page can choose."""
_UNAUTHENTICATED = Principal(owner="", scopes=frozenset())


def routes_of(server: Server) -> list[Route]:
    """Return one route for each path of the operations."""
    by_path: dict[str, dict[str, ServedOperation]] = {}
    for operation in server.operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [Endpoint.route(server, path, methods) for path, methods in by_path.items()]


class Endpoint:
    """Answers the requests to one path."""

    def __init__(self, server: Server, operations: Mapping[str, ServedOperation]) -> None:
        self._server = server
        self.operations = operations

    @classmethod
    def route(cls, server: Server, path: str, operations: Mapping[str, ServedOperation]) -> Route:
        """Return the route of a path."""
        route = Route(path, cls(server, operations), methods=list(operations))
        route.methods = set(operations)
        if "GET" in operations and operations["GET"].media != (SSE,):
            route.methods.add("HEAD")  # that of a stream would never end
        return route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        # A HEAD is answered as its GET is; the ASGI server leaves the body out.
        operation = self.operations["GET" if scope["method"] == "HEAD" else scope["method"]]
        settings = self._server.hub.settings
        request = limited_by(operation, settings, Request(scope, receive))
        with contextlib.ExitStack() as place:
            response = await self._response(operation, request, place)
            await response(scope, request.receive, send)

    async def _response(
        self, operation: ServedOperation, request: Request, place: contextlib.ExitStack
    ) -> Response:
        try:
            answer = await self._call(operation, request, place)
            if isinstance(answer, EventAnswer):
                place.close()  # streams have places of their own
            response = response_of(answer, status=operation.status)
            if (location := response.headers.get("location")) is not None:
                response.headers["location"] = request.scope.get("root_path", "") + location
        except ProblemError as problem:
            response = _refusal_of(operation, request, problem)
        except AgentError as error:
            response = _refusal_of(operation, request, problem_of(error))
        return response

    async def _call(
        self, operation: ServedOperation, request: Request, place: contextlib.ExitStack
    ) -> AnyAnswer:
        """Call the handler; `place` keeps the place of the request among those in progress.

        Public operations without a body have none: health is told to every client, at any time.
        """
        principal = _UNAUTHENTICATED
        if operation.scope is not None:
            principal = authenticated(self._server, request)
            # Counted before anything is looked up, so that requests that are refused count, too.
            self._server.count(principal)
            self._server.authorise(operation, principal)
            if principal.by_cookie and operation.method != "GET":
                check_same_site(request.headers)
            self._server.check_open()
        if operation.scope is not None or operation.body is not None:
            place.enter_context(self._server.in_progress(principal.owner, client_of(request)))
        headers = request.headers
        waited = _WAIT.search(",".join(headers.getlist("prefer")))
        query = _query_of(request, operation.query)
        body: object = None
        if operation.body is bytes:
            check_file(request)
        if operation.body not in {None, bytes}:
            kind, turn = operation.body, self._server.hub.decoding.of(principal.owner)
            body = await decoded_in_turn(
                turn, await json_of(request), lambda raw: decode_body(raw, kind)
            )
        call = Call(
            principal=principal,
            server=self._server,
            path=request.path_params,
            query=query,
            body=body,
            file=request.stream(),
            root=request.scope.get("root_path", ""),
            client=client_of(request),
            is_secure=request.url.scheme == "https" or self._server.hub.settings.behind_tls,
            cookie=request.cookies.get(COOKIE),
            if_match=headers.get("if-match"),
            last_event_id=headers.get("last-event-id"),
            wait=int(waited[1]) if waited else None,
            wants_stream=SSE in headers.get("accept", ""),
        )
        if "wait" not in operation.options or call.wait is None or call.wants_stream:
            return await operation.handler(call)
        async with noticing_departure(request, call.left):
            return await operation.handler(call)


@contextlib.asynccontextmanager
async def noticing_departure(request: Request, left: asyncio.Event) -> AsyncGenerator[None, None]:
    """Set an event when the client goes away while the block runs, after the body was read."""

    async def notice() -> None:
        if (await request.receive())["type"] == "http.disconnect":
            left.set()

    async with OwnedTasks() as tasks:
        tasks.start(notice(), name="haptera-client-left")
        yield


def _refusal_of(operation: ServedOperation, request: Request, problem: ProblemError) -> Response:
    """Return a problem as a page where a person asked for one, and else as JSON."""
    if HTML in operation.media and HTML in request.headers.get("accept", ""):
        return problem_page(problem)
    return problem_response(problem, request.scope)


def authenticated(server: Server, connection: HTTPConnection) -> Principal:
    """Return whose credential a request carries.

    Raises:
        ProblemError: 401, or 429 after too many wrong ones.

    """
    principal = _principal_of(server.access, connection)
    if principal is None:
        server.count_failure(client_of(connection))
        raise ProblemError(401, "TOKEN_REQUIRED", "send a valid token as `Authorization: Bearer`")
    return principal


def client_of(connection: HTTPConnection) -> str:
    """Return the network address of a client."""
    return connection.client.host if connection.client else ""


def _principal_of(access: Access, connection: HTTPConnection) -> Principal | None:
    values = connection.headers.getlist("authorization")
    if values:  # a proxy and the server might not mean the same one of several
        kind, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        return access.principal_of(token.strip()) if kind.lower() == "bearer" else None
    if (key := connection.headers.get("x-api-key")) is not None:
        return access.principal_of(key)
    return access.principal_of_login(connection.cookies.get(COOKIE), _login_secret_of(connection))


def _login_secret_of(connection: HTTPConnection) -> str | None:
    """Return the half of a login that is no cookie; a browser sends none by itself."""
    values = connection.headers.getlist(LOGIN_HEADER)
    values += [
        each.removeprefix(_LOGIN_PROTOCOL)
        for each in connection.scope.get("subprotocols", ())
        if each.startswith(_LOGIN_PROTOCOL)
    ]
    return values[0] if len(values) == 1 else None


def check_same_site(headers: Mapping[str, str]) -> None:
    """Refuse a change that a browser could have sent by itself.

    Raises:
        ProblemError: 403.

    """
    if headers.get("x-csrf") != "1" or "origin" not in headers:
        raise ProblemError(
            403, "CSRF_REFUSED", "with a cookie, a change needs Origin and the header X-CSRF: 1"
        )


def _query_of(request: Request, kind: type[QueryT]) -> QueryT:
    """Check the query string: unknown and repeated names are refused, not ignored."""
    values: dict[str, str] = {}
    names = field_names(kind)
    for name, value in request.query_params.multi_items():
        if name not in names or name in values:
            raise ProblemError(400, "QUERY_INVALID", f"there is no parameter {name[:60]!r} here")
        values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemError(400, "QUERY_INVALID", f"the query is not valid: {error}") from error
