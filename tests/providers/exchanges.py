"""Small replies that we wrote, and a client to send requests to a local server with."""

from collections.abc import Sequence
from pathlib import Path

from haptera.model.errors import AgentError
from haptera.model.ids import MessageId
from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import Timeouts
from haptera.model.stream_parts import PartDelta, StreamPart
from haptera.providers.client import WireModelClient
from haptera.providers.transport.http import AiohttpTransport
from haptera.providers.vendor_clients import VendorAccess, make_client
from haptera.providers.vendors import VENDORS
from haptera.system.token_source import TokenSource
from haptera.system.token_sources import StaticTokenSource

CASES = Path(__file__).parent / "cases"
KEY = "sk-test-0123456789abcdef0123456789"
QUICK = Timeouts(connect=5.0, first_byte=0.2, between_bytes=0.2, content=5.0)

PROMPT = UserMessage(id=MessageId("msg_1"), parts=(TextPart(text="Hello"),))
REQUEST = ModelRequest(model="claude-sonnet-5", messages=(PROMPT,))


def case(name: str) -> bytes:
    """Return a reply that was written by hand."""
    return (CASES / f"{name}.sse").read_bytes()


def client_for(url: str, tokens: TokenSource | None = None) -> WireModelClient:
    """Make a client of the real vendor composition, pointed at `url`."""
    tokens = tokens or StaticTokenSource(KEY)
    access = VendorAccess(tokens=tokens, transport=AiohttpTransport(), base_url=url)
    return make_client(VENDORS["anthropic"], access)


async def ask(
    client: WireModelClient, request: ModelRequest = REQUEST
) -> tuple[list[StreamPart], AgentError | None]:
    """Return everything a stream yields, and the error it ends with."""
    parts: list[StreamPart] = []
    try:
        async for batch in client.stream(request):
            assert batch
            parts.extend(batch)
    except AgentError as error:
        return parts, error
    return parts, None


def text_of(parts: Sequence[StreamPart]) -> str:
    """Join the text of all deltas."""
    return "".join(part.text for part in parts if isinstance(part, PartDelta))
