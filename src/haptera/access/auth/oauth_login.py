"""A login by OAuth 2: a browser and a callback on this machine, or a URL that a person pastes."""

import asyncio
import secrets
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit

from haptera.access.auth.credential_storage import OAuthTokens
from haptera.access.auth.oauth import LoginAttempt, LoginDialogue, exchange_code, pasted_answer
from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.model.errors import ConfigError, ErrorCode, RequestError
from haptera.ports.http import Http
from haptera.system.clock import Clock
from haptera.system.owned_tasks import OwnedTasks

_LOGIN_SECONDS = 300.0
"""How long a callback is waited for."""
# Not `localhost`, which may lead to another interface (RFC 8252, section 8.3).
_HOST = "127.0.0.1"
_LONGEST_LINE = 16 * 1024
_MOST_LINES = 100
_READ_SECONDS = 10.0
# The ports that are assigned to no service.
_FIRST_PORT, _PORTS = 49152, 16384
_PAGE = """<!doctype html><meta charset="utf-8"><title>Haptera</title>
<p style="font: 1.2rem sans-serif; margin: 3rem">Haptera has received the answer of this login.
You can close this window and go back to the terminal.</p>"""


async def log_in_with_oauth(
    settings: OAuthSettings,
    dialogue: LoginDialogue,
    *,
    http: Http,
    clock: Clock,
    paste: bool = False,
) -> OAuthTokens:
    """Let a person log in and return the tokens; without a browser, by pasting.

    Raises:
        InvalidAuthorisationCodeError: when the answer is not one to this login, or its code is not
            taken.
        TokenExchangeFailedError: when the server issues no token.
        ConfigError: CONFIG_INVALID when the port of the callback is in use.
        RequestError: TIMEOUT when no callback comes.

    """
    if paste:
        attempt = LoginAttempt.begin(settings, settings.redirect_url or _unused_url(settings))
        dialogue.show(attempt.url)
        code = attempt.code_in(pasted_answer(dialogue.paste()))
    else:
        async with CallbackServer(settings.redirect_port, settings.redirect_path) as server:
            attempt = LoginAttempt.begin(settings, server.url)
            code = attempt.code_in(await _answer(server, dialogue, attempt.url))
    return await exchange_code(settings, attempt, code, http=http, now_ms=clock.time_ms())


async def _answer(server: "CallbackServer", dialogue: LoginDialogue, url: str) -> dict[str, str]:
    """Return the answer of the browser, or what is pasted where none was opened."""
    loop = asyncio.get_running_loop()
    # Some browsers are commands that end with the browser: the callback comes before that.
    shown = loop.run_in_executor(None, dialogue.show, url)
    async with OwnedTasks() as tasks:
        received = tasks.start(server.answer(seconds=_LOGIN_SECONDS), name="haptera-login")
        both: set[asyncio.Future[Any]] = {shown, received}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if received.done() or await shown:
            return await received
        return pasted_answer(dialogue.paste())


class CallbackServer:
    """Waits on 127.0.0.1 for the request that a browser makes after a login."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._server: asyncio.Server | None = None
        self._answers: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._serving: set[asyncio.Task[object]] = set()

    @property
    def url(self) -> str:
        """The URL that the browser is sent back to."""
        return f"http://{_HOST}:{self._port}{self._path}"

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(
                self._serve, _HOST, self._port, limit=_LONGEST_LINE
            )
        except OSError as error:
            raise ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"port {self._port} of the login's callback cannot be used ({error.strerror}); "
                "end the program that has it, set another redirect_port, or use --paste",
            ) from None
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        # A browser may hold connections open that it never uses.
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def answer(self, *, seconds: float) -> dict[str, str]:
        """Return the parameters of the first callback; raises TIMEOUT when none comes."""
        try:
            async with asyncio.timeout(seconds):
                return await self._answers.get()
        except TimeoutError:
            message = f"no login came back within {seconds:g} s; start again, or use --paste"
            raise RequestError(ErrorCode.TIMEOUT, message) from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._serving.add(task)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                target = await _target(reader)
                parts = urlsplit(target)
                # Browsers ask for more than the callback, such as an icon.
                is_callback = parts.path == self._path
                # Answered before the answer is passed on: what receives it closes this server.
                writer.write(_response(is_callback=is_callback))
                await writer.drain()
            if is_callback:
                self._answers.put_nowait(
                    {name: values[0] for name, values in parse_qs(parts.query).items()}
                )
        # A timeout is an OSError, too.
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError):
            pass  # not a browser that comes back from a login
        finally:
            self._serving.discard(task)
            writer.close()


async def _target(reader: asyncio.StreamReader) -> str:
    """Read the head of a GET request and return its target; raises ValueError for any other."""
    method, target, *_ = (await reader.readline()).decode("ascii").split()
    # Read to its end: a connection that is closed with bytes unread is reset, and the browser would
    # show that in place of the page.
    for _ in range(_MOST_LINES):
        if not (await reader.readline()).strip():
            break
    if method != "GET":
        raise ValueError(method)
    return target


def _response(*, is_callback: bool) -> bytes:
    body = _PAGE.encode() if is_callback else b""
    status = "200 OK" if is_callback else "404 Not Found"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
        # The URL of this page holds the code, so it is neither kept nor told to other pages.
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _unused_url(settings: OAuthSettings) -> str:
    """Return a URL of this machine at which nothing listens: it is only read by a person."""
    port = settings.redirect_port or _FIRST_PORT + secrets.randbelow(_PORTS)
    return f"http://{_HOST}:{port}{settings.redirect_path}"
