"""What Chat Completions requests look like: golden files, the official types, every option."""

import json
from typing import Any, get_args

import pytest
from openai.types.shared_params import ReasoningEffort

from haptera.model.parts import ProviderPart, ReasoningPart, TextPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import Thinking
from haptera.providers.wire import chat_completions
from haptera.providers.wire.chat_completions.dialects import (
    AZURE,
    DEEPSEEK,
    DIALECTS,
    GENERIC,
    GROQ,
    LLAMA_CPP,
    MISTRAL,
    OLLAMA,
    OPENAI,
    OPENROUTER,
    VLLM,
    XAI,
    Dialect,
)
from haptera.providers.wire.chat_completions.request import ask_for_thinking, nearest_effort
from tests.providers.chat.example_requests import (
    ADD,
    ANSWER,
    EXAMPLES,
    assistant,
    call,
    encode,
    everything,
    media,
    result,
    tool_loop,
    user,
)
from tests.providers.chat.golden_requests import FOLDER, golden_of
from tests.providers.chat.official_types import check_official_types
from tests.providers.grammar.chat_grammar import refusals

ALL = list(DIALECTS.values())
LEVELS: tuple[Thinking, ...] = get_args(Thinking)

NOT_OF_OPENAI = {
    "random_seed",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking",
    "chat_template_kwargs",
    "cache_control",
    "extra_content",
    "safe_prompt",
}
"""Fields of other servers, which the official types do not declare."""


def body_of(dialect: Dialect, **fields: Any) -> dict[str, Any]:
    fields = {"model": "some-model", "messages": (user("hi"),), **fields}
    body: dict[str, Any] = json.loads(encode(dialect, ModelRequest(**fields)).body)
    return body


def in_openais_words(value: Any) -> Any:
    """Leave out what other servers added, so that the rest can be checked by OpenAI's types."""
    if isinstance(value, list):
        return [
            in_openais_words(item)
            for item in value
            if not (isinstance(item, dict) and item.get("type") == "thinking")
        ]
    if not isinstance(value, dict):
        return value
    return {
        name: in_openais_words(item) for name, item in value.items() if name not in NOT_OF_OPENAI
    }


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_a_dialect_writes_its_golden_requests(dialect: Dialect) -> None:
    golden = json.loads((FOLDER / f"{dialect.name}.json").read_text(encoding="utf-8"))
    assert golden_of(dialect) == golden


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_the_official_types_accept_every_golden_request(dialect: Dialect, example: str) -> None:
    check_official_types(in_openais_words(golden_of(dialect)[example]["body"]))


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_no_server_refuses_a_golden_request(dialect: Dialect, example: str) -> None:
    assert refusals(golden_of(dialect)[example]["body"], dialect.name) == []


def test_the_official_types_refuse_a_field_that_they_do_not_declare() -> None:
    body = golden_of(OPENAI)["everything"]["body"]
    with pytest.raises(ValueError, match="Extra inputs"):
        check_official_types({**body, "undeclared": 1})


