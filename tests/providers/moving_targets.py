"""The models that a history can be sent to, each behind the client that production uses."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from haptera.model.errors import AgentError, ErrorCode, RequestError
from haptera.model.json_types import JsonObject
from haptera.model.messages import Message
from haptera.model.requests import ModelRequest
from haptera.providers.client import ProviderEndpoint, WireModelClient
from haptera.providers.transport.protocol import HttpRequest, Reply
from haptera.providers.wire.protocol import SchemaTargets
from haptera.system.token_sources import StaticTokenSource
from haptera.testing.decode_reply import PROTOCOLS
from tests.providers.chat.example_requests import MODELS
from tests.providers.conversations import CLOCK, WEATHER
from tests.providers.grammar.judges import faults_of
from tests.providers.vendors_by_recording import provider_of

_OTHERS = (
    ("anthropic-messages", "claude-sonnet-5"),
    ("anthropic-messages", "claude-sonnet-4-5"),
    ("anthropic-messages", "claude-3-5-haiku-latest"),
    ("openai-responses", "gpt-5.5"),
    ("openai-responses", "gpt-4.1"),
    ("azure-responses", "gpt-5.5"),
    ("deepseek-responses", "deepseek-v4-flash"),
    ("openrouter-responses", "openai/gpt-5"),
    ("perplexity-responses", "openai/gpt-5"),
    ("xai-responses", "grok-4"),
    ("compat-responses", "smollm2"),
    ("gemini-generatecontent", "gemini-3-pro-preview"),
    ("gemini-generatecontent", "gemini-2.5-flash"),
    ("gemini-generatecontent", "gemini-2.0-flash"),
    ("vertex-generatecontent", "gemini-2.5-pro"),
    ("ollama-native", "qwen3:4b"),
)


class Silence:
    """A transport that keeps what is sent and answers nothing."""

    def __init__(self) -> None:
        self.body = b""

    async def send(self, request: HttpRequest) -> Reply:
        self.body = request.body
        raise RequestError(ErrorCode.NETWORK, "no server is there")

    async def close(self) -> None:
        pass


class Target(NamedTuple):
    """Whom a history is sent to."""

    api: str
    model: str
    client: WireModelClient
    transport: Silence

    @property
    def name(self) -> str:
        return f"{self.api} {self.model}"

    @property
    def provider(self) -> str:
        return self.client.provider

    @property
    def schema_targets(self) -> SchemaTargets:
        return PROTOCOLS[self.api].schema_targets(self.model)

    async def sent(self, request: ModelRequest) -> JsonObject:
        """Return the body that goes out for a request."""
        try:
            async for _ in self.client.stream(request):
                pass
        except AgentError as error:
            if error.code is not ErrorCode.NETWORK:
                raise
        body: JsonObject = json.loads(self.transport.body)
        return body

    def requests(self, messages: tuple[Message, ...]) -> Iterator[ModelRequest]:
        """Yield requests that a history may be part of."""
        plain = ModelRequest(model=self.model, messages=messages, tools=(WEATHER, CLOCK))
        yield plain
        yield ModelRequest(
            model=self.model,
            messages=messages,
            system=("Be brief.",),
            tools=(WEATHER, CLOCK),
            thinking="high",
            cache_ttl="1h",
        )

    async def faults(self, messages: tuple[Message, ...]) -> list[str]:
        """Return why a history would be refused; nothing when it would not be."""
        requests = self.requests(messages)
        return [fault for request in requests for fault in await self.faults_of(request)]

    async def faults_of(self, request: ModelRequest) -> list[str]:
        """Return why a request would be refused."""
        return faults_of(self.api, await self.sent(request), model=self.model)


def targets() -> list[Target]:
    """Return every protocol in every dialect, with models that differ in what they take."""
    chats = ((f"{name}-chat", model) for name, model in MODELS.items())
    made = []
    for api, model in (*_OTHERS, *chats):
        transport = Silence()
        client = WireModelClient(
            provider=provider_of(api),
            protocol=PROTOCOLS[api],
            endpoint=ProviderEndpoint(base_url="http://127.0.0.1:1"),
            tokens=StaticTokenSource("x"),
            transport=transport,
        )
        made.append(Target(api, model, client, transport))
    return made
