"""A matrix of output types and providers: the same value from every wire, whole and as it grows."""

import datetime
import enum
import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired

import jsonschema
import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

from haptera import Agent
from haptera.model.json_types import JsonObject
from haptera.providers.transport.protocol import HttpRequest
from haptera.providers.vendors import VENDORS
from haptera.testing import FakeClock
from tests.providers.test_vendors import OneReply


@dataclass
class City:
    name: str
    people: int = 0


@dataclass
class Town:
    name: str
    mayor: str


class Street(TypedDict):
    name: str
    length: NotRequired[float]


class Struct(msgspec.Struct):
    when: datetime.date
    tags: list[str] = []


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)
    city: City | None = None


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Tree(msgspec.Struct):
    name: str
    below: list["Tree"] = []


class Node(pydantic.BaseModel):
    name: str
    next: "Node | None" = None


@dataclass
class Leaf:
    weight: int


@dataclass
class Branch:
    left: "Branch | Leaf"


_UUID = uuid.UUID(int=7)

TYPES: list[tuple[Any, Any, Any]] = [
    (City, {"name": "Paris", "people": 2}, City("Paris", 2)),
    (list[City], [{"name": "a", "people": 1}], [City("a", 1)]),
    (list[int], [1, 2], [1, 2]),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[float, ...], [1.5, 2.0], (1.5, 2.0)),
    (bool, True, True),
    (int, 7, 7),
    (float, 7.5, 7.5),
    (Decimal, "1.10", Decimal("1.10")),
    (Literal["a", "b"], "b", "b"),
    (Literal[1, 2], 2, 2),
    (Colour, "blue", Colour.BLUE),
    (datetime.date, "2026-01-02", datetime.date(2026, 1, 2)),
    (uuid.UUID, str(_UUID), _UUID),
    (City | None, None, None),
    (City | None, {"name": "Paris", "people": 2}, City("Paris", 2)),
    (int | str, "many", "many"),
    (City | Town, {"name": "X", "mayor": "Ana"}, Town("X", "Ana")),
    (Street, {"name": "Rue", "length": 1.5}, {"name": "Rue", "length": 1.5}),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Struct, {"when": "2026-01-02", "tags": ["a"]}, Struct(datetime.date(2026, 1, 2), ["a"])),
    (
        Model,
        {"name": "Mo", "city": {"name": "P", "people": 0}},
        Model(name="Mo", city=City("P")),
    ),
    (list[Model], [{"name": "Mo", "city": None}], [Model(name="Mo")]),
    (Tree, {"name": "a", "below": [{"name": "b", "below": []}]}, Tree("a", [Tree("b")])),
    (list[Tree], [{"name": "a", "below": []}], [Tree("a")]),
    (Node, {"name": "a", "next": {"name": "b", "next": None}}, Node(name="a", next=Node(name="b"))),
    (Branch, {"left": {"left": {"weight": 1}}}, Branch(Branch(Leaf(1)))),
    (Annotated[int, pydantic.Field(ge=3)], 4, 4),
]
"""A type, the JSON of a value, and the value."""
PROVIDERS = [
    "anthropic/claude-sonnet-4-5",
    "anthropic/claude-3-5-haiku-latest",
    "openai/gpt-5",
    "perplexity/sonar",
    "openai-chat/gpt-4.1",
    "groq/llama-3.3-70b",
    "mistral/mistral-large-latest",
    "gemini/gemini-2.5-flash",
    "gemini/gemini-2.0-flash",
    "ollama/llama3.2",
]


class JsonWire:
    """A provider that answers with JSON which its model was told to give, in many pieces."""

    def __init__(self, model: str, value: Any) -> None:
        self.protocol = VENDORS[model.partition("/")[0]].protocol
        self.value = value
        self.schemas: list[JsonObject] = []

    async def send(self, request: HttpRequest) -> OneReply:
        body = json.loads(request.body)
        schema = sent_schema(body)
        self.schemas.append(schema)
        is_wrapped = schema.get("properties", {}).keys() == {"value"}
        answer = {"value": self.value} if is_wrapped else self.value
        jsonschema.validate(answer, plain(schema))
        text = json.dumps(answer)
        pieces = [text[place : place + 3] for place in range(0, len(text), 3)]
        return OneReply(REPLIES[self.protocol](pieces, body))

    async def close(self) -> None:
        return None


def sent_schema(body: JsonObject) -> JsonObject:
    """Return the schema of the answer, wherever a request has it."""
    places = (
        ("output_config", "format", "schema"),
        ("text", "format", "schema"),
        ("response_format", "json_schema", "schema"),
        ("generationConfig", "responseJsonSchema"),
        ("generationConfig", "responseSchema"),
        ("format",),
    )
    for path in places:
        found: Any = body
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return found
    if tools := body.get("tools"):
        return tools[0]["input_schema"]  # type: ignore[no-any-return]
    said = body.get("systemInstruction", {"parts": body.get("messages")})["parts"][0]
    words = said.get("text") or said["content"]
    found, _ = json.JSONDecoder().raw_decode(words, words.index("{"))
    return found  # type: ignore[no-any-return]


