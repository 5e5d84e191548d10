"""JSON-RPC over HTTP: WebSocket with events, and `POST /rpc` for calls alone.

Both need a credential. The gate has checked host and origin before.
"""

import contextlib
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from haptera.server.access import Principal
from haptera.server.bodies import json_of, limited_request
from haptera.server.endpoint import (
    SOCKET_PROTOCOL,
    authenticated,
    check_same_site,
    noticing_departure,
)
from haptera.server.gate import own_origins
from haptera.server.operations import JSON, Server
from haptera.server.problems import ProblemError
from haptera.server.responses import problem_response, refuse_websocket
from haptera.server.rpc_connection import RpcConnection
from haptera.server.rpc_methods import RpcMethods
from haptera.system.owned_tasks import OwnedTasks

RPC_PATH = "/rpc"
_NO_CONTENT = 204
_TOO_LARGE = 1009
_SHUTTING_DOWN = 1012


def rpc_routes(server: Server) -> list[BaseRoute]:
    """Return the routes of JSON-RPC."""
    endpoint = RpcEndpoint(server)
    return [
        Route(RPC_PATH, endpoint.post, methods=["POST"]),
        WebSocketRoute(RPC_PATH, endpoint.socket),
    ]


class RpcEndpoint:
    """Answers JSON-RPC over HTTP."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._methods = RpcMethods(server)

    async def post(self, request: Request) -> Response:
        """Answer one message, a batch included; events need a WebSocket."""
        try:
            principal = authenticated(self._server, request)
            if principal.by_cookie:
                check_same_site(request.headers)
            self._server.count(principal)
            with self._server.in_progress(principal.owner):
                return await self._answered(request, principal)
        except ProblemError as problem:
            return problem_response(problem, request.scope)

    async def _answered(self, request: Request, principal: Principal) -> Response:
        settings = self._server.hub.settings
        request = limited_request(request, settings.body_bytes, seconds=settings.body_seconds)
        content = await json_of(request)
        connection = RpcConnection(self._methods, caller=lambda: principal, counted=1)
        async with noticing_departure(request, connection.left):
            answered = await connection.answer(content)
        if answered is None:
            return Response(status_code=_NO_CONTENT)
        return Response(answered, media_type=JSON)

    async def socket(self, websocket: WebSocket) -> None:
        """Answer the messages of a client until it goes away."""
        try:
            principal = self._caller(websocket)
            self._server.check_open()
            end = self._server.hub.streams.begin(principal.owner)
        except ProblemError as problem:
            await refuse_websocket(websocket, problem)
            return
        try:
            offered = websocket.scope.get("subprotocols", ())
            # A browser ends a connection whose server takes none of the protocols it was offered.
            await websocket.accept(SOCKET_PROTOCOL if SOCKET_PROTOCOL in offered else None)
            await self._serve(websocket)
        finally:
            end()

    async def _serve(self, websocket: WebSocket) -> None:
        limit = self._server.hub.settings.body_bytes

        async def send(messages: Sequence[bytes]) -> None:
            try:
                for message in messages:
                    await websocket.send_text(message.decode())
            # Starlette raises RuntimeError for a socket that was closed from this side.
            except (WebSocketDisconnect, RuntimeError) as error:
                raise ConnectionResetError from error

        # The credential is looked at for each call: a key expires, and a browser logs out.
        connection = RpcConnection(self._methods, caller=lambda: self._caller(websocket), send=send)
        tasks = OwnedTasks()
        tasks.start(self._end(websocket, connection), name="haptera-rpc-end")
        try:
            while (content := await _next(websocket)) is not None:
                if len(content) > limit:
                    await websocket.close(_TOO_LARGE, f"a message has at most {limit} bytes")
                    break
                await connection.take(await connection.read(content))
        except ConnectionError:
            pass
        finally:
            await tasks.cancel(within=None)
            await connection.close()

    async def _end(self, websocket: WebSocket, connection: RpcConnection) -> None:
        """Close the connection when the server shuts down, after what subscriptions say last."""
        await self._server.hub.closing.wait()
        await connection.subscriptions_ended()
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the client has gone
            await websocket.close(_SHUTTING_DOWN, "the server shuts down")

    def _caller(self, websocket: WebSocket) -> Principal:
        principal = authenticated(self._server, websocket)
        host, origin = websocket.headers.get("host", ""), websocket.headers.get("origin", "")
        if principal.by_cookie and origin.lower() not in own_origins(host):
            raise ProblemError(403, "ORIGIN_REFUSED", "a cookie is for the server's own pages")
        return principal


async def _next(websocket: WebSocket) -> bytes | None:
    """Return the next message; None when the client has gone."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    text = message.get("text")
    content: bytes = message.get("bytes") or b"" if text is None else text.encode()
    return content
