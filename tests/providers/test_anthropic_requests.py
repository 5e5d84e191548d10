"""Requests to Anthropic: golden bodies, the vendor's own types, and what each setting becomes."""

import json
from collections.abc import Iterable, Mapping

import msgspec
import pydantic
import pytest
from anthropic.types.beta import message_count_tokens_params, message_create_params
from msgspec.structs import replace

from haptera.model.compaction_settings import CompactionSettings
from haptera.model.errors import ErrorCode, ProviderError
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import Message
from haptera.model.parts import ReasoningPart, ReminderPart, TextPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import Thinking
from haptera.providers.wire.anthropic_messages import PROTOCOL
from haptera.providers.wire.anthropic_messages.models import features_of, traits_of
from haptera.providers.wire.anthropic_messages.request import RequestEncoder
from tests.providers.golden_requests import (
    CONVERSATION,
    FULL,
    GOLDEN,
    REQUESTS,
    assistant,
    encoded,
    user,
)

# What we send and the vendor's types do not declare (any more), with the reason.
UNDECLARED = {
    "temperature": "removed with API version 2026-10-21; older models still take it with ours",
    "scope": "of a cache mark, behind the beta that names it",
}

CREATE: pydantic.TypeAdapter[Json] = pydantic.TypeAdapter(
    message_create_params.MessageCreateParamsStreaming
)
COUNT: pydantic.TypeAdapter[Json] = pydantic.TypeAdapter(
    message_count_tokens_params.MessageCountTokensParams
)


