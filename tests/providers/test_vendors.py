"""Vendors are compositions: where each sends what, and with which key in which header."""

import json
from collections.abc import Mapping

import pytest

from holdfast.auth.token_sources import StaticTokenSource
from holdfast.config.environment import PROVIDER_VARIABLES
from holdfast.providers import gemini, ollama, openai, vertex
from holdfast.providers.client import WireModelClient
from holdfast.providers.transport.protocol import HttpRequest
from holdfast.vocabulary.errors import ConfigError
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.stream_parts import StreamFinished
from tests.providers.conversations import user

KEY = StaticTokenSource("secret-key")
LOGIN = StaticTokenSource("secret-token", kind="oauth")

SSE = {"content-type": "text/event-stream", "date": "Mon, 02 Nov 2026 12:00:00 GMT"}
ANSWER = {
    "responses": b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n',
    "gemini": b'data: {"candidates":[{"finishReason":"STOP"}]}\r\n\r\n',
    "ollama": b'{"model":"m","done":true}\n',
}


class OneReply:
    """A reply with one read."""

    status = 200
    headers: Mapping[str, str] = SSE

    def __init__(self, body: bytes) -> None:
        self._reads = [body]

    async def read(self) -> bytes:
        return self._reads.pop() if self._reads else b""

    async def drain(self) -> None:
        return None

    def close(self) -> None:
        return None


class KeptRequests:
    """A transport that keeps what it is given."""

    def __init__(self, body: bytes = b"") -> None:
        self.body = body
        self.requests: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> OneReply:
        self.requests.append(request)
        return OneReply(self.body)

    async def close(self) -> None:
        return None


async def sent_by(client: WireModelClient, transport: KeptRequests, model: str) -> HttpRequest:
    parts = [
        part
        async for batch in client.stream(ModelRequest(model=model, messages=(user("Hi"),)))
        for part in batch
    ]
    assert isinstance(parts[-1], StreamFinished)
    assert json.loads(transport.requests[0].body)
    return transport.requests[0]


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (None, "https://api.openai.com/v1/responses"),
        ("https://proxy.example/v1/", "https://proxy.example/v1/responses"),
    ],
)
async def test_openai_gets_its_key_as_a_bearer_token(base_url: str | None, url: str) -> None:
    transport = KeptRequests(ANSWER["responses"])
    client = openai.openai(tokens=KEY, transport=transport, base_url=base_url)
    request = await sent_by(client, transport, "gpt-5.5")
    assert (request.url, request.headers["authorization"]) == (url, "Bearer secret-key")
    assert client.provider == "openai"


@pytest.mark.parametrize("vendor", openai.RESPONSES_VENDORS.values(), ids=lambda each: each.name)
async def test_a_vendor_of_the_same_protocol_is_a_dialect_and_an_address(
    vendor: openai.ResponsesVendor,
) -> None:
    transport = KeptRequests(ANSWER["responses"])
    place = None if vendor.base_url else "https://models.example.org/v1"
    client = openai.openai(vendor, tokens=KEY, transport=transport, base_url=place)
    request = await sent_by(client, transport, "some-model")
    assert (client.provider, request.headers["authorization"]) == (vendor.name, "Bearer secret-key")
    assert request.url == f"{place or vendor.base_url}/responses"


def test_a_vendor_whose_address_nobody_knows_says_so() -> None:
    vendor = openai.RESPONSES_VENDORS["compatible-responses"]
    with pytest.raises(ConfigError, match="no base URL for 'compatible-responses'"):
        openai.openai(vendor, tokens=None, transport=KeptRequests())
    with pytest.raises(ConfigError, match="set AZURE_OPENAI_ENDPOINT"):
        openai.azure_openai(tokens=KEY, transport=KeptRequests(), endpoint="")


@pytest.mark.parametrize("end", ["", "/", "/openai", "/openai/v1/"])
async def test_azure_gets_its_key_in_its_own_header(end: str) -> None:
    transport = KeptRequests(ANSWER["responses"])
    client = openai.azure_openai(
        tokens=KEY, transport=transport, endpoint=f"https://mine.openai.azure.com{end}"
    )
    request = await sent_by(client, transport, "my-gpt-5")
    assert request.url == "https://mine.openai.azure.com/openai/v1/responses"
    assert request.headers["api-key"] == "secret-key"
    assert "authorization" not in request.headers


@pytest.mark.parametrize("base_url", [None, "https://generativelanguage.googleapis.com/v1beta"])
async def test_gemini_gets_its_key_in_its_own_header(base_url: str | None) -> None:
    transport = KeptRequests(ANSWER["gemini"])
    client = gemini.gemini(tokens=KEY, transport=transport, base_url=base_url)
    request = await sent_by(client, transport, "gemini-2.5-flash")
    assert request.url == (
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash"
        ":streamGenerateContent?alt=sse"
    )
    assert request.headers["x-goog-api-key"] == "secret-key"


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("global", "aiplatform.googleapis.com"),
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
    ],
)
async def test_vertex_gets_a_token_in_a_project_and_a_place(location: str, host: str) -> None:
    transport = KeptRequests(ANSWER["gemini"])
    place = vertex.VertexPlace(project="p1", location=location)
    client = vertex.vertex(tokens=LOGIN, transport=transport, place=place)
    request = await sent_by(client, transport, "gemini-2.5-flash")
    assert request.url == (
        f"https://{host}/v1/projects/p1/locations/{location}/publishers/google/models/"
        "gemini-2.5-flash:streamGenerateContent?alt=sse"
    )
    assert request.headers["authorization"] == "Bearer secret-token"


async def test_ollama_needs_no_key() -> None:
    transport = KeptRequests(ANSWER["ollama"])
    client = ollama.ollama(transport=transport)
    request = await sent_by(client, transport, "qwen3:4b")
    assert request.url == "http://127.0.0.1:11434/api/chat"
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        ("box", "http://box:11434"),
        ("box:80", "http://box:80"),
        ("http://box", "http://box:80"),
        ("https://ollama.com", "https://ollama.com:443"),
        ("https://box/path/", "https://box:443/path"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("[::]", "http://[::1]:11434"),
    ],
)
def test_a_host_is_read_as_ollamas_own_client_reads_it(host: str, url: str) -> None:
    assert ollama.base_url_of(host) == url


def test_the_names_that_users_have_set_are_said_as_values() -> None:
    assert PROVIDER_VARIABLES["openai"].keys == ("OPENAI_API_KEY",)
    assert PROVIDER_VARIABLES["openai"].base_url[0] == "OPENAI_BASE_URL"
    assert PROVIDER_VARIABLES["azure"].keys == ("AZURE_OPENAI_API_KEY",)
    assert PROVIDER_VARIABLES["gemini"].keys == ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    assert PROVIDER_VARIABLES["ollama"].base_url == ("OLLAMA_HOST",)
