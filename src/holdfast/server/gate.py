"""The gate before every request: its host, its origin, its size. Also for WebSocket.

A page of another site can make a browser send requests to this machine. Host stops names that were
rebound to it, Origin and Sec-Fetch-Site stop pages. The credential is checked by the operation.
"""

import re
from collections.abc import Iterable

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.problems import Problem

_NAMES = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(r"(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::\d{1,5})?")
_SAFE = frozenset(("GET", "HEAD"))
_BODY_BYTES = 4 * 1024 * 1024
_HEADER_BYTES = 64 * 1024


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate lets through."""

    hosts: frozenset[str] = frozenset()
    """Values of Host, with the port; empty: names of this machine, with any port."""
    origins: frozenset[str] = frozenset()
    """Pages of other origins that may call, such as `https://app.example`; none by default."""
    body_bytes: int = _BODY_BYTES


class Gate:
    """An ASGI layer that refuses a request before anything else looks at it."""

    def __init__(self, app: ASGIApp, settings: GateSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with what is wrong."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        problem = self._refusal(scope)
        if problem is None:
            await self._app(scope, _bounded(scope, receive, self._settings.body_bytes), send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": problem.detail})
        else:
            await problem.answer()(scope, receive, send)

    def _refusal(self, scope: Scope) -> Problem | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > _HEADER_BYTES:
            return Problem(400, "HEADERS_TOO_LARGE", "the headers are too large")
        hosts = _all(headers, b"host")
        if len(hosts) != 1 or not self._knows_host(hosts[0]):
            return Problem(400, "HOST_REFUSED", "this server is not known by that host name")
        if self._is_foreign(scope, headers, hosts[0]):
            return Problem(403, "ORIGIN_REFUSED", "requests from this origin are not taken")
        lengths = _all(headers, b"content-length")
        if any(not each.isdecimal() for each in lengths) or len(lengths) > 1:
            return Problem(400, "BAD_REQUEST", "the content length is not valid")
        if lengths and int(lengths[0]) > self._settings.body_bytes:
            return _too_large(self._settings.body_bytes)
        return None

    def _knows_host(self, host: str) -> bool:
        host = host.lower()
        if _HOST.fullmatch(host) is None:
            return False
        if self._settings.hosts:
            return host in self._settings.hosts
        return re.sub(r":\d+$", "", host) in _NAMES

    def _is_foreign(self, scope: Scope, headers: list[tuple[bytes, bytes]], host: str) -> bool:
        origins = _all(headers, b"origin")
        if len(origins) > 1:
            return True
        own = {f"http://{host}".lower(), f"https://{host}".lower()}
        if origins and origins[0].lower() not in own | self._settings.origins:
            return True
        site = "".join(_all(headers, b"sec-fetch-site"))
        is_navigation = scope.get("method") in _SAFE and _all(headers, b"sec-fetch-mode") == [
            "navigate"
        ]
        is_named = bool(origins) and origins[0].lower() in self._settings.origins
        return site in {"cross-site", "same-site"} and not is_navigation and not is_named


def _all(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _too_large(limit: int) -> Problem:
    return Problem(413, "TOO_LARGE", f"a body has at most {limit} bytes")


class BodyTooLargeError(Exception):
    """A body without a content length turned out to be too long."""


def _bounded(scope: Scope, receive: Receive, limit: int) -> Receive:
    """Count the bytes of a body as they come; one that says no length may not be endless."""
    if scope["type"] != "http":
        return receive
    seen = 0

    async def count() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise BodyTooLargeError
        return message

    return count