def consumed(value: Json) -> Json:
    """Return a validated value with its lazy sequences read, which is what validates them."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {name: consumed(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [consumed(item) for item in value]
    return value


def without_undeclared(value: Json) -> Json:
    if isinstance(value, dict):
        kept = {name: item for name, item in value.items() if name not in UNDECLARED}
        return {name: without_undeclared(item) for name, item in kept.items()}
    return [without_undeclared(item) for item in value] if isinstance(value, list) else value


def body_of(request: ModelRequest) -> JsonObject:
    body: JsonObject = msgspec.json.decode(PROTOCOL.new_encoder()(request).body)
    return body


def marks_in(value: Json) -> list[JsonObject]:
    """Return every cache mark in a body."""
    if isinstance(value, dict):
        here = [value["cache_control"]] if "cache_control" in value else []
        return here + [mark for item in value.values() for mark in marks_in(item)]
    return [mark for item in value for mark in marks_in(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", [*REQUESTS, "count"])
def test_a_request_is_encoded_as_it_always_was(name: str) -> None:
    kept = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert encoded()[name] == kept


@pytest.mark.parametrize("name", REQUESTS)
def test_the_vendors_types_accept_a_request_and_know_all_of_it(name: str) -> None:
    body = without_undeclared(encoded()[name]["body"])
    assert consumed(CREATE.validate_python(body)) == body


def test_the_vendors_types_accept_a_count_and_know_all_of_it() -> None:
    body = encoded()["count"]["body"]
    assert consumed(COUNT.validate_python(body)) == body


def test_what_the_vendor_does_not_declare_is_really_not_declared() -> None:
    declared = message_create_params.MessageCreateParamsStreaming.__annotations__
    assert "temperature" not in declared


def test_encoding_does_not_change_what_it_encodes() -> None:
    before = msgspec.json.encode(FULL)
    assert PROTOCOL.new_encoder()(FULL).body == PROTOCOL.new_encoder()(FULL).body
    assert msgspec.json.encode(FULL) == before


def test_an_encoder_that_remembers_encodes_the_same() -> None:
    remembering = RequestEncoder()
    for end in range(1, len(CONVERSATION) + 1):
        for ttl in ("1h", None):
            request = replace(FULL, messages=CONVERSATION[:end], cache_ttl=ttl)
            assert remembering(request) == PROTOCOL.new_encoder()(request)
    other = replace(FULL, messages=(CONVERSATION[0], assistant(TextPart(text="No."))))
    assert remembering(other) == PROTOCOL.new_encoder()(other)


# The names of these follow the rules for cache marks: where they stand, and where they do not.


def test_no_more_than_four_marks_are_set() -> None:
    assert len(marks_in(body_of(FULL))) == 4


def test_only_the_last_system_block_and_the_last_tool_are_marked() -> None:
    body = body_of(FULL)
    assert ["cache_control" in block for block in body["system"]] == [False, True]
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]


def test_the_mark_stands_before_notes_of_one_request_and_they_come_last() -> None:
    *_, marked, note = body_of(FULL)["messages"][-1]["content"]
    assert marked["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert note == {
        "type": "text",
        "text": "<system-reminder>\nAnswer in one line.\n</system-reminder>",
    }


def test_the_last_user_message_is_marked_even_when_an_answer_follows_it() -> None:
    messages: tuple[Message, ...] = (user(TextPart(text="a")), assistant(TextPart(text="b")))
    body = body_of(ModelRequest(model="claude-sonnet-5", messages=messages, cache_ttl="1h"))
    assert [len(marks_in(message)) for message in body["messages"]] == [1, 0]


def test_a_message_of_thinking_alone_is_not_marked() -> None:
    messages = (user(ReasoningPart(text="hm", signature="s")),)
    body = body_of(ModelRequest(model="claude-sonnet-5", messages=messages, cache_ttl="1h"))
    assert marks_in(body) == []


def test_a_request_without_user_message_is_not_marked() -> None:
    messages = (assistant(TextPart(text="a")),)
    body = body_of(ModelRequest(model="claude-sonnet-5", messages=messages, cache_ttl="1h"))
    assert marks_in(body) == []


def test_a_message_of_notes_alone_is_not_marked() -> None:
    messages = (user(ReminderPart(text="a")),)
    body = body_of(ModelRequest(model="claude-sonnet-5", messages=messages, cache_ttl="1h"))
    assert marks_in(body) == []


def test_nothing_is_marked_when_caching_is_off() -> None:
    assert marks_in(body_of(replace(FULL, cache_ttl=None))) == []


def test_the_lifetime_of_marks_is_the_settings() -> None:
    assert {mark["ttl"] for mark in marks_in(body_of(replace(FULL, cache_ttl="5m")))} == {"5m"}


def test_the_header_names_the_enabled_betas_only() -> None:
    betas = {"a-2025": True, "b-2025": False, "previous_response_id": True}
    wire = PROTOCOL.new_encoder()(replace(FULL, betas=betas))
    assert wire.headers == {"anthropic-beta": "a-2025"}
    assert PROTOCOL.new_encoder()(FULL).headers == {}


def test_a_beta_can_be_turned_off_with_all_that_needs_it() -> None:
    request = replace(
        FULL,
        compaction=CompactionSettings(enabled=True),
        betas={"compact-2026-01-12": False},
    )
    wire = PROTOCOL.new_encoder()(request)
    assert wire.headers == {}
    assert "context_management" not in msgspec.json.decode(wire.body)


def test_compaction_without_threshold_leaves_it_to_the_provider() -> None:
    body = body_of(replace(FULL, compaction=CompactionSettings(enabled=True)))
    assert body["context_management"]["edits"] == [
        {"type": "compact_20260112", "pause_after_compaction": False, "trigger": None}
    ]


DISABLED = {"type": "disabled"}
SHOWN = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("model", "level", "thinking", "effort"),
    [
        ("claude-3-5-haiku-20241022", "high", None, None),
        ("claude-3-7-sonnet-20250219", "minimal", {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-opus-4-20250514", "low", {"type": "enabled", "budget_tokens": 4096}, None),
        ("claude-haiku-4-5-20251001", "max", {"type": "enabled", "budget_tokens": 28672}, None),
        ("claude-haiku-4-5", "off", None, None),
        ("claude-opus-4-6", "xhigh", {"type": "adaptive"}, "high"),
        ("claude-opus-4-6", "max", {"type": "adaptive"}, "max"),
        ("claude-opus-4-6", "off", None, None),
        ("claude-opus-4-8", "xhigh", SHOWN, "xhigh"),
        ("claude-opus-4-8", "off", None, None),
        ("claude-sonnet-5", "minimal", SHOWN, "low"),
        ("claude-sonnet-5", "off", DISABLED, None),
        ("claude-haiku-5-5", "off", DISABLED, None),
        ("claude-sonnet-5-5", "off", {"type": "between_tools"}, None),
        ("claude-sonnet-5-5", "medium", SHOWN, "medium"),
        ("claude-opus-5-5", "off", None, "low"),
        ("claude-fable-5-2", "off", None, "low"),
        ("claude-mythos-preview", "max", SHOWN, "max"),
        ("us.anthropic.claude-sonnet-4-6-v1:0", "high", {"type": "adaptive"}, "high"),
        ("anthropic/claude-haiku-4.5", "low", {"type": "enabled", "budget_tokens": 4096}, None),
        ("smollm2", "high", None, None),
    ],
)
def test_each_model_is_told_how_much_to_think_in_its_own_way(
    model: str, level: Thinking, thinking: JsonObject | None, effort: str | None
) -> None:
    body = body_of(replace(REQUESTS["plain"], model=model, thinking=level))
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort


def test_a_request_without_the_option_thinking_has_no_field_for_it() -> None:
    body = body_of(REQUESTS["plain"])
    assert "thinking" not in body
    assert "output_config" not in body


def test_thinking_leaves_tokens_for_the_answer() -> None:
    request = replace(REQUESTS["plain"], model="claude-haiku-4-5", thinking="high")
    small = body_of(replace(request, max_tokens=4096))
    assert small["thinking"]["budget_tokens"] < small["max_tokens"]
    assert "thinking" not in body_of(replace(request, max_tokens=1500))


def test_a_forced_call_turns_thinking_off() -> None:
    request = replace(FULL, require_tool="weather", thinking="max")
    assert body_of(request)["thinking"] == DISABLED
    assert body_of(request)["output_config"] == {"effort": "high"}
    old = body_of(replace(request, model="claude-haiku-4-5"))
    assert "thinking" not in old


def test_a_model_that_cannot_be_forced_is_asked() -> None:
    body = body_of(replace(FULL, model="claude-sonnet-5-5", require_tool="weather"))
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("model", "temperature", "sent"),
    [
        ("claude-haiku-4-5", 0.3, 0.3),
        ("claude-haiku-4-5", 1.7, 1.0),
        ("claude-sonnet-5", 0.3, None),
        ("smollm2", 0.0, 0.0),
    ],
)
def test_temperature_is_sent_where_a_model_takes_it(
    model: str, temperature: float, sent: float | None
) -> None:
    request = replace(REQUESTS["plain"], model=model, temperature=temperature)
    assert body_of(request).get("temperature") == sent


def test_temperature_gives_way_to_thinking() -> None:
    request = replace(FULL, model="claude-haiku-4-5", temperature=0.3)
    assert "temperature" not in body_of(request)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-3-haiku-20240307", 4_096),
        ("claude-3-5-sonnet-20241022", 8_192),
        ("claude-opus-4-1", 32_000),
        ("claude-opus-5-5", 64_000),
        ("something-else", 4_096),
    ],
)
def test_an_answer_may_be_as_long_as_its_model_is_good_for(model: str, tokens: int) -> None:
    assert traits_of(model).max_tokens == tokens
    assert features_of(replace(REQUESTS["plain"], model=model, max_tokens=9)).max_tokens == 9


def test_text_that_is_not_text_does_not_stop_a_request() -> None:
    messages = (user(TextPart(text="half \ud83d of a pair")),)
    body = body_of(ModelRequest(model="claude-sonnet-5", messages=messages))
    assert body["messages"][0]["content"][0]["text"] == "half � of a pair"


def test_messages_without_anything_to_send_are_left_out() -> None:
    messages = (user(TextPart(text="a")), assistant(ReasoningPart(text="cut off")))
    body = body_of(ModelRequest(model="claude-sonnet-5", messages=messages))
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_a_count_is_read() -> None:
    assert PROTOCOL.decode_count is not None
    assert PROTOCOL.decode_count(b'{"input_tokens":14,"more":1}') == 14
    with pytest.raises(ProviderError) as caught:
        PROTOCOL.decode_count(b"{}")
    assert caught.value.code is ErrorCode.PROTOCOL
