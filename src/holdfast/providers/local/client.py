"""A client for models on this machine: their weights, their process, then plain Chat Completions.

`NAME` of the catalogue or the path of a GGUF file names the model of a request; one client serves
them all. What a model process does is llama.cpp's; what we say to it is our Chat Completions.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.auth.token_sources import StaticTokenSource
from holdfast.providers.client import Endpoint, WireModelClient
from holdfast.providers.local.download import pull_command, pull_weights
from holdfast.providers.local.model_process import ProcessEndpoint, ServeParameters
from holdfast.providers.local.process_pool import (
    SHARED_PROCESSES,
    ModelProcessLease,
    ModelProcessPool,
)
from holdfast.providers.local.weight_files import WeightFiles
from holdfast.providers.local.weights import LocalWeights, find_weights, read_template
from holdfast.providers.transport.http import AiohttpTransport
from holdfast.providers.wire.chat_completions import chat_protocol
from holdfast.providers.wire.chat_completions.dialects import LLAMA_CPP
from holdfast.providers.wire.protocol import WireProtocol, WireRequest
from holdfast.vocabulary.errors import AgentError, ConfigError, ErrorCode, SessionError
from holdfast.vocabulary.local_models import OnPull
from holdfast.vocabulary.requests import ModelRequest, TokenCount
from holdfast.vocabulary.stream_parts import StreamPart

_PROVIDER = "local"
_PROMPT_SECONDS = 900.0
"""How long a prompt may be read before the first word. A CPU takes minutes for a long one, and a
process that dies cuts the connection at once: silence is no sign of failure here."""
_ONE_REQUEST_EACH = {"connection": "close"}
"""After a long answer the server hangs up without a word; the next request would be lost on a
connection that is used again, and a new one costs nothing on loopback."""
_MEMORY_SPARE = 3 << 30
_DOUBTFUL = frozenset(
    {
        ErrorCode.NETWORK,
        ErrorCode.STREAM_INTERRUPTED,
        ErrorCode.TIMEOUT,
        ErrorCode.PROTOCOL,
        ErrorCode.SERVER_ERROR,
    }
)
"""Failures after which a model process has to show that it is well."""


class _ServedModel:
    """A model that this client has taken a share of, and how to speak to its process."""

    def __init__(self, alias: str, lease: ModelProcessLease) -> None:
        self.alias = alias
        self.lease = lease
        self.endpoint: ProcessEndpoint | None = None
        """Where `client` leads to; a process that was restarted listens elsewhere."""
        self.client: WireModelClient | None = None


class LocalModelClient:
    """Asks models on this machine; see `ModelClient` for what it promises.

    Owns its shares of model processes and a connection pool. Does not own the processes (the pool
    does) nor the weights (`WeightFiles` does). Without `on_pull`, weights that are missing are an
    error that says how to fetch them; with it, they are fetched after it was told size and place.
    """

    def __init__(
        self,
        *,
        folder: Path,
        on_pull: OnPull | None = None,
        pool: ModelProcessPool = SHARED_PROCESSES,
        threads: int = 1,
        context: int | None = None,
    ) -> None:
        self.provider = _PROVIDER
        self._files = WeightFiles(folder)
        self._on_pull = on_pull
        self._pool = pool
        self._threads = threads
        self._context = context
        self._protocol = _protocol()
        self._transport = AiohttpTransport()
        self._lock = threading.Lock()
        self._served: dict[str, _ServedModel] = {}
        self._closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Send `request` when first iterated, and yield the answer."""
        served = await self._serve(request.model)
        client = await self._client(served)
        try:
            async with aclosing(client.stream(_with_time_to_read(request, served.alias))) as answer:
                async for parts in answer:
                    yield parts
        except AgentError as error:
            if error.code in _DOUBTFUL:
                served.lease.doubt()
            raise

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count the tokens of `request` as its model counts them."""
        served = await self._serve(request.model)
        client = await self._client(served)
        return await client.count_tokens(_with_time_to_read(request, served.alias))

    async def start(self, model: str) -> None:
        """Start a model's process now, so that the first request need not wait for it."""
        await self._client(await self._serve(model))

    def process_of(self, model: str) -> int | None:
        """Return the id of a model's process, if it runs."""
        served = self._served.get(model)
        return None if served is None else served.lease.pid

    async def close(self) -> None:
        """Give back the model processes; those without another client end."""
        with self._lock:
            self._closed = True
            served = list(self._served.values())
            self._served.clear()
        await self._transport.close()
        for model in served:
            await model.lease.release()

    async def _serve(self, model: str) -> _ServedModel:
        """Return our share of a model's process, with its weights on this machine."""
        served = self._served.get(model)
        if served is not None:
            return served
        if model.endswith(".gguf") or "/" in model:
            parameters = await asyncio.to_thread(self._parameters_of_file, Path(model))
        else:
            weights = find_weights(model)
            path = await self._weights_path(weights)
            parameters = self._parameters(path, weights.size, weights)
        with self._lock:
            if self._closed:
                raise SessionError(ErrorCode.CLOSED, "the client is closed")
            if model not in self._served:
                lease = self._pool.lease(parameters)
                self._served[model] = _ServedModel(parameters.alias, lease)
            return self._served[model]

    async def _weights_path(self, weights: LocalWeights) -> Path:
        if await asyncio.to_thread(self._files.has, weights):
            return self._files.path_of(weights)
        if self._on_pull is not None:
            return await pull_weights(weights, folder=self._files.folder, progress=self._on_pull)
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            f"the model {weights.name!r} is not on this machine, and it is what answers when no "
            "other is named and no key is found. To fetch it "
            f"({weights.download_size / 1e6:,.0f} MB, {weights.licence}) into "
            f"{self._files.folder}, run: {pull_command(weights.name)}",
            provider=_PROVIDER,
        )

    def _parameters_of_file(self, path: Path) -> ServeParameters:
        path = path.expanduser()
        if not path.is_file():
            raise ConfigError(
                ErrorCode.CONFIG_MISSING, f"there is no file {str(path)!r}", provider=_PROVIDER
            )
        return self._parameters(path.resolve(), path.stat().st_size, None)

    def _parameters(self, path: Path, size: int, weights: LocalWeights | None) -> ServeParameters:
        known = ServeParameters(
            weights=str(path),
            alias=weights.name if weights else path.stem,
            threads=self._threads,
            template=read_template(weights) if weights else "",
            memory=2 * size + _MEMORY_SPARE,
        )
        if weights is not None:
            known = replace(known, context=weights.context, batch=weights.batch)
        return replace(known, context=self._context or known.context)

    async def _client(self, served: _ServedModel) -> WireModelClient:
        """Return a client of the model's process, which is started if it does not run."""
        endpoint = await served.lease.endpoint()
        if served.client is None or served.endpoint != endpoint:
            served.endpoint = endpoint
            served.client = WireModelClient(
                provider=_PROVIDER,
                protocol=self._protocol,
                endpoint=Endpoint(base_url=endpoint.url, headers=_ONE_REQUEST_EACH),
                tokens=StaticTokenSource(endpoint.key),
                transport=self._transport,
            )
        return served.client


