"""Operations: every route as data, from which routing, checks of access and OpenAPI are made.

A handler gets a `Call`: who asks, and the path, query and body as values that were checked. What is
not declared here is not served, and an operation without a scope has to be public by name.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast import AgentError
from holdfast.server.access import COOKIE, Access, Principal, Scope
from holdfast.server.gate import BodyTooLargeError
from holdfast.server.problems import Problem, problem_of
from holdfast.server.sessions import OwnerSessions

BodyT = TypeVar("BodyT")
_JSON = "application/json"
_DEEPEST = 64


class NoBody(msgspec.Struct, frozen=True):
    """What an operation without a body takes."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to an operation, checked."""

    request: Request
    principal: Principal
    sessions: OwnerSessions
    """The sessions of whoever calls, and of nobody else."""
    path: Mapping[str, str]
    query: Any
    body: Any
    access: Access


Handler = Callable[[Call], Awaitable[Response]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One route: what it takes, what it answers, who may call it."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    scope: Scope | None
    """None: public, which a test compares with the list of public routes."""
    query: type = NoBody
    body: type | None = None
    status: int = 200
    answer: Any = None
    """The type of the answer; None: no content, a file or a stream."""
    media: str = _JSON
    tag: str = "sessions"


class Dispatcher:
    """Checks a request against its operation, calls the handler, and answers failures."""

    def __init__(self, access: Access, owners: "Callable[[str], OwnerSessions]") -> None:
        self._access = access
        self._owners = owners

    def route(self, operation: Operation) -> Route:
        """Return the route of an operation."""

        async def endpoint(request: Request) -> Response:
            try:
                return await self._call(operation, request)
            except Problem as problem:
                return problem.answer()
            except AgentError as error:
                return problem_of(error).answer()
            except BodyTooLargeError:
                return Problem(413, "TOO_LARGE", "the body is too large").answer()

        return Route(operation.path, endpoint, methods=[operation.method], name=operation.name)

    async def _call(self, operation: Operation, request: Request) -> Response:
        principal = self.principal_of(request.headers, request.cookies.get(COOKIE))
        if operation.scope is None:
            principal = principal or Principal(owner="", scopes=frozenset())
        elif principal is None:
            raise Problem(401, "TOKEN_NEEDED", "send the token as `Authorization: Bearer`")
        elif operation.scope not in principal.scopes:
            raise Problem(403, "SCOPE_MISSING", f"this key does not allow {operation.scope!r}")
        if principal.by_cookie and operation.method not in {"GET", "HEAD"}:
            check_same_site(request.headers)
        call = Call(
            request=request,
            principal=principal,
            sessions=self._owners(principal.owner),
            path=request.path_params,
            query=_query_of(request, operation.query),
            body=None if operation.body is None else await body_of(request, operation.body),
            access=self._access,
        )
        return await operation.handler(call)

    def principal_of(self, headers: Mapping[str, str], cookie: str | None) -> Principal | None:
        """Return who calls, by a header or by a cookie."""
        told = headers.get("authorization", "")
        kind, _, token = told.partition(" ")
        if told:
            return self._access.principal_of(token.strip()) if kind.lower() == "bearer" else None
        if (key := headers.get("x-api-key")) is not None:
            return self._access.principal_of(key)
        return self._access.principal_of_cookie(cookie)


def check_same_site(headers: Mapping[str, str]) -> None:
    """Refuse a change that a browser sends by itself, unless a page of ours asked for it.

    Raises:
        Problem: 403.

    """
    if headers.get("x-csrf") != "1":
        raise Problem(403, "CSRF_REFUSED", "with a cookie, a change needs the header X-CSRF: 1")


async def body_of(request: Request, kind: type[BodyT]) -> BodyT:
    """Read and check a JSON body; an absent one is an empty object.

    Raises:
        Problem: 400 or 415.

    """
    content = await request.body()
    if not content:
        content = b"{}"
    elif request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise Problem(415, "CONTENT_TYPE", f"a body is {_JSON}")
    if content.count(b"[") + content.count(b"{") > _DEEPEST and _depth(content) > _DEEPEST:
        raise Problem(400, "TOO_DEEP", f"a body is nested at most {_DEEPEST} deep")
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Problem(400, "BODY_INVALID", f"the body is not valid: {error}") from error


def _query_of(request: Request, kind: type) -> Any:
    """Check the query string: unknown and repeated names are refused, not ignored."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in kind.__struct_fields__ or name in given:  # type: ignore[attr-defined]
            raise Problem(400, "QUERY_INVALID", f"there is no parameter {name[:60]!r} here")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(400, "QUERY_INVALID", f"the query is not valid: {error}") from error


def _depth(content: bytes) -> int:
    """Return how deep brackets are nested, those in strings included: an upper bound."""
    deepest = depth = 0
    for byte in content:
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def json_answer(value: Any, *, status: int = 200, **headers: str) -> Response:
    """Return a value as JSON."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    named["content-type"] = _JSON
    return Response(msgspec.json.encode(value), status_code=status, headers=named)
