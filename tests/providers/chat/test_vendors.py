"""Each vendor is asked at its own address, with its own header, and its answer is read."""

from collections.abc import Mapping

import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import PartDelta, StreamFinished, StreamPart
from haptera.model.vendors import VendorFields
from haptera.providers.client import WireModelClient
from haptera.providers.transport.protocol import HttpRequest
from haptera.providers.vendor_clients import VendorAccess, make_client
from haptera.providers.vendors import VENDORS
from haptera.providers.wire.chat_completions.dialects import DIALECTS
from haptera.system.token_sources import StaticTokenSource
from tests.providers.chat.example_requests import user
from tests.providers.chat.replies import piece, sse

ANSWER = sse(piece(content="yes"), piece("stop"))
REQUEST = ModelRequest(model="some/model", messages=(user("hi"),))


class FixedReply:
    """A reply whose whole body has arrived."""

    def __init__(self, body: bytes, *, status: int, content_type: str) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {"content-type": content_type, "date": "-"}
        self._rest = [body]

    async def read(self) -> bytes:
        return self._rest.pop() if self._rest else b""

    async def drain(self) -> None:
        self._rest.clear()

    def close(self) -> None:
        self._rest.clear()


class FixedTransport:
    """Gives every request the same reply, and remembers what was asked."""

    def __init__(
        self, body: bytes = ANSWER, *, status: int = 200, content_type: str = "text/event-stream"
    ) -> None:
        self.requests: list[HttpRequest] = []
        self._reply = (body, status, content_type)

    async def send(self, request: HttpRequest) -> FixedReply:
        self.requests.append(request)
        body, status, content_type = self._reply
        return FixedReply(body, status=status, content_type=content_type)

    async def close(self) -> None:
        self.requests.clear()


async def ask(client: WireModelClient) -> list[StreamPart]:
    return [part async for batch in client.stream(REQUEST) for part in batch]


async def failure(client: WireModelClient) -> AgentError:
    with pytest.raises(AgentError) as raised:
        await ask(client)
    return raised.value


CHAT = [row for row in VENDORS.values() if row.protocol == "chat"]


@pytest.mark.parametrize("name", [row.name for row in CHAT if row.url_form == "plain"])
async def test_a_vendor_is_asked_and_its_answer_is_read(name: str) -> None:
    vendor, transport = VENDORS[name], FixedTransport()
    place = None if vendor.base_url else "https://models.example.org/v1"
    tokens = StaticTokenSource("sk-test")
    client = make_client(vendor, VendorAccess(tokens=tokens, transport=transport, base_url=place))
    parts = await ask(client)
    assert [part.text for part in parts if isinstance(part, PartDelta)] == ["yes"]
    assert isinstance(parts[-1], StreamFinished)
    (sent,) = transport.requests
    assert sent.url == f"{place or vendor.base_url}/chat/completions"
    assert sent.headers["authorization"] == "Bearer sk-test"
    assert client.provider == name


async def test_a_local_server_is_asked_without_a_key() -> None:
    transport = FixedTransport()
    await ask(make_client(VENDORS["llamacpp"], VendorAccess(transport=transport)))
    assert "authorization" not in transport.requests[0].headers


@pytest.mark.parametrize(
    ("version", "url"),
    [
        (
            "2025-01-01",
            "https://me.openai.azure.com/openai/deployments/some%2Fmodel/chat/completions"
            "?api-version=2025-01-01",
        ),
        (None, "https://me.openai.azure.com/openai/v1/chat/completions"),
    ],
)
@pytest.mark.parametrize("end", ["", "/", "/openai", "/openai/v1/"])
async def test_azure_is_asked_at_its_resource(version: str | None, url: str, end: str) -> None:
    transport = FixedTransport()
    access = VendorAccess(
        tokens=StaticTokenSource("key"),
        transport=transport,
        base_url=f"https://me.openai.azure.com{end}",
        fields=VendorFields(api_version=version),
    )
    await ask(make_client(VENDORS["azure"], access))
    assert transport.requests[0].url == url
    assert transport.requests[0].headers["api-key"] == "key"


async def test_azure_takes_the_token_of_a_login_as_a_bearer() -> None:
    transport = FixedTransport()
    tokens = StaticTokenSource("token", kind="oauth")
    access = VendorAccess(tokens=tokens, transport=transport, base_url="https://me.example.org")
    await ask(make_client(VENDORS["azure"], access))
    assert transport.requests[0].headers["authorization"] == "Bearer token"


async def test_an_error_says_whose_it_is() -> None:
    body = b'{"error": {"message": "no such key", "code": "invalid_api_key"}}'
    transport = FixedTransport(body, status=401, content_type="application/json")
    error = await failure(make_client(VENDORS["groq"], VendorAccess(transport=transport)))
    assert (error.code, error.provider, error.status) == (ErrorCode.AUTH, "groq", 401)


async def test_an_error_with_the_status_of_a_success_is_an_error() -> None:
    body = b'{"error": {"message": "Rate limit exceeded", "code": 429}}'
    transport = FixedTransport(body, content_type="application/json")
    error = await failure(make_client(VENDORS["openrouter"], VendorAccess(transport=transport)))
    assert error.code is ErrorCode.RATE_LIMITED


async def test_a_page_instead_of_an_answer_is_a_protocol_error() -> None:
    transport = FixedTransport(b"<title>Welcome</title>", content_type="text/html")
    error = await failure(make_client(VENDORS["vllm"], VendorAccess(transport=transport)))
    assert (error.code, error.message) == (ErrorCode.PROTOCOL, "Welcome")


def test_every_dialect_has_its_vendor() -> None:
    # Ollama's own protocol is preferred to its Chat Completions, which a table can still choose.
    assert {vendor.dialect for vendor in CHAT} == set(DIALECTS) - {"ollama"}