def test_every_option_is_seen_in_some_request() -> None:
    bodies = {dialect.name: golden_of(dialect)["everything"]["body"] for dialect in ALL}
    fireworks = bodies["fireworks"]
    assert fireworks["model"] == "accounts/fireworks/models/kimi-k2"
    assert fireworks["messages"][0] == {
        "role": "system",
        "content": "You add numbers.\n\nYou are brief.",
    }
    assert fireworks["messages"][1]["content"] == (
        "What is 1 + 2?\n\n<system-reminder>\nBe quick.\n</system-reminder>"
    )
    assert [tool["function"]["name"] for tool in fireworks["tools"]] == ["add", "look"]
    assert fireworks["tool_choice"]["function"]["name"] == "add"
    assert fireworks["reasoning_effort"] == "high"
    assert (fireworks["max_tokens"], fireworks["temperature"]) == (1000, 0.5)
    assert (fireworks["stop"], fireworks["seed"]) == (["END"], 7)
    assert fireworks["response_format"]["json_schema"]["name"] == "answer"
    assert fireworks["parallel_tool_calls"] is False
    assert bodies["openai"]["max_completion_tokens"] == 1000
    assert (bodies["openai"]["store"], bodies["openai"]["logprobs"]) == (True, False)
    marked = bodies["openrouter"]["messages"][0]["content"][0]
    assert marked["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "other-vendor-2025" not in str(bodies)


def test_options_without_a_place_in_this_protocol_change_nothing() -> None:
    request = everything(OPENAI)
    plain = ModelRequest(
        **{
            name: getattr(request, name)
            for name in request.__struct_fields__
            if name not in {"compaction", "timeouts"}
        }
    )
    assert encode(OPENAI, request) == encode(OPENAI, plain)


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_an_encoder_that_remembers_gives_the_same(dialect: Dialect) -> None:
    protocol = chat_completions.protocol_for(dialect)
    assert protocol.new_encoder is not None
    remembering = protocol.new_encoder()
    requests = [make(dialect) for make in EXAMPLES.values()]
    for request in (*requests, *requests):
        assert remembering(request) == protocol.new_encoder()(request)


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_a_conversation_that_grows_is_written_the_same(dialect: Dialect) -> None:
    protocol = chat_completions.protocol_for(dialect)
    assert protocol.new_encoder is not None
    remembering = protocol.new_encoder()
    answer = (user(result("Abcdef123", TextPart(text="3"))), assistant("3"), assistant("Three."))
    history = (
        *(user("a"), user("b"), assistant(), user("c"), assistant("d", call("Abcdef123"))),
        *(*answer, user("e"), assistant("f"), user("g"), assistant("h")),
    )
    for length in range(1, len(history) + 1):
        request = ModelRequest(model="some-model", messages=history[:length], cache_ttl="1h")
        assert remembering(request) == protocol.new_encoder()(request)


def test_text_that_is_no_text_is_sent_all_the_same() -> None:
    broken = call("c1", arguments={"a": "\ud800"})
    history = (user("\ud800"), assistant(broken), user(result("c1", TextPart(text="\udfff"))))
    assert body_of(GENERIC, messages=history)["messages"][0]["content"] == "\ufffd"


def test_the_deployment_is_in_the_path_at_azure() -> None:
    request = ModelRequest(model="my/gpt 5", messages=(user("hi"),))
    assert encode(AZURE, request).path == "/openai/deployments/my%2Fgpt%205/chat/completions"


@pytest.mark.parametrize(
    ("dialect", "model", "level", "expected"),
    [
        (OPENAI, "gpt-4.1", "high", {}),
        (OPENAI, "gpt-5-chat-latest", "high", {}),
        (OPENAI, "gpt-5", "off", {"reasoning_effort": "minimal"}),
        (OPENAI, "gpt-5", "max", {"reasoning_effort": "high"}),
        (OPENAI, "gpt-5-pro", "low", {"reasoning_effort": "high"}),
        (OPENAI, "gpt-5.1", "minimal", {"reasoning_effort": "low"}),
        (OPENAI, "gpt-5.2", "max", {"reasoning_effort": "xhigh"}),
        (OPENAI, "o3", "minimal", {"reasoning_effort": "low"}),
        (OPENAI, "gpt-5", None, {}),
        (AZURE, "a-name", "high", {"reasoning_effort": "high"}),
        (AZURE, "a-name", "off", {}),
        (OPENROUTER, "z-ai/glm-5", "off", {"reasoning": {"effort": "none"}}),
        (GROQ, "openai/gpt-oss-20b", "max", {"reasoning_effort": "high"}),
        (
            GROQ,
            "qwen/qwen3-32b",
            "low",
            {"reasoning_effort": "default", "reasoning_format": "parsed"},
        ),
        (
            GROQ,
            "qwen/qwen3-32b",
            "off",
            {"reasoning_effort": "none", "reasoning_format": "parsed"},
        ),
        (GROQ, "llama-3.3-70b", "high", {}),
        (DEEPSEEK, "deepseek-v4-pro", "off", {"thinking": {"type": "disabled"}}),
        (
            DEEPSEEK,
            "deepseek-v4-pro",
            "max",
            {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        ),
        (MISTRAL, "magistral-small-latest", "high", {}),
        (MISTRAL, "mistral-small-latest", "low", {"reasoning_effort": "high"}),
        (XAI, "grok-4", "high", {}),
        (XAI, "grok-3-mini", "medium", {"reasoning_effort": "low"}),
        (VLLM, "Qwen/Qwen3-8B", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
        (DIALECTS["together"], "Qwen/Qwen3", "low", {"reasoning": {"enabled": True}}),
        (OLLAMA, "qwen3", "off", {"reasoning_effort": "none"}),
        (GENERIC, "anything", "off", {}),
    ],
)
def test_thinking_is_asked_for_in_the_words_of_the_server(
    dialect: Dialect, model: str, level: Thinking | None, *, expected: dict[str, Any]
) -> None:
    assert ask_for_thinking(dialect, model, level) == expected


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_every_level_of_thinking_gives_a_word_that_the_official_type_knows(
    dialect: Dialect,
) -> None:
    known = {*get_args(get_args(ReasoningEffort)[0]), "max", "default"}
    for rule in dialect.thinking:
        for level in LEVELS:
            assert nearest_effort(level, rule.efforts) in known


def test_thinking_is_never_turned_off_unless_that_was_asked_for() -> None:
    for level in LEVELS[1:]:
        assert nearest_effort(level, ("none", "high")) == "high"


@pytest.mark.parametrize(
    ("model", "level", "is_sent"),
    [
        ("gpt-4.1", None, True),
        ("gpt-5-chat-latest", None, True),
        ("gpt-5", None, False),
        ("o3", None, False),
        ("gpt-5.1", None, True),
        ("gpt-5.1", "high", False),
        ("gpt-5.4", "off", True),
        ("gpt-5.4", None, False),
    ],
)
def test_temperature_is_left_out_where_a_model_refuses_it(
    model: str, level: Thinking | None, is_sent: bool
) -> None:
    body = body_of(OPENAI, model=model, thinking=level, temperature=0.0)
    assert ("temperature" in body) is is_sent


def test_one_demanded_tool_is_offered_alone_where_it_cannot_be_named() -> None:
    body = body_of(LLAMA_CPP, tools=(ADD,), require_tool="add")
    assert body["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in body["tools"]] == ["add"]


def test_an_object_is_asked_for_in_words_alone_beside_tools() -> None:
    body = body_of(DEEPSEEK, tools=(ADD,), output_schema=ANSWER)
    assert "response_format" not in body
    assert "JSON Schema" in body["messages"][0]["content"]


def test_reasoning_goes_back_in_the_field_it_came_in_within_a_loop_only() -> None:
    thought = ReasoningPart(text="hm", native={"field": "reasoning"})
    history = (user("a"), assistant(thought, "b"), user("c"), assistant(thought, call("c1")))
    messages = body_of(GENERIC, messages=(*history, user(result("c1"))))["messages"]
    assert "reasoning" not in messages[1]
    assert messages[3]["reasoning"] == "hm"


def test_deepseek_gets_an_empty_field_where_another_model_thought() -> None:
    history = (user("a"), assistant(ReasoningPart(text="hm"), "b", provider="x", model="y"))
    assert body_of(DEEPSEEK, messages=history)["messages"][1]["reasoning_content"] == ""


def test_reasoning_of_another_model_never_leaves() -> None:
    request = tool_loop(OPENROUTER)
    sent = encode(DEEPSEEK, request).body.decode()
    assert "reasoning_details" not in sent
    assert "Add, then look." not in sent
    assert "extra_content" not in sent


def test_a_failed_result_says_so() -> None:
    told = user(
        result("c1", TextPart(text="no"), outcome="timed_out"),
        result("c2", outcome="ok"),
    )
    history = (user("a"), assistant(call("c1"), call("c2")), told)
    messages = body_of(OPENAI, messages=history)["messages"]
    assert [message["content"] for message in messages[2:]] == [
        "[tool call timed out] no",
        "(no output)",
    ]


def test_sound_of_the_model_is_sent_back_by_its_name() -> None:
    audio = {"type": "audio", "audio": {"id": "a1", "data": "…"}}
    part = ProviderPart(provider="openai", model="gpt-5", payload=audio)
    history = (user("a"), assistant("b", part, provider="openai", model="gpt-5"), user("c"))
    assert body_of(OPENAI, model="gpt-5", messages=history)["messages"][1]["audio"] == {"id": "a1"}


def test_media_that_must_be_inline_are_not_sent_by_address() -> None:
    picture = media("image/png", url="https://example.org/a.png")
    content = body_of(OLLAMA, messages=(user("see", picture),))["messages"][0]["content"]
    words = "not shown, this model cannot read it"
    assert content == f"see\n\n[image/png https://example.org/a.png: {words}]"


def test_the_last_result_is_marked_for_the_cache() -> None:
    history = (user("a"), assistant(call("c1")), user(result("c1", TextPart(text="3"))))
    body = body_of(OPENROUTER, model="anthropic/claude", messages=history, cache_ttl="5m")
    assert body["messages"][-1]["content"] == [
        {"type": "text", "text": "3", "cache_control": {"type": "ephemeral"}}
    ]


def test_a_history_that_says_nothing_still_asks_for_an_answer() -> None:
    body = body_of(OPENROUTER, model="anthropic/claude", messages=(user(""),), cache_ttl="5m")
    (message,) = body["messages"]
    assert message["content"][0]["text"] == "Go on."


def test_reminders_alone_are_not_marked_for_the_cache() -> None:
    body = body_of(GENERIC, messages=(user("a"),), cache_ttl="1h")
    assert body["messages"] == [{"role": "user", "content": "a"}]


def test_the_page_on_dialects_names_each_of_them() -> None:
    page = (FOLDER.parents[3] / "docs" / "chat-completions.md").read_text(encoding="utf-8")
    assert [name for name in DIALECTS if f"\n| `{name}` |" not in page] == []
