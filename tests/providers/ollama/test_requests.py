"""Requests to Ollama: golden files, the grammar, and its own types."""

import json

import msgspec
import pytest
from ollama._types import ChatRequest

from haptera.providers.wire.ollama import RequestEncoder
from tests.providers.grammar.ollama import RULES
from tests.providers.grammar.rules import breaches
from tests.providers.ollama.requests import REQUESTS
from tests.providers.wire_goldens import check_golden


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_what_its_golden_file_says(name: str) -> None:
    check_golden("ollama", name, RequestEncoder()(REQUESTS[name]))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_keeps_to_the_grammar(name: str) -> None:
    assert breaches(RULES, json.loads(RequestEncoder()(REQUESTS[name]).body)) == {}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_vendors_types_take_the_request_and_lose_nothing(name: str) -> None:
    body = json.loads(RequestEncoder()(REQUESTS[name]).body)
    taken = ChatRequest.model_validate(body)
    # `truncate` is newer than the client's types; a call's `type` is left out there.
    assert body.keys() - {"truncate"} <= taken.model_dump(exclude_unset=True).keys()


def test_a_remembering_encoder_says_the_same_as_a_new_one() -> None:
    encoder = RequestEncoder()
    for request in (*REQUESTS.values(), *REQUESTS.values()):
        assert encoder(request) == RequestEncoder()(request)


def test_a_required_tool_is_the_only_one_offered() -> None:
    tools = json.loads(RequestEncoder()(REQUESTS["everything"]).body)["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["clock"]


def test_betas_of_another_provider_stay_behind() -> None:
    request = msgspec.structs.replace(
        REQUESTS["plain"], betas={"context-1m-2025": True, "raw": True}
    )
    body = json.loads(RequestEncoder()(request).body)
    assert (body.get("raw"), body.keys() & {"context-1m-2025"}) == (True, set())
