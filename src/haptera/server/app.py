"""create_app: an ASGI application that serves the sessions of agents over HTTP."""

import contextlib
from collections.abc import AsyncGenerator, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from haptera import Agent, ConfigError, ErrorCode
from haptera.access.failure_log import FailureLog
from haptera.server.access import Access
from haptera.server.endpoint import routes_of
from haptera.server.event_routes import EVENT_OPERATIONS
from haptera.server.gate import RequestGate
from haptera.server.history_routes import HISTORY_OPERATIONS
from haptera.server.limits import ServerSettings, checked_settings
from haptera.server.message_routes import MESSAGE_OPERATIONS
from haptera.server.operations import Server
from haptera.server.problems import ProblemError
from haptera.server.responses import problem_response, request_id_of
from haptera.server.resume_routes import RESUME_OPERATIONS
from haptera.server.rpc_routes import rpc_routes
from haptera.server.server_routes import SERVER_OPERATIONS
from haptera.server.session_operations import served_besides
from haptera.server.session_routes import SESSION_OPERATIONS
from haptera.server.sessions import Hub
from haptera.server.share_routes import SHARE_OPERATIONS

_failures = FailureLog(__name__)
_ROWS = (
    *SERVER_OPERATIONS,
    *SESSION_OPERATIONS,
    *HISTORY_OPERATIONS,
    *MESSAGE_OPERATIONS,
    *RESUME_OPERATIONS,
    *EVENT_OPERATIONS,
    *SHARE_OPERATIONS,
)
OPERATIONS = (*_ROWS, *served_besides(_ROWS))
_CORS_REQUEST = [
    *("Authorization", "Content-Type", "If-Match", "Last-Event-ID", "Prefer"),
    *("X-Api-Key", "X-Request-Id"),
]
_CORS_RESPONSE = ["ETag", "Location", "Preference-Applied", "Retry-After", "X-Request-Id"]
_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_DETAILS = {
    404: "there is no such route; GET /openapi.json lists them",
    405: "this route does not have this method",
}


class HapteraApp:
    """An ASGI application. Made by `create_app`; a server or another application runs it."""

    def __init__(self, app: ASGIApp, hub: Hub, inner: Starlette) -> None:
        self._app = app
        self.hub = hub
        self.inner = inner
        """The application behind the gate, with its routes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        A failure that was not foreseen stops here, where the log leaves secrets out: a server such
        as uvicorn would print it as it is.
        """
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        # The latter: in the middle of a body.
        with self.hub.loop.watched(), _failures, contextlib.suppress(ClientDisconnect):
            await self._app(scope, receive, send)

    def end_streams(self) -> None:
        """End every open stream, so that a server can shut down: clients resume elsewhere."""
        self.hub.end_streams()

    def suspend_queries(self) -> None:
        """Close the sessions at once; their queries have no end, and are carried on later."""
        self.hub.suspend_queries()

    def abort_queries(self) -> None:
        """Abort every running query and close the sessions: `close` then waits for little."""
        self.hub.abort_queries()

    async def close(self) -> None:
        """End streams and close the sessions; the agents stay open. The lifespan does this, too."""
        await self.hub.close()


def create_app(
    agent: Agent,
    *,
    token: str | None = None,
    access: Access | None = None,
    agents: Callable[[str], Agent | None] | None = None,
    settings: ServerSettings | None = None,
) -> HapteraApp:
    """Return an ASGI application that serves the sessions of an agent.

    `token` is what clients send as `Authorization: Bearer`; `access` has keys of several owners
    instead. `agents` returns the agent of each other owner, or None to refuse it: an agent sees the
    sessions of its own owner only. The agents belong to the caller, who closes them afterwards.

    Raises:
        ConfigError: CONFIG_MISSING without a token and without access, CONFIG_INVALID when the
            token is too short, or naming the field of the settings that is not valid.

    """
    if access is None:
        if token is None:
            raise ConfigError(
                ErrorCode.CONFIG_MISSING, "a server needs a token: haptera.server.new_token()"
            )
        access = Access(token)
    access.adopt(owner=agent.owner, clock=agent.clock)
    settings = checked_settings(settings or ServerSettings())
    own = access.owner

    def agent_of(owner: str) -> Agent | None:
        if owner == own:
            return agent
        return agents(owner) if agents is not None else None

    hub = Hub(agent_of, settings, owners=lambda: access.owners)
    server = Server(hub, access, OPERATIONS)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        del app
        hub.start()
        try:
            yield
        finally:
            await hub.close()

    inner = Starlette(
        routes=[*routes_of(server), *rpc_routes(server)],
        middleware=_cors(settings),
        exception_handlers={HTTPException: _refused, Exception: _failed},
        lifespan=lifespan,
    )
    inner.router.redirect_slashes = False
    return HapteraApp(RequestGate(inner, settings), hub, inner)


def _cors(settings: ServerSettings) -> list[Middleware]:
    """Let pages of named origins read answers; cookies stay on the server's own pages."""
    if not settings.origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(settings.origins),
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=_CORS_REQUEST,
            expose_headers=_CORS_RESPONSE,
        )
    ]


async def _refused(request: Request, error: Exception) -> Response:
    """Answer what the router refuses."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    problem = ProblemError(
        status, _CODES.get(status, "BAD_REQUEST"), _DETAILS.get(status, "refused")
    )
    return problem_response(problem, request.scope, **headers)


async def _failed(request: Request, error: Exception) -> Response:
    """Answer an unforeseen failure without saying what it was: the log has it, with the id."""
    error.add_note(f"X-Request-Id: {request_id_of(request.scope)}")
    problem = ProblemError(500, "INTERNAL", "the server failed; its log says why")
    return problem_response(problem, request.scope)
