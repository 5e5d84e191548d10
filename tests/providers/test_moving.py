"""A session moves: what any of these providers said is accepted by any of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.providers.history import adapt_history
from holdfast.providers.wire import gemini, ollama, openai_responses
from holdfast.providers.wire.protocol import WireProtocol
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import Message
from holdfast.vocabulary.requests import ModelRequest
from tests.fixtures_wire import require_wire
from tests.providers.conversations import CLOCK, WEATHER, result, user
from tests.providers.grammar import gemini as gemini_grammar
from tests.providers.grammar import ollama as ollama_grammar
from tests.providers.grammar import responses as responses_grammar
from tests.providers.grammar.rules import Rule, breaches
from tests.providers.recorded import cases
from tests.providers.replies import Reply, body_of, decode


class Target(NamedTuple):
    """Whom a history is sent to, and what they accept."""

    provider: str
    model: str
    protocol: WireProtocol
    rules: tuple[Rule, ...]


RESPONSES, GEMINI, OLLAMA = openai_responses.PROTOCOL, gemini.PROTOCOL, ollama.PROTOCOL
TARGETS = {
    "gpt": Target("openai", "gpt-5.5", RESPONSES, responses_grammar.RULES),
    "gpt-4.1": Target("openai", "gpt-4.1", RESPONSES, responses_grammar.RULES),
    "gemini-3": Target("gemini", "gemini-3-pro-preview", GEMINI, gemini_grammar.RULES),
    "gemini-2.5": Target("gemini", "gemini-2.5-flash", GEMINI, gemini_grammar.RULES),
    "gemini-2.0": Target("gemini", "gemini-2.0-flash", GEMINI, gemini_grammar.RULES),
    "ollama": Target("ollama", "qwen3:4b", OLLAMA, ollama_grammar.RULES),
}
SOURCES: dict[str, tuple[str, WireProtocol]] = {
    "openai-responses": ("openai", RESPONSES),
    "azure-responses": ("openai", RESPONSES),
    "compat-responses": ("openai", RESPONSES),
    "xai-responses": ("openai", RESPONSES),
    "gemini-generatecontent": ("gemini", GEMINI),
    "vertex-generatecontent": ("gemini", GEMINI),
    "ollama-native": ("ollama", OLLAMA),
}


def history_of(reply: Reply, provider: str, model: str) -> tuple[Message, ...]:
    """Return a conversation in which `reply` was given and its calls were answered."""
    message = reply.message(provider, model)
    results = [result(call.name, call.call_id, "done") for call in message.tool_calls]
    return (user("Hi"), message, user(*results, "Go on."))


def sent_to(target: Target, messages: tuple[Message, ...]) -> JsonObject:
    request = ModelRequest(model=target.model, messages=messages, tools=(WEATHER, CLOCK))
    adapted = adapt_history(
        request, provider=target.provider, rules=target.protocol.history
    ).request
    body: JsonObject = json.loads(target.protocol.encode_request(adapted).body)
    return {"model": target.model} | body


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("meta", cases(*SOURCES, kind="stream"))
def test_a_recorded_answer_is_accepted_by_everyone(meta: Path, name: str) -> None:
    target = TARGETS[name]
    provider, protocol = SOURCES[meta.parent.parent.name]
    reply = decode(protocol, body_of(meta.parent))
    for model in (target.model, "another-model"):
        assert breaches(target.rules, sent_to(target, history_of(reply, provider, model))) == {}


def loops() -> Iterator[list[str]]:
    for sequence in json.loads((require_wire() / "open" / "sequences.json").read_text("utf-8")):
        if sequence["cases"][0].split("/")[0] in SOURCES:
            yield sequence["cases"]


def test_whole_recorded_loops_are_accepted_by_everyone_at_every_step() -> None:
    tried = 0
    for steps in loops():
        messages: tuple[Message, ...] = ()
        for step in steps:
            provider, protocol = SOURCES[step.split("/")[0]]
            reply = decode(protocol, body_of(require_wire() / "open" / step))
            messages = (*messages, *history_of(reply, provider, "gpt-5.5"))
            for target in TARGETS.values():
                assert breaches(target.rules, sent_to(target, messages)) == {}
                tried += 1
    assert tried
