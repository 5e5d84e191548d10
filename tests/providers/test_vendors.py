"""Vendors are compositions: where each sends what, and with which key in which header."""

import json
from collections.abc import Container, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from ollama._client import _parse_host

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamFinished
from haptera.model.vendors import VendorFields
from haptera.providers.client import WireModelClient
from haptera.providers.transport.protocol import HttpRequest
from haptera.providers.vendor_clients import VendorAccess, make_client
from haptera.providers.vendors import VENDORS, Vendor, ollama_url
from haptera.providers.wire import chat_completions, gemini, openai_responses
from haptera.system.token_sources import StaticTokenSource
from tests.providers.conversations import user
from tests.providers.replies import read_json
from tests.providers.vendors_by_recording import provider_of

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
    client = make_client(
        VENDORS["openai"], VendorAccess(tokens=KEY, transport=transport, base_url=base_url)
    )
    request = await sent_by(client, transport, "gpt-5.5")
    assert (request.url, request.headers["authorization"]) == (url, "Bearer secret-key")
    assert client.provider == "openai"


RESPONSES = [row for row in VENDORS.values() if row.protocol == "responses"]


@pytest.mark.parametrize(
    "vendor", [row for row in RESPONSES if row.url_form == "plain"], ids=lambda each: each.name
)
async def test_a_vendor_of_the_same_protocol_is_a_dialect_and_a_url(vendor: Vendor) -> None:
    transport = KeptRequests(ANSWER["responses"])
    place = None if vendor.base_url else "https://models.example.org/v1"
    client = make_client(vendor, VendorAccess(tokens=KEY, transport=transport, base_url=place))
    request = await sent_by(client, transport, "some-model")
    assert (client.provider, request.headers["authorization"]) == (vendor.name, "Bearer secret-key")
    assert request.url == f"{place or vendor.base_url}/responses"


PATHS = {"messages": "/v1/messages", "responses": "/responses", "chat": "/chat/completions"}
RECORDED = (
    *("anthropic", "openai", "openai-chat", "openrouter", "openrouter-responses", "groq", "xai"),
    *("deepseek", "deepseek-responses", "mistral", "xai-responses", "llamacpp"),
)
"""The vendors whose recordings say where they were made."""


@pytest.mark.parametrize("name", RECORDED)
def test_a_vendor_was_recorded_at_the_url_of_its_row(name: str, wire: Path) -> None:
    folders = [folder for folder in (wire / "open").iterdir() if provider_of(folder.name) == name]
    heads = [read_json(path) for folder in folders for path in folder.glob("*/meta.json")]
    asked = {head.get("url") or "" for head in heads}
    vendor = VENDORS[name]
    assert vendor.base_url + PATHS[vendor.protocol] in {url.partition("?")[0] for url in asked}


@pytest.mark.parametrize("name", ["azure", "azure-responses", "compatible", "compatible-responses"])
def test_a_vendor_whose_url_has_to_be_given_says_so(name: str) -> None:
    vendor = VENDORS[name]
    with pytest.raises(ConfigError, match=f"no base URL for {name!r}: pass base_url") as caught:
        make_client(vendor, VendorAccess(tokens=KEY, transport=KeptRequests()))
    assert caught.value.code is ErrorCode.CONFIG_MISSING
    assert all(variable in caught.value.message for variable in vendor.url_variables)


@pytest.mark.parametrize("end", ["", "/", "/openai", "/openai/v1/"])
async def test_azure_gets_its_key_in_its_own_header(end: str) -> None:
    transport = KeptRequests(ANSWER["responses"])
    url = f"https://mine.openai.azure.com{end}"
    access = VendorAccess(tokens=KEY, transport=transport, base_url=url)
    client = make_client(VENDORS["azure-responses"], access)
    request = await sent_by(client, transport, "my-gpt-5")
    assert request.url == "https://mine.openai.azure.com/openai/v1/responses"
    assert request.headers["api-key"] == "secret-key"
    assert "authorization" not in request.headers


@pytest.mark.parametrize("base_url", [None, "https://generativelanguage.googleapis.com/v1beta"])
async def test_gemini_gets_its_key_in_its_own_header(base_url: str | None) -> None:
    transport = KeptRequests(ANSWER["gemini"])
    access = VendorAccess(tokens=KEY, transport=transport, base_url=base_url)
    client = make_client(VENDORS["gemini"], access)
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
    fields = VendorFields(project="p1", location=location)
    access = VendorAccess(tokens=LOGIN, transport=transport, fields=fields)
    client = make_client(VENDORS["vertex"], access)
    request = await sent_by(client, transport, "gemini-2.5-flash")
    assert request.url == (
        f"https://{host}/v1/projects/p1/locations/{location}/publishers/google/models/"
        "gemini-2.5-flash:streamGenerateContent?alt=sse"
    )
    assert request.headers["authorization"] == "Bearer secret-token"


async def test_ollama_needs_no_key() -> None:
    transport = KeptRequests(ANSWER["ollama"])
    client = make_client(VENDORS["ollama"], VendorAccess(transport=transport))
    request = await sent_by(client, transport, "qwen3:4b")
    assert request.url == "http://127.0.0.1:11434/api/chat"
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    "host",
    [
        "",
        "box",
        "box:80",
        ":9000",
        "box/path/",
        "http://box",
        "http://box:1234",
        "https://ollama.com",
        "https://ollama.example/",
        "https://box/path/",
        "[::1]",
        "[::1]:5000",
    ],
)
def test_a_host_is_read_as_ollamas_own_client_reads_it(host: str) -> None:
    assert ollama_url(host) == _parse_host(host)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - nothing listens there
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        ("[::]", "http://[::1]:11434"),
        (" box ", "http://box:11434"),
    ],
)
def test_a_servers_wildcard_is_this_machine(host: str, url: str) -> None:
    assert ollama_url(host) == url
    assert ollama_url(url) == url


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("box:port", "http://box:port"),
        ("ftp://box", "ftp://box"),
        ("http://me:word@box", "http://me:word@box"),
        ("http://box?x=1", "http://box?x=1"),
    ],
)
def test_what_is_no_host_is_left_for_the_check_of_urls(host: str, url: str) -> None:
    assert ollama_url(host) == url


def test_every_row_can_be_reached() -> None:
    dialects: dict[str, Container[str]] = {
        "chat": chat_completions.dialects.DIALECTS,
        "responses": openai_responses.dialects.DIALECTS,
        "generate_content": gemini.dialects.DIALECTS,
    }
    for name, vendor in VENDORS.items():
        assert vendor.name == name
        assert bool(vendor.dialect) == (vendor.protocol in dialects)
        if vendor.dialect:
            assert vendor.dialect in dialects[vendor.protocol]
        if vendor.needs_key:
            assert vendor.key_variables or vendor.url_form == "vertex"
            assert vendor.base_url or vendor.url_form in {"azure", "vertex"}


def test_a_second_name_of_an_account_shares_everything_but_its_protocol() -> None:
    for vendor in VENDORS.values():
        if vendor.account:
            first = VENDORS[vendor.account]
            assert not first.account
            assert vendor == replace(
                first,
                name=vendor.name,
                protocol=vendor.protocol,
                account=first.name,
                default_model="",
                more_variables=vendor.more_variables,
            )
            assert vendor.more_variables.items() <= first.more_variables.items()
        assert vendor.same_models_as in {"", *VENDORS}
