"""Responses: what operations answer, as HTTP sends it."""

import html
import math
import re
import secrets

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from haptera.server.event_stream import SSE
from haptera.server.loop_slices import next_turn
from haptera.server.operations import HTML, JSON, AnyAnswer, EventAnswer, FileAnswer
from haptera.server.problems import PROBLEM_TYPE, ProblemError

_RETRY = b"retry: 1000\n\n"
_UNAUTHORISED = 401
_REQUEST_ID = "haptera.request_id"
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_STREAM_HEADERS = {
    "content-type": SSE,
    # Proxies that compress or buffer would hold events back; the third header is nginx's.
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}


def response_of(answer: AnyAnswer, *, status: int) -> Response:
    """Return the response to a request; `status` is that of the operation."""
    match answer:
        case EventAnswer():
            return EventResponse(answer)
        case FileAnswer():
            more = answer.headers or {
                "content-disposition": f'attachment; filename="{answer.name}"',
                # A file may be a page with a model's words in it: no script in it runs on the
                # server's origin.
                "content-security-policy": "sandbox",
            }
            headers = {"content-type": answer.media_type, **more}
            return StreamingResponse(answer.pieces, headers=headers)
    content, headers = b"", dict(answer.headers)
    if answer.value is not None:
        content, headers["content-type"] = msgspec.json.encode(answer.value), JSON
    return Response(content, status_code=answer.status or status, headers=headers)


class EventResponse(StreamingResponse):
    """A stream of server-sent events, which gives back what it holds also when it never begins.

    `id:` is the `seq` of an entry, so that a browser goes on from there with `Last-Event-ID`.
    """

    def __init__(self, answer: EventAnswer) -> None:
        super().__init__((), headers=_STREAM_HEADERS)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client goes away."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.on_end()
            await self._answer.batches.aclose()

    async def stream_response(self, send: Send) -> None:
        """Send one piece for each batch: the connection writes it at once."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        before = _RETRY
        async for batch in self._answer.batches:
            body = before + b"".join([event.frame for event in batch])
            await send({"type": "http.response.body", "body": body, "more_body": True})
            before = b""
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def refuse_websocket(websocket: WebSocket, problem: ProblemError) -> None:
    """Refuse a connection with the response that HTTP has, where the ASGI server can send it."""
    # ASGI has the connect message taken before anything may be sent.
    await websocket.receive()
    if "websocket.http.response" in websocket.scope.get("extensions", {}):
        await websocket.send_denial_response(problem_response(problem, websocket.scope))
        # uvicorn logs an error unless the connection is over, which is one step of the loop away.
        await next_turn()
    else:
        await websocket.close(1008, problem.body.detail)


def request_id_of(scope: Scope) -> str:
    """Return the id of a request: the one that a proxy or client has given it, or a new one."""
    if _REQUEST_ID not in scope:
        values = [value for name, value in scope["headers"] if name == b"x-request-id"]
        # It goes into the log and into a header, so only plain characters are taken over.
        is_usable = len(values) == 1 and _GIVEN_ID.fullmatch(values[0])
        scope[_REQUEST_ID] = values[0].decode() if is_usable else f"req_{secrets.token_hex(10)}"
    request_id: str = scope[_REQUEST_ID]
    return request_id


def problem_response(problem: ProblemError, scope: Scope, **headers: str) -> Response:
    """Return a problem as RFC 9457 says it."""
    body = msgspec.structs.replace(problem.body, request_id=request_id_of(scope))
    headers |= {"content-type": PROBLEM_TYPE, **_problem_headers(problem)}
    return Response(msgspec.json.encode(body), status_code=body.status, headers=headers)


def problem_page(problem: ProblemError) -> Response:
    """Return a problem as a page for people."""
    body = problem.body
    title, detail = html.escape(body.title), html.escape(body.detail)
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<h1>{title}</h1><p>{detail}.</p></html>\n"
    )
    headers = {"content-type": f"{HTML}; charset=utf-8", **_problem_headers(problem)}
    return Response(page.encode(), status_code=body.status, headers=headers)


def _problem_headers(problem: ProblemError) -> dict[str, str]:
    headers: dict[str, str] = {}
    if problem.body.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(problem.body.retry_after)))
    if problem.body.status == _UNAUTHORISED:
        headers["www-authenticate"] = 'Bearer realm="haptera"'
    return headers
