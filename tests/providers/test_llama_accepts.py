"""A real server's own word on the histories that move: llama.cpp in three protocols."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from haptera.model.messages import Message
from haptera.model.parts import MediaPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import Timeouts
from haptera.providers.client import WireModelClient
from haptera.providers.transport.http import AiohttpTransport
from haptera.providers.vendor_clients import VendorAccess, make_client
from haptera.providers.vendors import VENDORS
from haptera.system.token_sources import StaticTokenSource
from tests.fixtures_report import Report
from tests.providers.conversations import CLOCK, user
from tests.providers.exchanges import ask
from tests.providers.moving_targets import targets
from tests.providers.test_moving import made_histories, recorded_histories, recorded_loops

LONGEST = 800
"""Characters of a history that the small model still reads quickly."""
LOGS = 3


def clients(url: str) -> dict[str, WireModelClient]:
    tokens = StaticTokenSource("x")

    def client(vendor: str, base_url: str) -> WireModelClient:
        access = VendorAccess(tokens=tokens, transport=AiohttpTransport(), base_url=base_url)
        return make_client(VENDORS[vendor], access)

    return {
        "Messages": client("anthropic", url),
        "Chat Completions": client("llamacpp", f"{url}/v1"),
        "Responses": client("compatible-responses", f"{url}/v1"),
    }


def size_of(messages: tuple[Message, ...]) -> int:
    return sum(len(repr(part)) for message in messages for part in message.parts)


def holds_media(messages: tuple[Message, ...]) -> bool:
    """Whether a history holds a picture, which the server's model cannot read."""
    parts = [part for message in messages for part in message.parts]
    content = [each for part in parts if isinstance(part, ToolResultPart) for each in part.content]
    return any(isinstance(each, MediaPart) for each in (*parts, *content))


def sample(wire: Path) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Yield a short history of every provider, the longest short loop of each, and some logs."""
    target = targets()[0]
    answers: dict[str, tuple[Message, ...]] = {}
    for api, messages in recorded_histories(wire, target):
        if messages[1].parts and size_of(messages) < LONGEST:
            answers.setdefault(api, messages)
    found = recorded_loops(wire, target)
    loops = {api: messages for api, messages in found if size_of(messages) < LONGEST}
    yield from answers.items()
    yield from loops.items()
    readable = [view for view in made_histories() if not holds_media(view)]
    yield from (("a log", view) for view in readable[: 4 * LOGS : 4])


@pytest.mark.sweep
@pytest.mark.timeout(120)
async def test_a_real_server_accepts_what_any_provider_said(
    wire: Path, llama: str, report: Report
) -> None:
    accepted: Counter[str] = Counter()
    refused = []
    histories = list(sample(wire))
    asked = clients(llama)
    for source, messages in histories:
        request = ModelRequest(
            model="smollm2",
            messages=(*messages, user("Say hello.")),
            tools=(CLOCK,),
            max_tokens=1,
            temperature=0.0,
            timeouts=Timeouts(first_byte=60.0),
        )
        # One history in each protocol in turn: what the server has read it need not read again.
        for protocol, client in asked.items():
            _, error = await ask(client, request)
            if error is None:
                accepted[protocol] += 1
            else:
                refused.append((protocol, source, error.code, error.message))
    for client in asked.values():
        await client.close()
    for protocol, count in accepted.items():
        report(f"llama.cpp took {count} of {len(histories)} histories in {protocol}")
    assert refused == []
