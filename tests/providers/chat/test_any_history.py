"""A history of any provider becomes a request that no Chat Completions server refuses."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.model.json_types import JsonObject
from haptera.model.messages import Message
from haptera.model.parts import Part, ProviderPart, ReasoningPart, ReminderPart, TextPart
from haptera.model.requests import ModelRequest
from haptera.providers.wire.chat_completions.dialects import DIALECTS, Dialect
from tests.providers.chat.example_requests import (
    ADD,
    LOOK,
    MODELS,
    assistant,
    call,
    encode,
    media,
    result,
    user,
)
from tests.providers.grammar.chat_grammar import refusals

pytestmark = pytest.mark.slow

AUTHORS = [("openai", "gpt-5"), ("anthropic", "claude"), ("deepseek", "deepseek-v4-pro"), ("", "")]
OUTCOMES = ["ok", "error", "denied", "interrupted", "unknown"]

words = st.sampled_from(["hi", "", "é\u2028\n", "x" * 50])
texts = words.map(lambda text: TextPart(text=text))
reasoning = st.builds(
    ReasoningPart,
    text=words,
    native=st.sampled_from(
        [
            None,
            {"field": "reasoning"},
            {"field": "reasoning_content"},
            {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        ]
    ),
)
PAYLOADS: list[JsonObject] = [
    {"type": "refusal", "refusal": "no"},
    {"type": "reasoning_details", "reasoning_details": [{"type": "reasoning.encrypted"}]},
    {"type": "executed_tools", "executed_tools": []},
    {"type": "server_tool_use", "id": "x"},
]
payloads = st.sampled_from(PAYLOADS)
attached = st.sampled_from(
    [
        media("image/png"),
        media("image/png", url="https://example.org/a.png"),
        media("application/pdf", filename="a.pdf"),
        media("audio/wav"),
        media("text/plain"),
        media("video/mp4"),
    ]
)
call_ids = st.sampled_from(["Abcdef123", "toolu_" + "x" * 60, "functions.add:0", "call|1", "ü"])
prompts = st.lists(
    st.one_of(texts, attached, words.map(lambda text: ReminderPart(text=text))), max_size=3
)


@st.composite
def turns(draw: st.DrawFn) -> Sequence[Message]:
    """Draw a prompt, an answer, and what its calls came to."""
    provider, model = draw(st.sampled_from(AUTHORS))
    parts: list[Part] = draw(st.lists(st.one_of(texts, reasoning), max_size=3))
    payload = draw(st.none() | payloads)
    if payload is not None:
        parts.append(ProviderPart(provider=provider or "x", model=model or "y", payload=payload))
    ids = draw(st.lists(call_ids, unique=True, max_size=3))
    broken = draw(st.none() | st.just('{"a": '))
    parts.extend(call(call_id, arguments={"a": 1}, invalid=broken) for call_id in ids)
    content = draw(st.lists(st.one_of(texts, attached), max_size=2))
    answers = [result(one, *content, outcome=draw(st.sampled_from(OUTCOMES))) for one in ids]
    after = draw(prompts)
    return (
        user(*draw(prompts)),
        assistant(*parts, provider=provider, model=model),
        user(*answers, *after),
    )


def check(dialect: Dialect, history: list[Sequence[Message]], *, ends_with_prompt: bool) -> None:
    messages = [user("Begin."), *(message for turn in history for message in turn)]
    request = ModelRequest(
        model=MODELS[dialect.name],
        messages=(*messages, *([user("End.")] if ends_with_prompt else [])),
        tools=(ADD, LOOK),
        thinking="high",
        cache_ttl="1h",
    )
    body = json.loads(encode(dialect, request).body)
    assert refusals(body, dialect.name) == []


@given(st.sampled_from(list(DIALECTS.values())), st.lists(turns(), max_size=3), st.booleans())
def test_no_history_makes_a_request_that_is_refused(
    dialect: Dialect, history: list[Sequence[Message]], ends_with_prompt: bool
) -> None:
    check(dialect, history, ends_with_prompt=ends_with_prompt)


@pytest.mark.soak
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
@given(history=st.lists(turns(), max_size=3), ends_with_prompt=st.booleans())
def test_no_history_is_refused_by_any_one_server(
    dialect: Dialect, history: list[Sequence[Message]], ends_with_prompt: bool
) -> None:
    check(dialect, history, ends_with_prompt=ends_with_prompt)
