"""A model behind HTTP: a wire protocol at an endpoint, with credentials, over a transport."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from holdfast.auth.origins import origin_of
from holdfast.auth.token_sources import BoundTokenSource
from holdfast.blocks.token_estimate import estimate_tokens
from holdfast.ports.clock import Clock
from holdfast.ports.token_source import Origin, TokenSource
from holdfast.providers.history import HistoryAdapter
from holdfast.providers.reply_reader import ReplyReader, read_body
from holdfast.providers.schema_fit import SchemaFit
from holdfast.providers.transport.protocol import HttpRequest, Reply, Transport
from holdfast.providers.wire.protocol import WireProtocol, WireRequest
from holdfast.vocabulary.errors import AgentError, ConfigError, ErrorCode, error_from_report
from holdfast.vocabulary.requests import ModelRequest, TokenCount
from holdfast.vocabulary.secrets import Secret, remember_headers, remember_url, scrub
from holdfast.vocabulary.settings import Timeouts
from holdfast.vocabulary.stream_parts import PartOpened, StreamPart

_REQUEST_IDS = ("request-id", "x-request-id", "x-goog-request-id", "apim-request-id", "cf-ray")
_NOT_OFFERED = frozenset({404, 405, 501})
"""What servers say that speak a provider's protocol but do not count."""
_OK = 200
_REDIRECTS = range(300, 400)
_PAGE = "text/html"
_CUT = frozenset({ErrorCode.STREAM_INTERRUPTED, ErrorCode.TIMEOUT, ErrorCode.NETWORK})
"""How a connection ends before its answer does."""
_RECONNECTIONS = 3
"""How often in a row the rest of an answer is asked for without getting any of it."""
_FIRST_WAIT = 1.0
"""Seconds before the first of them; each one after it waits twice as long."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider listens and how it wants to be addressed."""

    base_url: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Sent with every request; they win over what client and protocol would send."""
    key_header: str = "authorization"
    """Where a plain key goes; in `authorization` it is sent as a bearer token."""
    query: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Endpoint(base_url={scrub(self.base_url)!r})"

    def url(self, path: str) -> str:
        """Return the URL of one of the protocol's paths."""
        base = self.base_url.rstrip("/")
        # People paste base URLs with and without the version.
        head = "/" + path.lstrip("/").split("/", 1)[0]
        if base.endswith(head) and head != "/":
            base = base.removesuffix(head)
        url = f"{base}/{path.lstrip('/')}"
        if not self.query:
            return url
        return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(self.query)}"


