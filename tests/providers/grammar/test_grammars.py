"""The grammars are oracles, so they are tried themselves: each refuses what breaks its rules."""

import json
from collections.abc import Callable

import pytest

from haptera.model.json_types import JsonObject
from haptera.model.requests import ModelRequest
from haptera.providers.wire.ollama import RequestEncoder as OllamaEncoder
from haptera.providers.wire.openai_responses.request import RequestEncoder as ResponsesEncoder
from tests.providers.conversations import CLOCK, WEATHER, everything
from tests.providers.gemini.requests import encoded as encode_gemini
from tests.providers.gemini.requests import own_history as gemini_history
from tests.providers.grammar import gemini, ollama, responses
from tests.providers.grammar.rules import Mutation, Rule, add, breaches, drop, put
from tests.providers.responses.requests import own_history as responses_history

ALONE = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}
IMAGE = {"type": "input_image", "image_url": "/tmp/a.png", "detail": "auto"}


def responses_body() -> JsonObject:
    request = everything("gpt-5.5", messages=responses_history())
    body: JsonObject = json.loads(ResponsesEncoder()(request).body)
    return body


Change = Callable[[JsonObject], None]


def of_two(change: Change, other: Change) -> Change:
    def both(body: JsonObject) -> None:
        change(body)
        other(body)

    return both


def talk_before_the_output(body: JsonObject) -> None:
    body["model"] = "deepseek-v4-flash"
    body["input"].insert(6, {"role": "assistant", "content": "Looking."})


RESPONSES = (
    Mutation("unknown field", put("seed", value=7)),
    Mutation("unknown field", put("stop", value=["END"])),
    Mutation("unknown field", put("max_tokens", value=5)),
    Mutation("required field", drop("model")),
    Mutation("required field", put("input", value=[])),
    Mutation("item field", drop("input", 1, "summary")),
    Mutation("item field", drop("input", 4, "name")),
    Mutation("item field", drop("input", 6, "output")),
    Mutation("item type", put("input", 0, "type", value="chat_message")),
    Mutation("role", put("input", 0, "role", value="tool")),
    Mutation("content type", put("input", 0, "content", 0, "type", value="output_text")),
    Mutation("content type", put("input", 2, "content", 0, "type", value="input_text")),
    Mutation("empty content", put("input", 0, "content", value=[])),
    Mutation("image", add("input", 0, "content", value=IMAGE)),
    Mutation("file", add("input", 0, "content", value={"type": "input_file", "file_data": "x"})),
    Mutation("file", add("input", 0, "content", value={"type": "input_file"})),
    Mutation("call without output", drop("input", 6)),
    Mutation("output without call", drop("input", 4)),
    Mutation("interleaved calls", talk_before_the_output),
    Mutation("call id", of_two(put("input", 4, "call_id", value="c" * 65), drop("input", 6))),
    Mutation("duplicate id", put("input", 4, "id", value="rs_1")),
    Mutation("arguments", put("input", 4, "arguments", value={"city": "Paris"})),
    Mutation(
        "reasoning alone", add("input", value={"type": "reasoning", "id": "r", "summary": []})
    ),
    Mutation("reasoning unsealed", drop("input", 1, "encrypted_content")),
    Mutation("seal not offered", put("model", value="gpt-4o")),
    Mutation("temperature", put("temperature", value=0.5)),
    Mutation("temperature", put("temperature", value=3)),
    Mutation("effort", put("reasoning", "effort", value="off")),
    Mutation("effort", put("reasoning", "summary", value="long")),
    Mutation("output limit", put("max_output_tokens", value=8)),
    Mutation("tool shape", put("tools", 0, "name", value="get weather")),
    Mutation("tool shape", put("tools", 0, "parameters", value=None)),
    Mutation("tool shape", drop("tools", 0, "strict")),
    Mutation("tool choice", put("tool_choice", "name", value="unknown")),
    Mutation("tool choice", put("tool_choice", value="any")),
    Mutation("output format", put("text", "format", "name", value="the answer")),
    Mutation("output format", drop("text", "format", "schema", "additionalProperties")),
    Mutation("background", put("background", value=True)),
    Mutation("chain", put("previous_response_id", value="resp_1")),
)


