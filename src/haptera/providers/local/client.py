"""Local client: answers requests with models on this machine.

The model of a request is a name of the catalogue or the path of a GGUF file; one client serves them
all. A model runs in a process of its own, with llama.cpp's server in it, and the client talks to it
in Chat Completions.
"""

import asyncio
import importlib.util
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from haptera.model.errors import AgentError, ConfigError, ErrorCode, SessionError
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import StreamPart
from haptera.model.vendors import LOCAL, names_a_file
from haptera.providers.client import ProviderEndpoint, WireModelClient
from haptera.providers.local.download import pull_command
from haptera.providers.local.model_process import (
    SHARED_PROCESSES,
    ModelProcessLease,
    ModelProcessPool,
    ProcessEndpoint,
    ServeParameters,
)
from haptera.providers.local.weights import LocalWeights, WeightFiles, find_weights, read_template
from haptera.providers.transport.http import AiohttpTransport
from haptera.providers.vendors import VENDORS, key_advice
from haptera.providers.wire import chat_completions
from haptera.providers.wire.chat_completions.dialects import LLAMA_CPP
from haptera.providers.wire.lenient_decoding import read_token_count
from haptera.providers.wire.protocol import WireProtocol, WireRequest
from haptera.system.token_sources import StaticTokenSource

_PROMPT_SECONDS = 900.0
"""The shortest timeout for the first byte. A CPU reads a long prompt for minutes, and a process
that dies closes the connection at once, so silence is not a sign of failure."""
_HEADERS = {"connection": "close"}
"""After a long answer the server closes the connection without notice. A request on a connection
that is used again would be lost, and a new connection costs nothing on loopback."""
_MEMORY_SPARE = 3 << 30
_SUSPICIOUS = frozenset(
    {
        ErrorCode.NETWORK,
        ErrorCode.STREAM_INTERRUPTED,
        ErrorCode.TIMEOUT,
        ErrorCode.PROTOCOL,
        ErrorCode.SERVER_ERROR,
    }
)
"""Errors after which the health of the model process is checked."""


class _ServedModel:
    """A model in use: its lease, and the client of its process."""

    def __init__(self, alias: str, lease: ModelProcessLease) -> None:
        self.alias = alias
        self.lease = lease
        self.endpoint: ProcessEndpoint | None = None
        """The endpoint of `client`; a process that was restarted has another one."""
        self.client: WireModelClient | None = None


