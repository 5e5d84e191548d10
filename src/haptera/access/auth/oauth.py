"""OAuth 2: the authorization code flow with PKCE (RFC 6749, 7636, 8252), and access tokens.

What a person does (a browser, a callback, a paste) is in `oauth_login`. Nothing here opens a
browser: a request whose tokens cannot be refreshed fails and names the command to log in.
"""

import asyncio
import base64
import hashlib
import re
import secrets
from asyncio import AbstractEventLoop, Task
from collections.abc import Mapping
from typing import Any, Protocol, Self
from urllib.parse import parse_qs, urlencode, urlsplit
from weakref import WeakKeyDictionary

import msgspec

from haptera.access.auth.credential_storage import CredentialStorage, OAuthTokens
from haptera.access.auth.oauth_settings import OAuthSettings
from haptera.model.errors import (
    AgentError,
    ErrorCode,
    ProviderError,
    RequestError,
    error_with_code,
)
from haptera.model.secrets import Secret, scrub
from haptera.ports.http import Http, HttpAnswer
from haptera.system.atomic_files import FileLock
from haptera.system.clock import Clock
from haptera.system.owned_tasks import OwnedTasks
from haptera.system.token_source import Origin, TokenKind

_MARGIN_MS = 60_000
"""How long before its end an access token counts as expired: a request takes time, too."""
# Together a minute.
_LOCK_PAUSE = 0.05
_LOCK_LOOKS = 1200
_OK = 200
_TOO_MANY = 429
_SERVER_FAULT = 500
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST_REASON = 200


class LoginDialogue(Protocol):
    """What a program does for the person who logs in."""

    def show(self, url: str) -> bool:
        """Show the URL of the login page; returns whether a browser was opened with it.

        Called in a thread of its own: it may return only when the browser is closed.
        """

    def paste(self) -> str:
        """Ask for the URL that the browser ended at, or for the code."""


class _LoginError(ProviderError):
    """What the errors of a login share: their code is AUTH."""

    def __init__(self, message: str, *, provider: str | None = None) -> None:
        super().__init__(ErrorCode.AUTH, message, provider=provider)

    # The constructor takes other arguments than that of the base class, with which pickling would
    # call it.
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.message, self.provider)


class InvalidAuthorisationCodeError(_LoginError):
    """The code of a login cannot be used: it is missing, expired, denied, or of another login."""


class TokenExchangeFailedError(_LoginError):
    """The token endpoint issued no usable token."""


def _rebuilt(kind: type[_LoginError], message: str, provider: str | None) -> _LoginError:
    return kind(message, provider=provider)


class LoginAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to log in: the URL to visit, and what its answer is checked against."""

    url: str
    redirect_url: str
    state: Secret
    verifier: Secret

    @classmethod
    def begin(cls, settings: OAuthSettings, redirect_url: str) -> Self:
        """Make a new attempt, with a state and a verifier of its own."""
        # 86 characters of a verifier: RFC 7636 wants 43 to 128.
        state, verifier = Secret(secrets.token_urlsafe(32)), Secret(secrets.token_urlsafe(64))
        digest = hashlib.sha256(verifier.reveal().encode()).digest()
        query = {
            # First, so that none of them replaces one of ours.
            **settings.parameters,
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": redirect_url,
            "state": state.reveal(),
            # RFC 7636 wants it without padding.
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        if settings.scopes:
            query["scope"] = " ".join(settings.scopes)
        joint = "&" if urlsplit(settings.authorize_url).query else "?"
        url = f"{settings.authorize_url}{joint}{urlencode(query)}"
        return cls(url=url, redirect_url=redirect_url, state=state, verifier=verifier)

    def code_in(self, answer: Mapping[str, str]) -> Secret:
        """Return the code of a callback.

        Raises:
            InvalidAuthorisationCodeError: when the state is not that of this attempt, the login was
                denied, or there is no code.

        """
        # The state comes first: of an answer that is not one to this login nothing is believed.
        state = answer.get("state", "").encode(errors="surrogatepass")
        # As bytes: `compare_digest` takes no text that is not ASCII.
        if not secrets.compare_digest(state, self.state.reveal().encode()):
            raise InvalidAuthorisationCodeError(
                "the answer does not belong to this login: its state is missing or another one; "
                "start the login again"
            )
        if "error" in answer:
            reason = _reason(answer.get("error"), answer.get("error_description"))
            raise InvalidAuthorisationCodeError(f"the login was refused{reason}")
        if not _is_plain(answer.get("code", "")):
            raise InvalidAuthorisationCodeError("the answer holds no code; start the login again")
        return Secret(answer["code"])


def pasted_answer(text: str) -> dict[str, str]:
    """Read what a person pasted: the URL of the callback, its query, or `CODE#STATE`."""
    text = text.strip()
    try:
        parts = urlsplit(text) if "://" in text else None
    except ValueError:
        return {}
    query = text.lstrip("?") if parts is None else parts.query
    fields = {name: values[0] for name, values in parse_qs(query).items()}
    if "code" in fields or "error" in fields or parts is not None:
        return fields
    code, _, state = text.partition("#")
    return {"code": code, "state": state}


async def exchange_code(
    settings: OAuthSettings, attempt: LoginAttempt, code: Secret, *, http: Http, now_ms: int
) -> OAuthTokens:
    """Exchange the code of a login for tokens.

    Raises:
        InvalidAuthorisationCodeError: when the server does not take the code.
        TokenExchangeFailedError: when it issues no usable token, or cannot be reached.

    """
    fields: dict[str, str | Secret] = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_url,
        "client_id": settings.client_id,
        "code_verifier": attempt.verifier,
    }
    try:
        answer = await http.post_form(settings.token_url, fields)
    except AgentError as error:
        message = f"the token endpoint could not be used: {error.message}"
        # Never tried again: a code is valid once, and whether the server has seen it is not known.
        raise TokenExchangeFailedError(message) from None
    word, reason = _refusal(answer)
    if word == "invalid_grant":
        raise InvalidAuthorisationCodeError(
            f"the code is expired, was used before, or is of another login{reason}; start again"
        )
    return _tokens_in(answer, now_ms=now_ms)


async def refresh_tokens(
    settings: OAuthSettings, refresh: Secret, *, http: Http, now_ms: int
) -> OAuthTokens:
    """Exchange a refresh token for new tokens; a server that issues no new one leaves the old.

    Raises:
        TokenExchangeFailedError: when the server does not take it, or issues no usable token.
        RequestError: NETWORK, TIMEOUT or STREAM_INTERRUPTED, which may be tried again.
        ProviderError: RATE_LIMITED or SERVER_ERROR, too.

    """
    fields: dict[str, str | Secret] = {
        "grant_type": "refresh_token",
        "refresh_token": refresh,
        "client_id": settings.client_id,
    }
    answer = await http.post_form(settings.token_url, fields)
    # These say nothing of the refresh token, so the same one may be tried again.
    if answer.status == _TOO_MANY or answer.status >= _SERVER_FAULT:
        busy = answer.status == _TOO_MANY
        code = ErrorCode.RATE_LIMITED if busy else ErrorCode.SERVER_ERROR
        message = f"the token endpoint answered with status {answer.status}"
        raise error_with_code(code, message, basis="status", status=answer.status)
    tokens = _tokens_in(answer, now_ms=now_ms)
    return tokens if tokens.refresh else msgspec.structs.replace(tokens, refresh=refresh)


class OAuthTokenSource:
    """The access token of a login, refreshed when it has expired.

    - The tokens are read for every request, so a login or a refresh by another process counts.
    - One refresh at a time: the callers of a process share it, and a lock keeps other processes
      out. It is not cancelled with a caller, because a refresh token may be valid only once.
    """

    kind: TokenKind = "oauth"

    def __init__(
        self,
        provider: str,
        settings: OAuthSettings,
        storage: CredentialStorage,
        *,
        http: Http,
        clock: Clock,
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._storage = storage
        self._http = http
        self._clock = clock
        # One task for each event loop: a task cannot be awaited from another one.
        self._refreshing: WeakKeyDictionary[AbstractEventLoop, Task[Secret]] = WeakKeyDictionary()

    async def token(self, _origin: Origin) -> Secret:
        """Return an access token that has not expired."""
        tokens = await asyncio.to_thread(self._storage.tokens, self._provider)
        if self._is_fresh(tokens):
            return tokens.access
        loop = asyncio.get_running_loop()
        task = self._refreshing.get(loop)
        if task is None or task.done():
            task = OwnedTasks().start(self._refreshed(), name="haptera-refresh-token")
            # This is also what keeps the task alive: an event loop refers to its tasks weakly.
            self._refreshing[loop] = task
            # Its failure is known to have been seen, also when every caller was cancelled.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    async def _refreshed(self) -> Secret:
        lock = FileLock(self._storage.refresh_lock_path)
        await self._take(lock)
        try:
            return await self._refresh()
        finally:
            lock.release()

    async def _refresh(self) -> Secret:
        provider = self._provider
        # Read again under the lock: another process may have refreshed them while this one waited.
        # The facts first: after a login between the two reads they are not those of what is stored.
        facts = await asyncio.to_thread(self._storage.find, provider)
        tokens = await asyncio.to_thread(self._storage.tokens, provider)
        if self._is_fresh(tokens) or facts is None:
            return tokens.access
        again = f"run `haptera login {provider}`"
        if tokens.refresh is None:
            message = f"the login to {provider!r} has expired and cannot be refreshed; {again}"
            raise ProviderError(ErrorCode.AUTH, message, provider=provider)
        try:
            renewed = await refresh_tokens(
                self._settings, tokens.refresh, http=self._http, now_ms=self._clock.time_ms()
            )
        except TokenExchangeFailedError as error:
            message = f"the login to {provider!r} could not be refreshed: {error.message}; {again}"
            raise TokenExchangeFailedError(message, provider=provider) from None
        # Saved before it is used: the old refresh token may be void by now.
        is_saved = await asyncio.to_thread(
            self._storage.renew_tokens, provider, renewed, of=facts, saved=self._clock.time_ms()
        )
        if not is_saved:
            # A logout or another login came meanwhile, and counts for this request, too.
            return (await asyncio.to_thread(self._storage.tokens, provider)).access
        return renewed.access

    async def _take(self, lock: FileLock) -> None:
        """Wait for the lock without blocking a thread, so that a caller can go away."""
        for _ in range(_LOCK_LOOKS):
            if lock.acquire(wait=False):
                return
            await self._clock.sleep(_LOCK_PAUSE)
        message = f"another process refreshes the login to {self._provider!r} and does not end"
        raise RequestError(ErrorCode.TIMEOUT, message, provider=self._provider)

    def _is_fresh(self, tokens: OAuthTokens) -> bool:
        return tokens.expires is None or tokens.expires - _MARGIN_MS > self._clock.time_ms()


class _TokenReply(msgspec.Struct, frozen=True, kw_only=True):
    """The successful answer of a token endpoint."""

    access_token: str
    token_type: str = ""
    expires_in: float | str | None = None
    refresh_token: str | None = None

    def __repr__(self) -> str:
        return "_TokenReply()"


def _tokens_in(answer: HttpAnswer, *, now_ms: int) -> OAuthTokens:
    if answer.status != _OK:
        _, reason = _refusal(answer)
        message = f"the token endpoint answered with status {answer.status}{reason}"
        raise TokenExchangeFailedError(message)
    try:
        reply = msgspec.json.decode(answer.body, type=_TokenReply)
        seconds = None if reply.expires_in is None else float(reply.expires_in)
        expires = None if seconds is None else now_ms + int(seconds * 1000)
    except (ValueError, OverflowError):
        raise TokenExchangeFailedError("the token endpoint's answer is not a token") from None
    # The token becomes part of a header, which must not hold a line break.
    if not _is_plain(reply.access_token) or reply.token_type.lower() not in {"", "bearer"}:
        raise TokenExchangeFailedError("the token endpoint issued no bearer token")
    return OAuthTokens(
        access=Secret(reply.access_token),
        refresh=Secret(reply.refresh_token) if reply.refresh_token else None,
        expires=expires,
    )


def _is_plain(text: str) -> bool:
    """Whether a text can be a code or a token: visible ASCII characters, at least one."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _refusal(answer: HttpAnswer) -> tuple[str, str]:
    """Return the error code of an answer, and what can be told of it."""
    if answer.status == _OK:
        return "", ""
    try:
        fields = msgspec.json.decode(answer.body, type=dict[str, Any])
    except ValueError:
        return "", ""
    word = fields.get("error")
    return str(word), _reason(word, fields.get("error_description"))


def _reason(word: object, description: object) -> str:
    """Return what a server says of an error, as the end of a sentence."""
    if not isinstance(word, str) or not _WORD.fullmatch(word):
        return ""
    if not isinstance(description, str) or not description.strip():
        return f" ({word})"
    text = scrub(" ".join(description.split()))[:_LONGEST_REASON]
    return f" ({word}: {text})"