def gemini_body() -> JsonObject:
    model = "gemini-3-flash-preview"
    request = everything(model, messages=gemini_history(model), tools=(WEATHER, CLOCK))
    body: JsonObject = json.loads(encode_gemini(request).body)
    old = json.loads(encode_gemini(everything("gemini-2.0-flash")).body)
    declared = old["tools"][0]["functionDeclarations"][0] | {"name": "old_weather"}
    body["tools"][0]["functionDeclarations"].append(declared)
    return {"model": model} | body


_TOOL = ("tools", 0, "functionDeclarations", 0)
_OLD = ("tools", 0, "functionDeclarations", 2, "parameters")

GEMINI = (
    Mutation("unknown field", put("messages", value=[])),
    Mutation("unknown field", put("generationConfig", "thinkingBudget", value=1)),
    Mutation("no contents", put("contents", value=[])),
    Mutation("role", put("contents", 1, "role", value="assistant")),
    Mutation("role", drop("contents", 0, "role")),
    Mutation("no parts", put("contents", 0, "parts", value=[])),
    Mutation("part kind", put("contents", 0, "parts", 0, "text", value="")),
    Mutation("part kind", add("contents", 0, "parts", value={})),
    Mutation("part kind", put("contents", 2, "parts", 0, "text", value="and text")),
    Mutation("system text", put("systemInstruction", "parts", value=[])),
    Mutation("ends with model", drop("contents", 4)),
    Mutation("begins with model", drop("contents", 0)),
    Mutation("response count", drop("contents", 2, "parts", 1)),
    Mutation("response order", drop("contents", 1)),
    Mutation("call name", put("contents", 1, "parts", 2, "functionCall", "name", value="")),
    Mutation("call name", drop("contents", 2, "parts", 0, "functionResponse", "name")),
    Mutation("call values", put("contents", 1, "parts", 2, "functionCall", "args", value="{}")),
    Mutation(
        "call values", put("contents", 2, "parts", 0, "functionResponse", "response", value="ok")
    ),
    Mutation("call role", put("contents", 1, "role", value="user")),
    Mutation("call role", put("contents", 2, "role", value="model")),
    Mutation("call signature", drop("contents", 1, "parts", 2, "thoughtSignature")),
    Mutation(
        "blob",
        add("contents", 0, "parts", value={"inlineData": {"mimeType": "image/png", "data": "?"}}),
    ),
    Mutation(
        "blob",
        add("contents", 0, "parts", value={"inlineData": {"mimeType": "png", "data": "aGk="}}),
    ),
    Mutation(
        "file uri", add("contents", 0, "parts", value={"fileData": {"fileUri": "/tmp/a.png"}})
    ),
    Mutation("function name", put(*_TOOL, "name", value="1st")),
    Mutation("function name", put(*_TOOL, "name", value="get weather")),
    Mutation("function twice", put(*_TOOL, "name", value="clock")),
    Mutation("two schemas", put(*_TOOL, "parameters", value={"type": "object"})),
    Mutation("schema keyword", put(*_TOOL, "parametersJsonSchema", "$schema", value="x")),
    Mutation("schema keyword", put(*_OLD, "additionalProperties", value=False)),
    Mutation("object schema", put(*_OLD, "properties", value={})),
    Mutation("object schema", put(*_OLD, "properties", "city", value={"type": "array"})),
    Mutation("object schema", put(*_OLD, "properties", "city", "type", value=["string", "null"])),
    Mutation("schema required", put(*_OLD, "required", value=["gone"])),
    Mutation("tool choice", put("toolConfig", "functionCallingConfig", "mode", value="AUTO")),
    Mutation("tool choice", put("toolConfig", "functionCallingConfig", "mode", value="any")),
    Mutation("temperature", put("generationConfig", "temperature", value=1000)),
    Mutation("limits", put("generationConfig", "stopSequences", value=list("abcdef"))),
    Mutation("limits", put("generationConfig", "maxOutputTokens", value=0)),
    Mutation("schema type", drop("generationConfig", "responseMimeType")),
    Mutation("schema and tools", put("model", value="gemini-2.5-flash")),
    Mutation(
        "tool mix",
        of_two(put("model", value="gemini-2.5-flash"), add("tools", value={"googleSearch": {}})),
    ),
    Mutation("thinking", put("generationConfig", "thinkingConfig", "thinkingBudget", value=1)),
    Mutation("thinking", put("generationConfig", "thinkingConfig", "thinkingLevel", value="MAX")),
)


