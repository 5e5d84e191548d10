"""An authorization server on loopback: a login page that agrees at once, and a token endpoint.

It checks what a real one checks (client, redirect URL, PKCE, codes and refresh tokens that are
valid once), and misbehaves as a test says.
"""

import base64
import contextlib
import hashlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

CLIENT = "haptera-test"


@dataclass
class AuthorizationServer:
    """What the server issued, what it was asked, and how it misbehaves."""

    url: str = ""
    denies: bool = False
    state: str | None = None
    """Sent in place of the right state."""
    codes_expired: bool = False
    token_answer: tuple[int, bytes] | None = None
    """Sent by the token endpoint in place of a right answer."""
    lifetime: int = 3600
    hold: threading.Event | None = None
    """Where given, the token endpoint waits for it."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The forms that the token endpoint got."""
    issued: list[str] = field(default_factory=list)
    """Every code and token."""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _refresh: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def refreshes(self) -> int:
        """How often tokens were refreshed, or tried to be."""
        return sum(form["grant_type"] == "refresh_token" for form in self.asked)

    def config(self, provider: str = "house", *, base_url: str, more: str = "") -> str:
        """Return the tables of a configuration file for a provider with this server."""
        return f"""
[providers.{provider}]
kind = "anthropic"
base_url = "{base_url}"

[providers.{provider}.oauth]
authorize_url = "{self.url}/authorize"
token_url = "{self.url}/token"
client_id = "{CLIENT}"
scopes = ["models", "offline_access"]
{more}
"""

    def visit(self, url: str) -> str:
        """Do what a browser does with the login page; returns the URL that it ends at."""
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(url) as reply:
                return str(reply.url)
        except urllib.error.HTTPError as error:
            return str(error.headers["location"])

    def come_back(self, url: str) -> None:
        """Do what a browser does with a login page, the callback included."""
        with urllib.request.build_opener().open(self.visit(url)) as reply:
            assert reply.status == 200

    def expire_all(self) -> None:
        """Let tokens that are issued from now on be expired at once."""
        self.lifetime = 0

    def secret(self, kind: str) -> str:
        """Issue a code or a token."""
        made = f"{kind}-secret-{len(self.issued)}-{id(self):x}"
        self.issued.append(made)
        return made

    def knows(self, refresh: str) -> None:
        """Let a refresh token be valid."""
        self._refresh.add(refresh)

    def authorize(self, query: dict[str, str]) -> str:
        """Return where the login page sends the browser."""
        assert query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256"
        answer = {"state": self.state or query["state"]}
        if self.denies:
            answer |= {"error": "access_denied", "error_description": "the person said no"}
        else:
            answer["code"] = self.secret("code")
            self._codes[answer["code"]] = query
        return f"{query['redirect_uri']}?{urlencode(answer)}"

    def exchange(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer a request for tokens."""
        with self._lock:
            self.asked.append(form)
            if self.token_answer is not None:
                return self.token_answer[0], {"raw": self.token_answer[1]}
            is_code = form["grant_type"] == "authorization_code"
            if not (self._takes_code(form) if is_code else self._takes_refresh(form)):
                told = f"cannot take {form.get('code') or form.get('refresh_token')}"
                return 400, {"error": "invalid_grant", "error_description": told}
            refresh = self.secret("refresh")
            self._refresh.add(refresh)
            return 200, {
                "access_token": self.secret("access"),
                "refresh_token": refresh,
                "token_type": "Bearer",
                "expires_in": self.lifetime,
            }

    def _takes_code(self, form: dict[str, str]) -> bool:
        query = self._codes.pop(form["code"], None)
        if query is None or self.codes_expired:
            return False
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return (
            challenge == query["code_challenge"] and form["redirect_uri"] == query["redirect_uri"]
        )

    def _takes_refresh(self, form: dict[str, str]) -> bool:
        known = form["refresh_token"] in self._refresh
        self._refresh.discard(form["refresh_token"])
        return known


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@contextlib.contextmanager
def authorization_server() -> Iterator[AuthorizationServer]:
    """Run a server until the block is left."""
    state = AuthorizationServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = dict(parse_qsl(urlsplit(self.path).query))
            self.send_response(302)
            self.send_header("location", state.authorize(query))
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            if state.hold is not None:
                state.hold.wait(60)
            status, told = state.exchange(dict(parse_qsl(body)))
            content = told["raw"] if "raw" in told else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        if state.hold is not None:
            state.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