def _with_time_to_read(request: ModelRequest, alias: str) -> ModelRequest:
    """Return `request` for the model's own name, with time to read a long prompt."""
    timeouts = replace(
        request.timeouts,
        first_byte=max(request.timeouts.first_byte, _PROMPT_SECONDS),
        content=max(request.timeouts.content, _PROMPT_SECONDS),
    )
    return replace(request, model=alias, timeouts=timeouts)


def _protocol() -> WireProtocol:
    """Return Chat Completions as llama.cpp speaks it, with its way to count tokens."""
    protocol = chat_protocol(LLAMA_CPP)
    new_encoder = protocol.new_encoder

    def encode_count(request: ModelRequest) -> WireRequest:
        wire = protocol.encode_request(request)
        return replace(wire, path=f"{wire.path}/input_tokens")

    return replace(
        protocol,
        # A model process is given weights for text alone.
        history=replace(protocol.history, media=("text/",), result_media=()),
        encode_request=_reporting(protocol.encode_request),
        new_encoder=None if new_encoder is None else lambda: _reporting(new_encoder()),
        encode_count=encode_count,
        decode_count=_decode_count,
    )


def _reporting(
    encode: Callable[[ModelRequest], WireRequest],
) -> Callable[[ModelRequest], WireRequest]:
    """Make requests ask for reports while the prompt is read.

    llama.cpp notices that a connection is closed only when it writes to it. Without reports, an
    abort while it reads a prompt would be noticed after the whole prompt.
    """

    def encode_with_reports(request: ModelRequest) -> WireRequest:
        wire = encode(request)
        return replace(wire, body=b'{"return_progress":true,' + wire.body.removeprefix(b"{"))

    return encode_with_reports


class _Count(msgspec.Struct):
    input_tokens: int


def _decode_count(body: bytes) -> int:
    return msgspec.json.decode(body, type=_Count).input_tokens
