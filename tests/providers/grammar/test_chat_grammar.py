"""The judge of Chat Completions requests is itself judged: it refuses what servers refuse."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.providers.grammar.chat_grammar import RULES, Body, refusals

SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "number"}},
    "required": ["sum"],
    "additionalProperties": False,
}


def good(dialect: str) -> Body:
    """Return a request that has every kind of field and that no dialect refuses."""
    limit = "max_completion_tokens" if dialect in {"openai", "azure"} else "max_tokens"
    calls = [
        {
            "id": "Abcdef123",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a": 1}'},
        }
    ]
    body: Body = {
        "model": "gpt-4.1",
        "messages": [
            {"role": "system", "content": "Answer in JSON."},
            {"role": "user", "content": "1 + 2?"},
            {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": ""},
            {"role": "tool", "tool_call_id": "Abcdef123", "content": "3"},
            {"role": "assistant", "content": "3"},
            {"role": "user", "content": [{"type": "text", "text": "Sure?"}]},
        ],
        "stream": True,
        limit: 100,
        "temperature": 0,
        "stop": ["END"],
        "tools": [
            {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        },
    }
    return body


def at(*path: str | int, to: Any) -> Callable[[Body], None]:
    """Return a change that sets what is at `path`."""

    def change(body: Body) -> None:
        place: Any = body
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


def without(*path: str | int) -> Callable[[Body], None]:
    """Return a change that removes what is at `path`."""

    def change(body: Body) -> None:
        place: Any = body
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


def insert(place: int, message: Body) -> Callable[[Body], None]:
    """Return a change that puts a message in."""
    return lambda body: body["messages"].insert(place, message)


def again(*path: str | int) -> Callable[[Body], None]:
    """Return a change that repeats the first item of a list."""

    def change(body: Body) -> None:
        place: Any = body
        for step in path:
            place = place[step]
        place.append(place[0])

    return change


def ask_for_an_object_without_the_word(body: Body) -> None:
    """Ask for JSON without saying so in any message."""
    body["response_format"] = {"type": "json_object"}
    body["messages"][0]["content"] = "Be brief."


CALL = ("messages", 2, "tool_calls", 0)
LAST = ("messages", 5, "content")
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}

MUTATIONS: list[tuple[str, str, Callable[[Body], None]]] = [
    ("model", "openai", at("model", to="")),
    ("messages", "openai", at("messages", to=[])),
    ("role", "openai", at("messages", 1, "role", to="human")),
    ("developer", "groq", at("messages", 0, "role", to="developer")),
    ("system first", "openai", insert(5, {"role": "system", "content": "x"})),
    ("answer to calls", "openai", without("messages", 3)),
    ("answer to calls", "openai", insert(3, {"role": "user", "content": "wait"})),
    ("call of an answer", "openai", at("messages", 3, "tool_call_id", to="Abcdef999")),
    ("call of an answer", "mistral", without("messages", 2)),
    ("call ids differ", "openai", again("messages", 2, "tool_calls")),
    ("call id of nine", "mistral", at(*CALL, "id", to="call_1")),
    ("call id of at most forty", "openai", at(*CALL, "id", to="c" * 41)),
    ("call id", "compatible", at(*CALL, "id", to="")),
    ("arguments", "openai", at(*CALL, "function", "arguments", to='{"a": ')),
    ("arguments", "openai", at(*CALL, "function", "arguments", to={"a": 1})),
    ("arguments", "openai", at(*CALL, "function", "arguments", to="[]")),
    ("call type", "openai", without(*CALL, "type")),
    ("no empty list of calls", "openai", at("messages", 4, "tool_calls", to=[])),
    ("assistant content", "openai", at("messages", 4, "content", to="")),
    ("assistant content", "openai", without("messages", 2, "content")),
    ("content types", "openai", at(*LAST, to=[{"type": "image", "source": "x"}])),
    ("content types", "openai", at("messages", 3, "content", to=[PICTURE])),
    ("results are text", "openai", at("messages", 3, "content", to=None)),
    ("thinking items", "mistral", at("messages", 4, "content", to=[{"type": "thinking"}])),
    ("user content", "openai", at(*LAST, to=[{"type": "text", "text": ""}])),
    ("user content", "openai", at(*LAST, to=[])),
    ("turns", "llamacpp", insert(1, {"role": "user", "content": "and"})),
    ("bridge", "mistral", without("messages", 4)),
    ("last word", "mistral", without("messages", 5)),
    ("text only", "deepseek", at(*LAST, to=[PICTURE])),
    ("image", "openai", at(*LAST, to=[{"type": "image_url", "image_url": {"url": "/a.png"}}])),
    ("inline images", "ollama", at(*LAST, to=[PICTURE])),
    ("sound", "openai", at(*LAST, to=[{"type": "input_audio", "input_audio": {"format": "ogg"}}])),
    ("reasoning back", "deepseek", without("messages", 2, "reasoning_content")),
    ("no empty list of tools", "openai", at("tools", to=[])),
    ("tool names", "openai", at("tools", 0, "function", "name", to="add numbers")),
    ("tool names", "openai", again("tools")),
    ("tool schemas", "openai", at("tools", 0, "function", "parameters", "type", to="string")),
    ("tool choice", "openai", without("tools")),
    ("tool choice", "openai", at("tool_choice", to="maybe")),
    (
        "tool choice",
        "openai",
        at("tool_choice", to={"type": "function", "function": {"name": "subtract"}}),
    ),
    (
        "tool choice by word",
        "lmstudio",
        at("tool_choice", to={"type": "function", "function": {"name": "add"}}),
    ),
    ("parallel calls", "openai", without("tools")),
    ("one limit", "openai", at("max_completion_tokens", to=0)),
    ("one limit", "groq", at("max_completion_tokens", to=10)),
    ("limit of OpenAI", "openai", at("max_tokens", to=10)),
    ("temperature", "openai", at("temperature", to=99.0)),
    ("temperature", "llamacpp", at("temperature", to="hot")),
    ("sampling of thinkers", "openai", at("model", to="o3")),
    ("stop of thinkers", "xai", at("model", to="grok-3-mini")),
    ("stop", "openai", at("stop", to=[])),
    ("stop", "openai", at("stop", to=["a", "b", "c", "d", "e"])),
    ("seed", "openai", at("seed", to="seven")),
    ("stream options", "openai", lambda body: body.update(stream=False, stream_options={})),
    ("effort", "openrouter", at("reasoning", to={"effort": "very"})),
    ("no effort for old models", "openai", at("reasoning_effort", to="high")),
    ("no other fields", "mistral", at("stream_options", to={"include_usage": True})),
    ("no other fields", "mistral", at("seed", to=1)),
    ("response format", "openai", at("response_format", "json_schema", "name", to="my answer")),
    ("response format", "openai", without("response_format", "json_schema", "schema")),
    ("response format", "openai", at("response_format", "type", to="xml")),
    (
        "the word JSON",
        "deepseek",
        ask_for_an_object_without_the_word,
    ),
    (
        "strict schemas",
        "openai",
        at("response_format", "json_schema", "schema", to={**SCHEMA, "required": []}),
    ),
    (
        "strict schemas",
        "openai",
        at("response_format", "json_schema", "schema", to={"type": "object"}),
    ),
]


@pytest.mark.parametrize("dialect", sorted({dialect for _, dialect, _ in MUTATIONS}))
def test_no_rule_refuses_a_good_request(dialect: str) -> None:
    assert refusals(good(dialect), dialect) == []


@pytest.mark.parametrize(
    ("name", "dialect", "change"),
    [pytest.param(*mutation, id=f"{n}-{mutation[0]}") for n, mutation in enumerate(MUTATIONS)],
)
def test_a_mutation_is_refused(name: str, dialect: str, change: Callable[[Body], None]) -> None:
    body = deepcopy(good(dialect))
    change(body)
    assert name in {refusal.split(":")[0] for refusal in refusals(body, dialect)}


def test_every_rule_has_a_mutation_and_a_source() -> None:
    assert {rule.name for rule in RULES} == {name for name, _, _ in MUTATIONS}
    assert all(rule.source.startswith(("https://", "recorded 400: ")) for rule in RULES)


def test_a_recorded_refusal_that_is_a_source_was_recorded(wire: Path) -> None:
    for rule in RULES:
        if rule.source.startswith("recorded"):
            start = rule.source.removeprefix("recorded 400: ")
            assert list(wire.glob(f"open/{start}*/response.json")), rule.source


STRICTER_THAN_THE_SERVER = {
    # These hold for templates of some open models; hosted models let them pass.
    "turns",
    "system first",
    # The client of a recording left the field out, or chose another limit than we would.
    "assistant content",
    "limit of OpenAI",
    "reasoning back",
    "user content",
}


def test_what_servers_accepted_is_not_refused(wire: Path) -> None:
    folders = {"openai-chat": "openai", "azure-chat": "azure", "mistral-chat": "mistral"}
    folders |= {"deepseek-chat": "deepseek", "groq-chat": "groq", "xai-chat": "xai"}
    folders |= {"openrouter-chat": "openrouter", "ollama-chat": "ollama"}
    folders |= {"llamacpp-chat": "llamacpp"}
    checked = 0
    for folder, dialect in folders.items():
        for meta_file in (wire / "open" / folder).glob("*/meta.json"):
            meta = json.loads(meta_file.read_text())
            if meta["status"] != 200 or not meta.get("request") or meta.get("request_elided"):
                continue
            checked += 1
            found = {refusal.split(":")[0] for refusal in refusals(meta["request"], dialect)}
            assert found <= STRICTER_THAN_THE_SERVER, meta_file
    assert checked > 30