class LocalModelClient:
    """Sends requests to models on this machine; implements `ModelClient`.

    Owns its leases on model processes and a connection pool. Does not own the processes (the pool
    does) or the weights (`WeightFiles` does): missing weights are an error that names the command
    to download them.
    """

    def __init__(
        self,
        *,
        folder: Path,
        pool: ModelProcessPool = SHARED_PROCESSES,
        context: int | None = None,
        is_named: bool = True,
    ) -> None:
        self.provider = LOCAL
        self._is_named = is_named
        """Whether a model was named, or this one is used because no key was found."""
        self._files = WeightFiles(folder)
        self._pool = pool
        self._context = context
        self._protocol = _protocol()
        self._transport = AiohttpTransport()
        # A client may be used on several event loops, each in a thread of its own.
        self._lock = threading.Lock()
        self._served: dict[str, _ServedModel] = {}
        self._closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Send `request` when first iterated, and yield the answer."""
        served = await self._serve(request.model)
        client = await self._client(served)
        try:
            # Closed here, not when the garbage collector comes: the model goes on until the
            # connection ends.
            async with aclosing(client.stream(_local_request(request, served.alias))) as answer:
                async for parts in answer:
                    yield parts
        except AgentError as error:
            if error.code in _SUSPICIOUS:
                served.lease.suspect()
            raise

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        """Count the tokens of `request` as its model counts them."""
        served = await self._serve(request.model)
        client = await self._client(served)
        return await client.count_tokens(_local_request(request, served.alias))

    async def start(self, model: str) -> None:
        """Start a model's process now, so that the first request need not wait for it."""
        await self._client(await self._serve(model))

    async def close(self) -> None:
        """Release the model processes; those without another client end."""
        with self._lock:
            self._closed = True
            served = list(self._served.values())
            self._served.clear()
        await self._transport.close()
        for model in served:
            await model.lease.release()

    async def _serve(self, model: str) -> _ServedModel:
        """Return a model with its lease; its weights are on this machine then."""
        served = self._served.get(model)
        if served is not None:
            return served
        if names_a_file(model):
            parameters = await asyncio.to_thread(self._parameters_of_file, Path(model))
        else:
            weights = find_weights(model)
            path = await self._weights_path(weights)
            parameters = self._parameters(path, weights.size, weights)
        with self._lock:
            if self._closed:
                raise SessionError(ErrorCode.CLOSED, "the client is closed")
            # Two requests may have come here at the same time, and one lease is enough.
            if model not in self._served:
                lease = self._pool.lease(parameters)
                self._served[model] = _ServedModel(parameters.alias, lease)
            return self._served[model]

    async def _weights_path(self, weights: LocalWeights) -> Path:
        if await asyncio.to_thread(self._files.has, weights):
            return self._files.path_of(weights)
        is_installed = importlib.util.find_spec("xllamacpp") is not None
        packages = () if is_installed else ("pip install xllamacpp",)  # the extra 'local'
        is_usual = not self._is_named and weights.name == VENDORS[LOCAL].default_model
        ways = (
            "it is used when no model is named and no API key is found. Either "
            f"{key_advice()}, or install the model"
            if is_usual
            else "install it"
        )
        raise ConfigError(
            ErrorCode.CONFIG_MISSING,
            f"the model {weights.name!r} is not on this machine; {ways}: "
            f"{' && '.join((*packages, pull_command(weights.name)))} "
            f"({weights.download_size / 1e6:,.0f} MB, {weights.licence}, into "
            f"{self._files.folder})",
            provider=LOCAL,
        )

    def _parameters_of_file(self, path: Path) -> ServeParameters:
        # Absolute, because the process runs in `/`, and an error is to say where it looked.
        path = path.expanduser().absolute()
        if not path.is_file():
            raise ConfigError(
                ErrorCode.CONFIG_MISSING, f"there is no file {str(path)!r}", provider=LOCAL
            )
        # One process serves all names of a file.
        return self._parameters(path.resolve(), path.stat().st_size, None)

    def _parameters(self, path: Path, size: int, weights: LocalWeights | None) -> ServeParameters:
        parameters = ServeParameters(
            weights=str(path),
            alias=weights.name if weights else path.stem,
            template=read_template(weights) if weights else "",
            memory=2 * size + _MEMORY_SPARE,
        )
        if weights is not None:
            parameters = replace(parameters, context=weights.context, batch=weights.batch)
        return replace(parameters, context=self._context or parameters.context)

    async def _client(self, served: _ServedModel) -> WireModelClient:
        """Return the client of a model's process, which is started if it does not run."""
        endpoint = await served.lease.endpoint()
        if served.client is None or served.endpoint != endpoint:
            served.endpoint = endpoint
            served.client = WireModelClient(
                provider=LOCAL,
                protocol=self._protocol,
                endpoint=ProviderEndpoint(base_url=endpoint.url, headers=_HEADERS),
                tokens=StaticTokenSource(endpoint.key),
                transport=self._transport,
            )
        return served.client


def _local_request(request: ModelRequest, alias: str) -> ModelRequest:
    """Return `request` with the model's alias, and timeouts that allow for a long prompt.

    Without a temperature it is decoded greedily: small models wander off when they sample.
    """
    timeouts = replace(
        request.timeouts,
        first_byte=max(request.timeouts.first_byte, _PROMPT_SECONDS),
        content=max(request.timeouts.content, _PROMPT_SECONDS),
    )
    temperature = 0.0 if request.temperature is None else request.temperature
    return replace(request, model=alias, timeouts=timeouts, temperature=temperature)


def _protocol() -> WireProtocol:
    """Return Chat Completions for llama.cpp, with its endpoint for counting tokens."""
    protocol = chat_completions.protocol_for(LLAMA_CPP)
    new_encoder = protocol.new_encoder

    def encode_count(request: ModelRequest) -> WireRequest:
        wire = new_encoder()(request)
        return replace(wire, path=f"{wire.path}/input_tokens")

    return replace(
        protocol,
        # The weights of the catalogue are for text only.
        history=replace(protocol.history, media=("text/",), result_media=()),
        new_encoder=lambda: _reporting(new_encoder()),
        encode_count=encode_count,
        decode_count=partial(read_token_count, field="input_tokens"),
    )


def _reporting(
    encode: Callable[[ModelRequest], WireRequest],
) -> Callable[[ModelRequest], WireRequest]:
    """Return an encoder whose requests ask for progress reports while the prompt is read.

    llama.cpp notices a closed connection only when it writes to it. Without reports, an abort while
    it reads a prompt would take effect after the whole prompt.
    """

    def encode_with_reports(request: ModelRequest) -> WireRequest:
        wire = encode(request)
        # Put in front of the encoded body, which is large and not decoded for this.
        return replace(wire, body=b'{"return_progress":true,' + wire.body.removeprefix(b"{"))

    return encode_with_reports
