"""Requests to OpenAI Responses: golden files, the grammar, and the vendor's own types."""

import inspect
import json
from typing import Any

import msgspec
import pytest
from openai.types import responses as response_types
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import is_typeddict

from haptera.model.errors import AgentError
from haptera.model.json_types import JsonObject
from haptera.model.parts import CompactionPart, ProviderPart
from haptera.model.requests import ModelRequest
from haptera.providers.wire.openai_responses import PROTOCOL, protocol_for
from haptera.providers.wire.openai_responses.dialects import (
    DEEPSEEK,
    OPENROUTER,
    PLAIN,
    ResponsesDialect,
)
from haptera.providers.wire.openai_responses.request import RequestEncoder
from tests.providers.conversations import assistant, call, everything, result, user
from tests.providers.grammar.responses import RULES
from tests.providers.grammar.rules import breaches
from tests.providers.responses.requests import REQUESTS, kept_history, own_history
from tests.providers.wire_goldens import check_golden

NOT_OPENAI = {
    *("xai", "deepseek", "any_server", "openrouter"),
    *("perplexity", "perplexity_loop"),
}
"""Requests to others, which the rules and types of OpenAI do not bind in every point."""


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_what_its_golden_file_says(name: str) -> None:
    request, dialect = REQUESTS[name]
    check_golden("responses", name, RequestEncoder(dialect)(request))


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() - NOT_OPENAI))
def test_a_request_keeps_to_the_grammar(name: str) -> None:
    request, dialect = REQUESTS[name]
    assert breaches(RULES, json.loads(RequestEncoder(dialect)(request).body)) == {}


def _strict_types() -> TypeAdapter[Any]:
    """Return the vendor's type of a request, with unknown fields refused."""
    for module in vars(response_types).values():
        if inspect.ismodule(module):
            for kind in vars(module).values():
                if is_typeddict(kind):
                    kind.__pydantic_config__ = ConfigDict(extra="forbid")
    return TypeAdapter(ResponseCreateParamsStreaming)


STRICT = _strict_types()


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() - NOT_OPENAI))
def test_the_vendors_types_take_the_request(name: str) -> None:
    request, dialect = REQUESTS[name]
    body: JsonObject = json.loads(RequestEncoder(dialect)(request).body)
    # Lists are only looked at when they are read, so the result is written out.
    STRICT.dump_python(STRICT.validate_python(body), warnings="error")


def test_the_vendors_types_refuse_an_unknown_field() -> None:
    body: JsonObject = json.loads(RequestEncoder()(REQUESTS["plain"][0]).body)
    with pytest.raises(ValueError, match="seed"):
        STRICT.validate_python(body | {"seed": 7})


def test_a_remembering_encoder_says_the_same_as_a_new_one() -> None:
    encoder = RequestEncoder()
    messages = own_history()
    for count in range(1, len(messages) + 1):
        request = ModelRequest(model="gpt-5.5", messages=messages[:count])
        assert encoder(request) == RequestEncoder()(request)
        assert encoder(request) == RequestEncoder()(request)


def test_ids_go_back_only_with_the_reasoning_they_want() -> None:
    history = own_history()
    without = msgspec.structs.replace(history[1], parts=history[1].parts[2:])
    request = ModelRequest(model="gpt-5.5", messages=(history[0], without, history[2]))
    items = json.loads(RequestEncoder()(request).body)["input"]
    assert [item.get("id") for item in items[1:4]] == [None, "ws_1", None]
    assert breaches(RULES, {"model": "gpt-5.5", "input": items}) == {}


def test_a_call_that_the_client_should_have_run_goes_back_only_with_its_output() -> None:
    call = {"type": "apply_patch_call", "id": "apc_1", "call_id": "call_9", "operation": {}}
    output = {"type": "apply_patch_call_output", "call_id": "call_9", "status": "completed"}
    assert _sent(call) == []
    assert _sent(call, output) == [call, output]


def _sent(*payloads: JsonObject) -> list[JsonObject]:
    parts = [ProviderPart(provider="openai", model="m", payload=each) for each in payloads]
    request = ModelRequest(model="m", messages=(user("Hi"), assistant(*parts), user("?")))
    items: list[JsonObject] = json.loads(RequestEncoder()(request).body)["input"]
    return items[1:-1]


def test_a_chain_that_was_compacted_is_sent_whole() -> None:
    history = (user(CompactionPart(text="Before.")), *kept_history())
    request = ModelRequest(model="m", messages=history, betas={"previous_response_id": True})
    body = json.loads(RequestEncoder()(request).body)
    assert "previous_response_id" not in body
    assert body["store"] is True


@pytest.mark.parametrize("dialect", [OPENROUTER, DEEPSEEK, PLAIN], ids=lambda each: each.name)
def test_who_keeps_nothing_is_sent_everything(dialect: ResponsesDialect) -> None:
    betas = {"previous_response_id": True, "background": True, "store": True}
    request = ModelRequest(model="m", messages=kept_history(), betas=betas)
    body = json.loads(RequestEncoder(dialect)(request).body)
    assert body["store"] is False
    assert {"previous_response_id", "background"} & body.keys() == set()
    assert len(body["input"]) == len(kept_history())


def test_perplexity_gets_back_words_and_calls_and_nothing_of_its_own() -> None:
    request, dialect = REQUESTS["perplexity_loop"]
    items = json.loads(RequestEncoder(dialect)(request).body)["input"]
    kinds = {item["type"]: sorted(item) for item in items}
    assert kinds == {
        "message": ["content", "role", "type"],
        "function_call": ["arguments", "call_id", "name", "type"],
        "function_call_output": ["call_id", "output", "type"],
    }


def test_betas_of_another_provider_stay_behind() -> None:
    betas = {"context-1m-2025-08-07": True, "responses_websockets=2026-02-06": True}
    request = ModelRequest(model="m", messages=(user("Hi"),), betas=betas)
    assert RequestEncoder()(request).headers == {"openai-beta": "responses_websockets=2026-02-06"}


def test_tokens_are_counted_of_the_same_input() -> None:
    request = everything("gpt-5.5")
    assert PROTOCOL.encode_count is not None
    assert PROTOCOL.decode_count is not None
    counted = PROTOCOL.encode_count(request)
    asked = json.loads(RequestEncoder()(request).body)
    body = json.loads(counted.body)
    assert counted.path == "responses/input_tokens"
    assert {name: asked[name] for name in body} == body
    assert {"stream", "store", "max_output_tokens"} & body.keys() == set()
    assert PROTOCOL.decode_count(b'{"object":"response.input_tokens","input_tokens":11}') == 11
    with pytest.raises(AgentError):
        PROTOCOL.decode_count(b"{}")


def test_an_endpoint_that_cannot_count_says_so() -> None:
    _, dialect = REQUESTS["any_server"]
    assert protocol_for(dialect).encode_count is None


def test_calls_come_last_where_nothing_may_stand_before_their_results() -> None:
    _, dialect = REQUESTS["deepseek"]
    history = (
        user("Read both."),
        assistant(call("clock", "a"), "And the other.", call("clock", "b")),
        user(result("clock", "a", "1"), result("clock", "b", "2")),
    )
    request = ModelRequest(model="deepseek-v4-flash", messages=history)
    body = json.loads(RequestEncoder(dialect)(request).body)
    assert breaches(RULES, body) == {}
    assert [item.get("call_id") for item in body["input"]] == [None, None, "a", "b", "a", "b"]
