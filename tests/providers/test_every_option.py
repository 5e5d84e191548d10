"""Golden requests: between those of a protocol, every option of a request is used."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from haptera.model.ids import CallId
from haptera.model.parts import TextPart, ToolCallPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import Thinking
from haptera.providers.wire.chat_completions.dialects import DIALECTS
from haptera.providers.wire.openai_responses.request import BODY_SWITCHES, CHAIN, SERVER_TOOLS
from haptera.testing.decode_reply import PROTOCOLS
from tests.providers.chat.example_requests import EXAMPLES
from tests.providers.conversations import ANSWER, CLOCK, WEATHER, assistant, everything, user
from tests.providers.gemini.requests import REQUESTS as GEMINI
from tests.providers.golden_requests import REQUESTS as ANTHROPIC
from tests.providers.ollama.requests import REQUESTS as OLLAMA
from tests.providers.responses.requests import REQUESTS as RESPONSES

GOLDEN: dict[str, list[ModelRequest]] = {
    "anthropic": list(ANTHROPIC.values()),
    "chat": [make(dialect) for make in EXAMPLES.values() for dialect in DIALECTS.values()],
    "gemini": [request for request, _ in GEMINI.values()],
    "ollama": list(OLLAMA.values()),
    "responses": [request for request, _ in RESPONSES.values()],
}
NO_OPTIONS = {"timeouts", "reply_bytes", "fresh_media", "caches_tail"}
"""What is never sent, and what only says where a cache mark goes."""


def used(requests: Iterable[ModelRequest]) -> set[str]:
    """Return the options that are not what they are without being said."""
    plain = ModelRequest(model="", messages=())
    return {
        field.name
        for field in msgspec.structs.fields(ModelRequest)
        for request in requests
        if getattr(request, field.name) != getattr(plain, field.name)
    }


@pytest.mark.parametrize("protocol", GOLDEN)
def test_every_option_is_in_a_golden_request(protocol: str) -> None:
    fields = {field.name for field in msgspec.structs.fields(ModelRequest)}
    assert fields - NO_OPTIONS - used(GOLDEN[protocol]) == set()


@pytest.mark.parametrize("protocol", GOLDEN)
def test_a_tool_with_examples_and_one_without_are_in_a_golden_request(protocol: str) -> None:
    tools = [tool for request in GOLDEN[protocol] for tool in request.tools]
    assert {bool(tool.input_examples) for tool in tools} == {True, False}


def test_every_switch_of_responses_is_in_a_golden_request() -> None:
    turned_on = {name for request in GOLDEN["responses"] for name in request.betas}
    assert turned_on >= {*BODY_SWITCHES, *SERVER_TOOLS, CHAIN}
    levels: set[Thinking | None] = {request.thinking for request in GOLDEN["responses"]}
    assert levels >= {None, "off", "low", "high"}


HALF = "half \ud83d of a pair"
DESCRIBED = {**ANSWER.schema, "description": HALF}
CALL = ToolCallPart(call_id=CallId("c1"), name="clock", arguments={"zone": HALF})
PLACES: dict[str, dict[str, Any]] = {
    "system": {"system": (HALF, "Be exact.")},
    "message": {"messages": (user(HALF), assistant(HALF), user(HALF))},
    "call": {
        "messages": (
            user("?"),
            assistant(CALL),
            user(
                ToolResultPart(call_id=CallId("c1"), name="clock", content=(TextPart(text=HALF),))
            ),
        )
    },
    "tool": {"tools": (replace(WEATHER, description=HALF, input_schema=DESCRIBED), CLOCK)},
    "example": {"tools": (replace(WEATHER, input_examples=({"city": HALF},)), CLOCK)},
    "output schema": {"output_schema": replace(ANSWER, schema=DESCRIBED)},
    "stop": {"stop": (HALF,)},
}
"""Where a request may have a text that UTF-8 cannot hold."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_text_that_is_not_text_does_not_stop_a_request_wherever_it_is(
    protocol: str, place: str
) -> None:
    # With tools, Gemini 2.5 is told an output schema in words.
    for model in ("m", "gemini-2.5-flash"):
        request = everything(model, **PLACES[place])
        encoded = PROTOCOLS[protocol].new_encoder()(request)
        assert msgspec.json.decode(encoded.body)
