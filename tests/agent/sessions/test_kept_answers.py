"""Answers that the provider keeps: only what is new is sent, and the log still holds everything."""

import json
from typing import Any

from haptera import Agent
from haptera.model.json_types import JsonObject
from tests.providers.exchanges import case
from tests.providers.faulty_server import Connection, FaultyServer, faulty_server, replies

CHAINED = {"previous_response_id": True}


class KeepingProvider:
    """Answers in Responses and keeps each answer under a new id; in Messages it just answers."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, connection: Connection) -> None:
        if connection.request.path.endswith("/messages"):
            await replies(case("text"))(connection)
            return
        self.count += 1
        stored = json.loads(connection.request.body)["store"]
        await replies(answer(f"resp_{self.count}", stored=stored))(connection)


def answer(name: str, *, stored: bool) -> bytes:
    head = {"id": name, "model": "gpt-5.5", "store": stored}
    text = {"type": "output_text", "text": f"I am {name}.", "annotations": []}
    item = {"type": "message", "id": f"msg_{name}", "role": "assistant", "content": [text]}
    events: list[JsonObject] = [
        {"type": "response.created", "response": head},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {"type": "response.output_text.delta", "item_id": f"msg_{name}", "delta": text["text"]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**head, "status": "completed", "output": [item]},
        },
    ]
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def agent_at(server: FaultyServer, **options: Any) -> Agent:
    environment = {
        "OPENAI_API_KEY": "x",
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "ANTHROPIC_API_KEY": "y",
        "ANTHROPIC_BASE_URL": server.url,
    }
    return Agent("openai/gpt-5.5", environment=environment, **options)


def sent(server: FaultyServer, place: int) -> tuple[str | None, list[str]]:
    """Return what a request goes on from, and the texts that it sends."""
    body: JsonObject = json.loads(server.requests[place].body)
    texts = [
        piece if isinstance(piece, str) else piece["text"]
        for item in body["input"]
        for piece in ([item["content"]] if isinstance(item["content"], str) else item["content"])
    ]
    return body.get("previous_response_id"), texts


async def test_a_chained_session_sends_only_what_is_new() -> None:
    async with faulty_server(KeepingProvider()) as server:
        agent = agent_at(server, betas=CHAINED)
        async with agent, agent.session() as session:
            await session.chat("One")
            await session.chat("Two")
            assert [message.text for message in session.messages] == [
                *("One", "I am resp_1."),
                *("Two", "I am resp_2."),
            ]
    assert [sent(server, place) for place in (0, 1)] == [(None, ["One"]), ("resp_1", ["Two"])]
    assert json.loads(server.requests[0].body)["store"] is True


async def test_a_rewound_session_goes_on_from_the_earlier_answer() -> None:
    async with faulty_server(KeepingProvider()) as server:
        agent = agent_at(server, betas=CHAINED)
        async with agent, agent.session() as session:
            first = await session.chat("One")
            await session.chat("Two")
            assert first.message_id is not None
            await session.rewind(to=first.message_id)
            await session.chat("Other two")
    assert sent(server, 2) == ("resp_1", ["Other two"])


async def test_a_session_that_was_elsewhere_says_what_happened_there() -> None:
    async with faulty_server(KeepingProvider()) as server:
        agent = agent_at(server, betas=CHAINED)
        async with agent, agent.session() as session:
            await session.chat("One")
            await session.configure(model="anthropic/claude-sonnet-5")
            meanwhile = (await session.chat("Two")).text
            await session.configure(model="openai/gpt-5.5")
            await session.chat("Three")
    assert "anthropic-beta" not in server.requests[1].headers
    assert sent(server, 2) == ("resp_1", ["Two", meanwhile, "Three"])


async def test_without_the_switch_everything_is_sent_again_and_nothing_is_kept() -> None:
    async with faulty_server(KeepingProvider()) as server:
        agent = agent_at(server, betas=CHAINED)
        async with agent, agent.session() as session:
            await session.chat("One")
            await session.configure(betas={})
            await session.chat("Two")
    assert sent(server, 1) == (None, ["One", "I am resp_1.", "Two"])
    assert json.loads(server.requests[1].body)["store"] is False
