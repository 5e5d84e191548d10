"""Wire client: a model behind HTTP, as a protocol, an endpoint, credentials and a transport."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from haptera.kernel.blocks.token_estimate import estimate_tokens
from haptera.model.errors import AgentError, ConfigError, ErrorCode, error_from_report
from haptera.model.late_names import on_first_use
from haptera.model.own_name import USER_AGENT
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.secrets import Secret, remember_headers, remember_url, scrub
from haptera.model.settings import Timeouts
from haptera.model.stream_parts import PartOpened, StreamOpened, StreamPart
from haptera.providers.history import HistoryAdapter
from haptera.providers.reply_reader import ReplyReader, read_body
from haptera.providers.transport.protocol import HttpRequest, Reply, Transport
from haptera.providers.wire.failures import request_id_in
from haptera.providers.wire.protocol import WireProtocol, WireRequest
from haptera.system.clock import Clock
from haptera.system.token_source import Origin, TokenSource
from haptera.system.token_sources import BoundTokenSource, origin_of

if TYPE_CHECKING:
    from haptera.providers import schema_targets
    from haptera.providers.schema_targets import SchemaAdapter
else:
    schema_targets = on_first_use("haptera.providers.schema_targets")

_NOT_OFFERED = frozenset({404, 405, 501})
"""The statuses of servers that have a provider's protocol but cannot count tokens."""
_NOTHING_THERE = frozenset({404, 405})
_KEY_REFUSED = frozenset({400, 401})
"""Statuses of a refused key; 403 may have another reason, such as a region."""
_VERSION = r"/v\d"
"""The version of an API in its URL."""
_OK = 200
_REDIRECTS = range(300, 400)
_HTML = "text/html"
_CUT_OFF = frozenset({ErrorCode.STREAM_INTERRUPTED, ErrorCode.TIMEOUT, ErrorCode.NETWORK})
"""Errors of a connection that ended before its answer did."""
_RECONNECTIONS = 3
"""How many times in a row the rest of an answer is requested without getting any of it."""
_FIRST_WAIT = 1.0
"""Seconds before the first of them; each later one waits twice as long."""


class ProviderEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The URL of a provider, and what is sent with every request to it."""

    base_url: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Sent with every request; they override those of the client and the protocol."""
    key_header: str = "authorization"
    """The header for a key; in `authorization` it is sent as a bearer token."""
    query: dict[str, str] = msgspec.field(default_factory=dict)
    advice: str = ""
    """What to do about a key that the provider refuses."""

    def __repr__(self) -> str:
        return f"ProviderEndpoint(base_url={scrub(self.base_url)!r})"

    def url(self, path: str) -> str:
        """Return the URL of one of the protocol's paths."""
        base = self.base_url.rstrip("/")
        # Users write base URLs with and without the version.
        head = "/" + path.lstrip("/").split("/", 1)[0]
        if base.endswith(head) and head != "/":
            base = base.removesuffix(head)
        url = f"{base}/{path.lstrip('/')}"
        if not self.query:
            return url
        return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(self.query)}"