def ollama_body() -> JsonObject:
    body: JsonObject = json.loads(OllamaEncoder()(everything("qwen3:4b", require_tool=None)).body)
    return body


OLLAMA = (
    Mutation("unknown field", put("max_tokens", value=5)),
    Mutation("unknown field", put("messages", 2, "name", value="x")),
    Mutation("required field", drop("model")),
    Mutation("required field", put("messages", value=[])),
    Mutation("role", put("messages", 2, "role", value="human")),
    Mutation("role", drop("messages", 2, "role")),
    Mutation("content", put("messages", 2, "content", value=[{"type": "text", "text": "x"}])),
    Mutation("content", put("messages", 0, "content", value=None)),
    Mutation("empty message", put("messages", 0, "content", value="")),
    Mutation("image", put("messages", 2, "images", 0, value="data:image/png;base64,AAAA")),
    Mutation("image", put("messages", 2, "images", 0, value="https://example.org/a.png")),
    Mutation("image place", put("messages", 2, "images", value=[])),
    Mutation("image place", put("messages", 3, "images", value=["aGk="])),
    Mutation("call", put("messages", 3, "tool_calls", 0, "function", "arguments", value="{}")),
    Mutation("call", drop("messages", 3, "tool_calls", 0, "function", "name")),
    Mutation("call", drop("messages", 3, "tool_calls", 0, "function")),
    Mutation("call role", put("messages", 2, "tool_calls", value=[])),
    Mutation("result", put("messages", 4, "tool_name", value="other")),
    Mutation("result", drop("messages", 4)),
    Mutation("result", drop("messages", 3)),
    Mutation("tool", drop("tools", 0, "type")),
    Mutation("tool", drop("tools", 0, "function", "name")),
    Mutation("tool", drop("tools", 0, "function", "parameters")),
    Mutation("think", put("think", value="high")),
    Mutation("think", put("think", value="max")),
    Mutation("format", put("format", value="schema")),
    Mutation("format", put("format", value=["json"])),
    Mutation("options", put("options", "num_predict", value="500")),
    Mutation("options", put("options", "stop", value="END")),
    Mutation("options", put("options", "max_tokens", value=5)),
    Mutation("options place", put("temperature", value=0.5)),
    Mutation("stream", put("stream", value=False)),
)

GRAMMARS = {
    "responses": (responses.RULES, responses_body, RESPONSES),
    "gemini": (gemini.RULES, gemini_body, GEMINI),
    "ollama": (ollama.RULES, ollama_body, OLLAMA),
}
EACH = [
    pytest.param(rules, body, mutation, id=f"{name}-{mutation.rule}-{index}")
    for name, (rules, body, mutations) in GRAMMARS.items()
    for index, mutation in enumerate(mutations)
]


@pytest.mark.parametrize(("rules", "body", "mutation"), EACH)
def test_a_mutation_breaks_the_rule_it_is_meant_to_break(
    rules: tuple[Rule, ...], body: Callable[[], JsonObject], mutation: Mutation
) -> None:
    assert mutation.rule in breaches(rules, mutation.applied(body()))


@pytest.mark.parametrize("name", GRAMMARS)
def test_what_is_mutated_breaks_no_rule_itself(name: str) -> None:
    rules, body, _ = GRAMMARS[name]
    assert breaches(rules, body()) == {}


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_rule_has_a_source_and_a_mutation_that_breaks_it(name: str) -> None:
    rules, _, mutations = GRAMMARS[name]
    assert all(rule.source for rule in rules)
    assert {rule.name for rule in rules} == {mutation.rule for mutation in mutations}
    assert len(mutations) >= 20


def test_an_empty_conversation_is_refused_by_every_grammar() -> None:
    request = ModelRequest(model="gpt-4.1", messages=())
    assert "required field" in breaches(
        responses.RULES, json.loads(ResponsesEncoder()(request).body)
    )
    assert "no contents" in breaches(gemini.RULES, json.loads(encode_gemini(request).body))
    assert "required field" in breaches(ollama.RULES, json.loads(OllamaEncoder()(request).body))
