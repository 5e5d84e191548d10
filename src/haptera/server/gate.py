"""The gate before every request: its host, its origin, its headers. For WebSocket, too.

A page of another site can make a browser send requests to this machine. The check of Host stops
names that were rebound to it, the checks of Origin and Sec-Fetch-Site stop pages. The credential is
checked afterwards, by the route.
"""

import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from haptera.server.limits import ServerSettings
from haptera.server.problems import ProblemError
from haptera.server.responses import problem_response, refuse_websocket, request_id_of

_NAMES = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")
_LENGTH = re.compile(r"[0-9]{1,18}")
_SAFE = frozenset(("GET", "HEAD"))
_HEADER_BYTES = 64 * 1024
_HOST_REFUSED = (
    "the server does not answer to this host name; `haptera serve --allow-host` or "
    "ServerSettings(hosts=) adds one"
)
_ORIGIN_REFUSED = (
    "requests from this origin are refused; `haptera serve --cors` or ServerSettings(origins=) "
    "allows one"
)
_SECURE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")


class RequestGate:
    """An ASGI layer that refuses a request before anything else looks at it."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with what is wrong."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        problem = self._refusal(scope)
        if scope["type"] == "websocket":
            if problem is None:
                await self._app(scope, receive, send)
            else:
                await refuse_websocket(WebSocket(scope, receive, send), problem)
        elif problem is None:
            await self._app(scope, receive, self._hardened(scope, send))
        else:
            response = problem_response(problem, scope)
            await response(scope, receive, self._hardened(scope, send))

    def _refusal(self, scope: Scope) -> ProblemError | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > _HEADER_BYTES:
            return ProblemError(431, "HEADERS_TOO_LARGE", "the headers are too large")
        hosts = _all(headers, b"host")
        # Of several, a proxy and the server might not take the same.
        if len(hosts) != 1 or not self._knows_host(hosts[0], scope):
            return ProblemError(400, "HOST_REFUSED", _HOST_REFUSED)
        if self._is_foreign(scope, headers, hosts[0]):
            return ProblemError(403, "ORIGIN_REFUSED", _ORIGIN_REFUSED)
        lengths = _all(headers, b"content-length")
        if len(lengths) > 1 or any(_LENGTH.fullmatch(each) is None for each in lengths):
            return ProblemError(400, "BAD_REQUEST", "the content length is not valid")
        return None

    def _knows_host(self, host: str, scope: Scope) -> bool:
        host = host.lower()
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        if self._settings.hosts:
            return host in self._settings.hosts
        server = scope.get("server")
        port = int(match[2]) if match[2] else _default_port(scope)
        return match[1] in _NAMES and (server is None or server[1] in {None, port})

    def _is_foreign(self, scope: Scope, headers: list[tuple[bytes, bytes]], host: str) -> bool:
        origins = [each.lower() for each in _all(headers, b"origin")]
        if len(origins) > 1:
            return True
        if origins and origins[0] in self._settings.origins:
            return False
        if origins and origins[0] not in own_origins(host):
            return True
        # Browsers always send Origin with a WebSocket; without one, only a program with a token may
        # come.
        if scope["type"] == "websocket" and not origins and not _all(headers, b"authorization"):
            return True
        # A request without Origin, such as for an image, still says whose page made it.
        site = _all(headers, b"sec-fetch-site")
        mode = _all(headers, b"sec-fetch-mode")
        is_navigation = scope.get("method") in _SAFE and mode == ["navigate"]
        return any(each not in {"same-origin", "none"} for each in site) and not is_navigation

    def _hardened(self, scope: Scope, send: Send) -> Send:
        """Add the id of the request, and what keeps a browser from guessing types or framing pages.

        A browser remembers to use HTTPS only for names that the server was given: on `localhost` it
        would do so for every other program of the machine.
        """
        added = [*_SECURE_HEADERS, (b"cache-control", b"no-store")]
        if self._settings.hosts and (self._settings.behind_tls or scope.get("scheme") == "https"):
            added.append(_HTTPS_ONLY)
        request_id = (b"x-request-id", request_id_of(scope).encode())

        async def send_hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                more = [each for each in added if each[0] not in names]
                message = {**message, "headers": [*message["headers"], *more, request_id]}
            await send(message)

        return send_hardened


def own_origins(host: str) -> set[str]:
    """Return the origins of the server's own pages, by the Host that a browser sends."""
    return {f"http://{host}".lower(), f"https://{host}".lower()}


def _default_port(scope: Scope) -> int:
    return 443 if scope.get("scheme") in {"https", "wss"} else 80


def _all(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]