class WireModelClient:
    """Sends requests to a model over HTTP; implements `ModelClient`.

    Owns the transport that it was given, and caches of adapted and encoded messages. Does not own
    the format of requests and replies (the protocol) or credentials (the token source).
    """

    def __init__(
        self,
        *,
        provider: str,
        protocol: WireProtocol,
        endpoint: ProviderEndpoint,
        tokens: TokenSource | None,
        transport: Transport,
        clock: Clock | None = None,
    ) -> None:
        self.provider = provider
        self._protocol = protocol
        self._endpoint = endpoint
        self._transport = transport
        self._clock = clock
        # Keys are in headers, in query strings and in URLs. What is remembered here is scrubbed
        # from errors and log records.
        remember_headers(endpoint.headers)
        remember_headers(endpoint.query)
        remember_url(endpoint.base_url)
        self._tokens = tokens and BoundTokenSource(tokens, _origin(endpoint.base_url))
        self._history = HistoryAdapter(provider=provider, rules=protocol.history)
        self._schemas: SchemaAdapter | None = None
        self._encode = protocol.new_encoder()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Send `request` when first iterated, and yield the answer."""
        adapted = self._history.adapt(request)
        wire = self._encode(self._with_adapted_schemas(adapted.request))
        sent = await self._send(wire, request.timeouts, model=request.model)
        try:
            reader = ReplyReader(
                self._protocol,
                sent.reply.headers,
                limit=request.reply_bytes,
                content_seconds=request.timeouts.content,
            )
            # The loop's clock, by which `read_in_time` measures as well.
            now = asyncio.get_running_loop().time
            is_first = True
            while not reader.is_finished:
                parts: list[StreamPart] = []
                failure: AgentError | None = None
                started = now()
                try:
                    # Most reads bring content, and then only the limits of the reply apply.
                    waiting = (
                        reader.read_in_time(sent.reply) if reader.silence else sent.reply.read()
                    )
                    reader.take(await waiting, parts)
                    if not parts:
                        # Keep-alives are no content: a provider that is stuck can send them for
                        # ever.
                        reader.add_silence(now() - started)
                except AgentError as error:
                    failure = error
                # The decoder sees the body only, and the id of the request is in the head of the
                # reply.
                if is_first and parts:
                    is_first, parts[0] = False, _identified(parts[0], sent)
                # The parts that came before a failure are yielded before it is raised.
                if parts:
                    yield _renamed(parts, adapted.tool_names) if adapted.tool_names else parts
                if failure is not None:
                    sent = await self._reconnected(reader, wire, sent, failure=failure)
            await sent.reply.drain()
        finally:
            sent.reply.close()

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count the tokens of `request`; an estimate where the provider cannot count."""
        adapted = self._with_adapted_schemas(self._history.adapt(request).request)
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

    def _with_adapted_schemas(self, request: ModelRequest) -> ModelRequest:
        if not request.tools and request.output_schema is None:
            return request
        if self._schemas is None:
            self._schemas = schema_targets.SchemaAdapter()
        return self._schemas.adapt(request, self._protocol.schema_targets(request.model))

    async def close(self) -> None:
        """Close connections; later streams raise."""
        await self._transport.close()

    async def _reconnected(
        self, reader: ReplyReader, wire: WireRequest, sent: "_Sent", *, failure: AgentError
    ) -> "_Sent":
        """Return the reply with the rest of an answer that broke off.

        Raises `failure` if the provider does not keep the answer or cannot be reached.
        """
        sent.reply.close()
        clock = self._clock
        while (
            clock is not None
            and failure.code in _CUT_OFF
            and reader.attempts < _RECONNECTIONS
            and (rest := reader.resume()) is not None
        ):
            await clock.sleep(_FIRST_WAIT * 2**reader.attempts)
            reader.attempts += 1
            try:
                request = WireRequest(path=wire.path + rest, headers=wire.headers)
                resumed = await self._send(request, sent.timeouts)
            except AgentError as error:
                # `failure` is raised then, not this error: the turn as a whole can still be tried
                # again, although the rest of this answer cannot be fetched.
                if not error.retryable:
                    break
            else:
                reader.continue_with(resumed.reply.headers)
                return resumed
        raise self._completed(failure, sent.reply.headers, sent.secret)

    async def _send(self, wire: WireRequest, timeouts: Timeouts, *, model: str = "") -> "_Sent":
        """Send a request and return its reply; raises the typed error of any but a success.

        `model` is the model that the request is for, if there is one to name in an error. Some
        gateways report errors as an HTML page with status 200.
        """
        url = self._endpoint.url(wire.path)
        # The origin of the URL that is really requested: the source refuses any but the configured
        # one.
        secret = await self._tokens.token(_origin(url)) if self._tokens else None
        request = HttpRequest(
            url=url, headers=self._headers(wire, secret), body=wire.body, timeouts=timeouts
        )
        try:
            reply = await self._transport.send(request)
        except AgentError as error:
            raise self._completed(error, {}, secret) from error
        kind = reply.headers.get("content-type", "").lower()
        if reply.status == _OK and not kind.startswith(_HTML):
            return _Sent(reply, secret, timeouts)
        try:
            refusal = await self._refusal(reply, secret, seconds=timeouts.content)
        finally:
            reply.close()
        explained = self._explained(refusal, url, model=model)
        raise self._completed(explained, reply.headers, secret)

    def _headers(self, wire: WireRequest, secret: Secret | None) -> dict[str, str]:
        accept = "text/event-stream" if self._protocol.framing == "sse" else "application/x-ndjson"
        headers = {
            **({"content-type": "application/json"} if wire.body else {}),
            "accept": f"{accept}, application/json",
            "user-agent": USER_AGENT,
            **wire.headers,
            # In lower case, so that a header replaces the one above it however the user writes its
            # name.
            **{name.lower(): value for name, value in self._endpoint.headers.items()},
        }
        if secret is not None and self._tokens is not None:
            name = self._endpoint.key_header if self._tokens.kind == "key" else "authorization"
            value = secret.reveal()
            headers[name] = f"Bearer {value}" if name == "authorization" else value
        return headers

    async def _refusal(self, reply: Reply, secret: Secret | None, *, seconds: float) -> AgentError:
        """Return the typed error of a reply that is not a success."""
        target = reply.headers.get("location")
        if target and reply.status in _REDIRECTS:
            host = urlsplit(target).hostname or target
            return ConfigError(
                ErrorCode.CONFIG_INVALID,
                f"{self._endpoint.base_url} redirects to {host!r}, which is never followed with a "
                "credential; set base_url to the URL it redirects to",
                status=reply.status,
            )
        body = (await read_body(reply, seconds=seconds)).decode("utf-8", "replace")
        # Before the text is shortened, so that no half of a credential is left.
        text = scrub(body, [secret] if secret else [])
        return self._protocol.classify(reply.status, reply.headers, text.encode())

    def _explained(self, error: AgentError, url: str, *, model: str) -> AgentError:
        """Return the error of a refused request with what to look at, where that is known."""
        advice = ""
        # Only a status says that nothing is there: it may be the model, or the URL is wrong.
        if model and error.basis == "status" and error.status in _NOTHING_THERE:
            hint = "" if re.search(_VERSION, url) else ", which often ends with /v1,"
            advice = (
                f" (at {scrub(url)}, for the model {model!r}); check the base URL{hint} and the "
                "name of the model"
            )
        elif (
            error.code is ErrorCode.AUTH and error.status in _KEY_REFUSED and self._endpoint.advice
        ):
            advice = f"; {self._endpoint.advice}"
        if not advice:
            return error
        return error_from_report(replace(error.report, message=f"{error.message}{advice}"))

    def _completed(
        self, error: AgentError, headers: Mapping[str, str], secret: Secret | None
    ) -> AgentError:
        """Return `error` with the provider and the request id, and without the credential.

        It is not raised here, so that no traceback holds this frame with the reply's headers.
        """
        request_id = error.request_id or request_id_in(headers)
        secrets = [secret] if secret else []
        report = replace(
            error.report,
            message=scrub(error.message, secrets),
            provider=error.provider or self.provider,
            request_id=request_id and scrub(request_id, secrets),
        )
        return error_from_report(report)


class _Sent(msgspec.Struct, frozen=True):
    """A reply, the credential that no error may contain, and the timeouts of the request."""

    reply: Reply
    secret: Secret | None
    timeouts: Timeouts


def _identified(part: StreamPart, sent: _Sent) -> StreamPart:
    """Return the first part of an answer with the provider's id of the request."""
    request_id = request_id_in(sent.reply.headers)
    if request_id is None or not isinstance(part, StreamOpened):
        return part
    return replace(part, request_id=scrub(request_id, [sent.secret] if sent.secret else []))


@lru_cache(maxsize=64)
def _origin(url: str) -> Origin:
    try:
        return origin_of(url)
    except ValueError as error:
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"base_url: {error}") from error


def _renamed(parts: list[StreamPart], names: Mapping[str, str]) -> list[StreamPart]:
    """Replace the names of tools that were sent with the tools' own names."""
    return [
        replace(part, name=names.get(part.name, part.name))
        if isinstance(part, PartOpened) and part.name
        else part
        for part in parts
    ]
