"""The grammar of Anthropic Messages is an oracle, so it is tried itself."""

import json

import pytest

from haptera.model.json_types import JsonObject
from haptera.model.parts import ReasoningPart
from haptera.model.requests import ModelRequest
from haptera.providers.wire.anthropic_messages.request import RequestEncoder
from tests.providers.conversations import CLOCK, WEATHER, assistant, call, everything, result, user
from tests.providers.grammar import anthropic
from tests.providers.grammar.rules import Mutation, add, breaches, drop, put

MODEL = "claude-sonnet-4-5"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}


def body() -> JsonObject:
    thought = ReasoningPart(text="hm", signature="s")
    request = everything(
        MODEL,
        messages=(
            user("Weather in Paris and the time?"),
            assistant(
                thought, "I will look.", call("get_weather", "call_1"), call("clock", "call_2")
            ),
            user(result("get_weather", "call_1", "sunny"), result("clock", "call_2", "9"), "Go on"),
            assistant(thought, "It is sunny."),
            user("Thanks."),
        ),
        require_tool=None,
        thinking="high",
        max_tokens=20_000,
        cache_ttl="5m",
        tools=(WEATHER, CLOCK),
    )
    made: JsonObject = json.loads(RequestEncoder()(request).body)
    return made


def last_comes_first(body: JsonObject) -> None:
    content = body["messages"][2]["content"]
    content.insert(0, content.pop())


def cut_to_the_calls(body: JsonObject) -> None:
    del body["messages"][3:]
    del body["messages"][2]["content"][2]
    del body["messages"][1]["content"][0]


MARK = {"type": "ephemeral", "ttl": "1h"}
MUTATIONS = (
    Mutation("unknown field", put("seed", value=7)),
    Mutation("unknown field", put("messages", 0, "content", 0, "name", value="x")),
    Mutation("required field", drop("model")),
    Mutation("required field", drop("max_tokens")),
    Mutation("required field", put("messages", value=[])),
    Mutation("role", put("messages", 0, "role", value="system")),
    Mutation("role", put("messages", 2, "role", value="tool")),
    Mutation("first message", drop("messages", 0)),
    Mutation("last message", drop("messages", 4)),
    Mutation("empty message", put("messages", 3, "content", value=[])),
    Mutation("empty text", put("messages", 0, "content", 0, "text", value="")),
    Mutation("empty text", put("messages", 0, "content", 0, "text", value=" \n")),
    Mutation("empty text", put("system", 0, "text", value="")),
    Mutation("block type", put("messages", 0, "content", 0, "type", value="input_text")),
    Mutation("block type", add("messages", 4, "content", value={"type": "thinking"})),
    Mutation("block type", add("messages", 3, "content", value={"type": "tool_result"})),
    Mutation("call without result", drop("messages", 2, "content", 0)),
    Mutation("call without result", drop("messages", 2)),
    Mutation("result without call", drop("messages", 1, "content", 2)),
    Mutation(
        "result without call",
        add("messages", 2, "content", value={"type": "tool_result", "tool_use_id": "call_1"}),
    ),
    Mutation("results first", last_comes_first),
    Mutation("call id", put("messages", 1, "content", 2, "id", value="call.1")),
    Mutation("call id twice", put("messages", 1, "content", 2, "id", value="call_2")),
    Mutation("call values", put("messages", 1, "content", 2, "input", value="{}")),
    Mutation("call values", put("messages", 1, "content", 2, "name", value="get weather")),
    Mutation("result content", put("messages", 2, "content", 0, "content", value=[{"type": "x"}])),
    Mutation(
        "server call",
        add("messages", 1, "content", value={"type": "server_tool_use", "id": "srv_1"}),
    ),
    Mutation("unsealed thinking", drop("messages", 1, "content", 0, "signature")),
    Mutation("thinking last", drop("messages", 3, "content", 1)),
    Mutation("thinking first", cut_to_the_calls),
    Mutation("thinking", put("thinking", "budget_tokens", value=1000)),
    Mutation("thinking", put("thinking", "budget_tokens", value=20_000)),
    Mutation("thinking", put("temperature", value=0.5)),
    Mutation("thinking", put("tool_choice", value={"type": "any"})),
    Mutation("sampling", put("temperature", value=1.5)),
    Mutation("sampling", put("stop_sequences", value=["\n"])),
    Mutation("tool name", put("tools", 0, "name", value="get weather")),
    Mutation("tool name", put("tools", 0, "name", value="clock")),
    Mutation("tool schema", put("tools", 0, "input_schema", value={})),
    Mutation("tool schema", put("tools", 0, "input_schema", "oneOf", value=[])),
    Mutation("tool schema", put("tools", 0, "input_schema", "properties", "a b", value={})),
    Mutation("tool choice", put("tool_choice", value={"type": "tool", "name": "unknown"})),
    Mutation("tool choice", put("tool_choice", value={"type": "required"})),
    Mutation("cache mark", put("messages", 4, "content", 0, "cache_control", value=MARK)),
    Mutation("cache mark", put("messages", 1, "content", 0, "cache_control", value=MARK)),
    Mutation("media", add("messages", 4, "content", value=IMAGE)),
    Mutation("media", add("messages", 4, "content", value={"type": "document", "source": {}})),
    Mutation("output format", put("output_config", "format", "type", value="json")),
    Mutation("output format", put("output_config", "format", "schema", value={"type": "object"})),
    Mutation("summary", add("messages", 4, "content", value={"type": "compaction"})),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.rule)
def test_a_mutation_breaks_the_rule_it_is_meant_to_break(mutation: Mutation) -> None:
    assert mutation.rule in breaches(anthropic.RULES, mutation.applied(body()))


def test_what_is_mutated_breaks_no_rule_itself() -> None:
    assert breaches(anthropic.RULES, body()) == {}


def test_every_rule_has_a_source_and_a_mutation_that_breaks_it() -> None:
    assert all(rule.source for rule in anthropic.RULES)
    assert {rule.name for rule in anthropic.RULES} == {each.rule for each in MUTATIONS}
    assert len(MUTATIONS) >= 20


def test_an_empty_conversation_is_refused() -> None:
    request = ModelRequest(model=MODEL, messages=())
    found = breaches(anthropic.RULES, json.loads(RequestEncoder()(request).body))
    assert "required field" in found