class WireModelClient:
    """Asks a model over HTTP; see `ModelClient` for what it promises.

    Owns the connection pool it was given, and memories of messages that make turns cheap. Does not
    own what is sent and received (the protocol), nor credentials (the token source).
    """

    def __init__(
        self,
        *,
        provider: str,
        protocol: WireProtocol,
        endpoint: Endpoint,
        tokens: TokenSource | None,
        transport: Transport,
        clock: Clock | None = None,
    ) -> None:
        self.provider = provider
        self._protocol = protocol
        self._endpoint = endpoint
        self._transport = transport
        self._clock = clock
        remember_headers(endpoint.headers)
        remember_headers(endpoint.query)
        remember_url(endpoint.base_url)
        self._tokens = tokens and BoundTokenSource(tokens, _origin(endpoint.base_url))
        self._history = HistoryAdapter(provider=provider, rules=protocol.history)
        self._schemas = SchemaFit()
        self._encode: Callable[[ModelRequest], WireRequest] = (
            protocol.new_encoder() if protocol.new_encoder else protocol.encode_request
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Send `request` when first iterated, and yield the answer."""
        adapted = self._history.adapt(request)
        wire = self._encode(self._fitted(adapted.request))
        sent = await self._send(wire, request.timeouts)
        try:
            reader = ReplyReader(
                self._protocol,
                sent.reply,
                content_seconds=request.timeouts.content,
                limit=request.reply_bytes,
            )
            while not reader.is_finished:
                parts = await reader.next_parts()
                if parts:
                    yield _renamed(parts, adapted.tool_names) if adapted.tool_names else parts
                if (failure := reader.failure) is not None:
                    sent.reply.close()
                    rest = await self._read_on(reader, wire, request.timeouts)
                    if rest is None:
                        raise self._completed(failure, sent.reply.headers, sent.secret)
                    sent = rest
            await sent.reply.drain()
        finally:
            sent.reply.close()

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count the tokens of `request`; an estimate where the provider cannot count."""
        adapted = self._fitted(self._history.adapt(request).request)
        encode, decode = self._protocol.encode_count, self._protocol.decode_count
        if encode is None or decode is None:
            return estimate_tokens(adapted)
        try:
            sent = await self._send(encode(adapted), request.timeouts)
        except AgentError as error:
            if error.status in _NOT_OFFERED:
                return estimate_tokens(adapted)
            raise
        try:
            return TokenCount(
                tokens=decode(await read_body(sent.reply, seconds=request.timeouts.content)),
                exact=True,
            )
        except AgentError as error:
            raise self._completed(error, sent.reply.headers, sent.secret) from error
        finally:
            sent.reply.close()

    def _fitted(self, request: ModelRequest) -> ModelRequest:
        return self._schemas.fit(request, self._protocol.schema_targets(request.model))

    async def close(self) -> None:
        """Close connections; later streams raise."""
        await self._transport.close()

    async def _read_on(
        self, reader: ReplyReader, wire: WireRequest, timeouts: Timeouts
    ) -> "_Sent | None":
        """Ask for the rest of an answer that broke off; None when it is not to be had."""
        failure, clock = reader.failure, self._clock
        if failure is None or failure.code not in _CUT or clock is None:
            return None
        while reader.attempts < _RECONNECTIONS and (rest := reader.resume()) is not None:
            await clock.sleep(_FIRST_WAIT * 2**reader.attempts)
            reader.attempts += 1
            try:
                request = WireRequest(path=wire.path + rest, headers=wire.headers)
                sent = await self._send(request, timeouts)
            except AgentError as error:
                if not error.retryable:
                    return None
            else:
                reader.go_on(sent.reply)
                return sent
        return None

    async def _send(self, wire: WireRequest, timeouts: Timeouts) -> "_Sent":
        """Send a request; return the reply, if it is a success, and the credential it took.

        Some gateways report errors as a page with status 200, which is no success either.
        """
        url = self._endpoint.url(wire.path)
        secret = await self._tokens.token(_origin(url)) if self._tokens else None
        request = HttpRequest(
            url=url, headers=self._headers(wire, secret), body=wire.body, timeouts=timeouts
        )
        try:
            reply = await self._transport.send(request)
        except AgentError as error:
            raise self._completed(error, {}, secret) from error
        kind = reply.headers.get("content-type", "").lower()
        if reply.status == _OK and not kind.startswith(_PAGE):
            return _Sent(reply, secret)
        try:
            refusal = await self._refusal(reply, secret, seconds=timeouts.content)
        finally:
            reply.close()
        raise self._completed(refusal, reply.headers, secret)

    def _headers(self, wire: WireRequest, secret: Secret | None) -> dict[str, str]:
        accept = "text/event-stream" if self._protocol.framing == "sse" else "application/x-ndjson"
        headers = {
            **({"content-type": "application/json"} if wire.body else {}),
            "accept": f"{accept}, application/json",
            "user-agent": "holdfast",
            **wire.headers,
            **{name.lower(): value for name, value in self._endpoint.headers.items()},
        }
        if secret is not None and self._tokens is not None:
            name = self._endpoint.key_header if self._tokens.kind == "key" else "authorization"
            value = secret.reveal()
            headers[name] = f"Bearer {value}" if name == "authorization" else value
        return headers

    async def _refusal(self, reply: Reply, secret: Secret | None, *, seconds: float) -> AgentError:
        """Make the typed error of a reply that is not a success."""
        target = reply.headers.get("location")
        if target and reply.status in _REDIRECTS:
            host = urlsplit(target).hostname or target
            return ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"{self._endpoint.base_url} redirects to {host!r}, which is never followed with a "
                "credential; set base_url to where it leads",
                status=reply.status,
            )
        body = (await read_body(reply, seconds=seconds)).decode("utf-8", "replace")
        # Before anything is cut short, so that no half of a credential is left.
        text = scrub(body, [secret] if secret else [])
        return self._protocol.classify(reply.status, reply.headers, text.encode())

    def _completed(
        self, error: AgentError, headers: Mapping[str, str], secret: Secret | None
    ) -> AgentError:
        """Return `error` with what only the client knows, and without the credential.

        It knows the provider and the request's id. The error is returned and not raised here, so
        that this frame, with what the peer sent in it, is in no traceback.
        """
        known = next((headers[name] for name in _REQUEST_IDS if name in headers), None)
        request_id = error.request_id or known
        secrets = [secret] if secret else []
        report = replace(
            error.report,
            message=scrub(error.message, secrets),
            provider=error.provider or self.provider,
            request_id=request_id and scrub(request_id, secrets),
        )
        return error_from_report(report)


class _Sent(msgspec.Struct, frozen=True):
    """A request's reply, and the credential that must not be seen in any error of it."""

    reply: Reply
    secret: Secret | None


def _origin(url: str) -> Origin:
    try:
        return origin_of(url)
    except ValueError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"base_url: {error}") from error


def _renamed(parts: list[StreamPart], names: Mapping[str, str]) -> list[StreamPart]:
    """Give tools back the names that the program knows them by."""
    return [
        replace(part, name=names.get(part.name, part.name))
        if isinstance(part, PartOpened) and part.name
        else part
        for part in parts
    ]