def plain(schema: Any) -> Any:
    """Return a schema with null as JSON Schema writes it, not as OpenAPI does."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {name: plain(each) for name, each in schema.items() if name != "nullable"}
    return {"anyOf": [rest, {"type": "null"}]} if schema.get("nullable") is True else rest


def sse(*events: JsonObject) -> bytes:
    """Write events as a provider sends them."""
    lines = (
        f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n" for event in events
    )
    return "".join(lines).encode()


def by_anthropic(pieces: list[str], body: JsonObject) -> bytes:
    """Answer in words, or by a call where the request has a tool that stands for the answer."""
    tools = body.get("tools")
    block: JsonObject = {"type": "text", "text": ""}
    if tools:
        block = {"type": "tool_use", "id": "toolu_1", "name": tools[0]["name"], "input": {}}
    deltas: list[JsonObject] = [
        {"type": "input_json_delta", "partial_json": piece}
        if tools
        else {"type": "text_delta", "text": piece}
        for piece in pieces
    ]
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return sse(
        {"type": "message_start", "message": {**message, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use" if tools else "end_turn"},
            "usage": usage,
        },
        {"type": "message_stop"},
    )


def by_responses(pieces: list[str], _body: JsonObject) -> bytes:
    """Answer as OpenAI's Responses do."""
    content = {"type": "output_text", "text": "", "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    whole = {**item, "content": [{**content, "text": "".join(pieces)}]}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    delta = "response.output_text.delta"
    return sse(
        {"type": "response.created", "response": {"id": "resp_1", "model": "m"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": content},
        *({"type": delta, **place, "delta": piece} for piece in pieces),
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}},
    )


def by_chat(pieces: list[str], _body: JsonObject) -> bytes:
    """Answer as Chat Completions do."""
    deltas: list[JsonObject] = [
        {"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces
    ]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return sse(*deltas, end) + b"data: [DONE]\n\n"


def by_gemini(pieces: list[str], _body: JsonObject) -> bytes:
    """Answer as Gemini does."""
    deltas: list[JsonObject] = [
        {"candidates": [{"content": {"parts": [{"text": piece}]}}]} for piece in pieces
    ]
    return sse(*deltas, {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]})


def by_ollama(pieces: list[str], _body: JsonObject) -> bytes:
    """Answer as Ollama does."""
    lines: list[JsonObject] = [
        *({"message": {"role": "assistant", "content": piece}} for piece in pieces),
        {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"},
    ]
    return b"".join(json.dumps({"model": "m", **line}).encode() + b"\n" for line in lines)


REPLIES = {
    "messages": by_anthropic,
    "responses": by_responses,
    "chat": by_chat,
    "generate_content": by_gemini,
    "ollama": by_ollama,
}


def agent_at(model: str, wire: JsonWire, **options: Any) -> Agent:
    """Return an agent whose provider is a wire."""
    fixed: dict[str, Any] = {"clock": FakeClock(), "environment": {}, "snapshots": False}
    return Agent(
        model, api_key="k", transport=lambda: wire, base_url="https://x.example", **fixed, **options
    )


@pytest.mark.parametrize("model", PROVIDERS)
@pytest.mark.parametrize(("kind", "plain_value", "value"), TYPES, ids=lambda each: str(each)[:40])
async def test_every_provider_gives_the_same_value(
    model: str, kind: Any, plain_value: Any, value: Any
) -> None:
    wire = JsonWire(model, plain_value)
    async with agent_at(model, wire) as agent:
        result = await agent.run("go", output_type=kind)
        assert (result.output, result.stop_reason) == (value, "complete")
        values = [each async for each in agent.stream("go", output_type=kind).partial()]
    assert values[-1] == value
    assert all(schema.get("type") == "object" for schema in wire.schemas)


def test_every_wire_protocol_is_in_the_matrix() -> None:
    protocols = {VENDORS[model.partition("/")[0]].protocol for model in PROVIDERS}
    assert protocols == {vendor.protocol for vendor in VENDORS.values() if vendor.is_remote} | {
        "ollama"
    }


@pytest.mark.parametrize("model", PROVIDERS)
async def test_a_schema_that_is_no_object_is_wrapped_for_every_provider(model: str) -> None:
    schema: JsonObject = {
        "type": "array",
        "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Name"}]},
        "$defs": {"Name": {"type": "string", "maxLength": 3}},
    }
    async with agent_at(model, JsonWire(model, [1, "abc"])) as agent:
        result = await agent.run("go", output_schema=schema)
    output: Any = result.output
    assert output == [1, "abc"]


class TwoWires:
    """The first provider answers with what is wrong, and the one to fall back to with the value."""

    def __init__(self, first: str, second: str) -> None:
        self.wires = {first: JsonWire(first, "none of these"), second: JsonWire(second, 3)}
        self.asked: list[str] = []

    async def send(self, request: HttpRequest) -> OneReply:
        model = next(each for each in self.wires if _PLACES[each] in request.url)
        self.asked.append(model)
        wire = self.wires[model]
        body = json.loads(request.body)
        if wire.value != 3:
            return OneReply(REPLIES[wire.protocol](['{"value":', '"no number"}'], body))
        return await wire.send(request)

    async def close(self) -> None:
        return None


_PLACES = {
    "openai/gpt-5": "/responses",
    "openai-chat/gpt-4.1": "/chat/completions",
    "anthropic/claude-3-5-haiku-latest": "/messages",
    "gemini/gemini-2.5-flash": "/models/",
    "ollama/llama3.2": "/api/chat",
}


@pytest.mark.parametrize(
    ("first", "second"), list(zip(_PLACES, [*list(_PLACES)[1:], "openai/gpt-5"], strict=True))
)
async def test_a_fallback_of_another_protocol_gives_the_value_that_the_first_did_not(
    first: str, second: str
) -> None:
    wires: Any = TwoWires(first, second)
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "k")
    async with Agent(
        first, fallbacks=[second], transport=lambda: wires, environment=keys, snapshots=False
    ) as agent:
        result = await agent.run("go", output_type=int, output_attempts=2)
    assert (result.output, wires.asked) == (3, [first, first, second])
