"""Estimates say that they are estimates and move with what is sent."""

import pytest

from haptera.kernel.blocks.token_estimate import estimate_message, estimate_text, estimate_tokens
from haptera.model.ids import CallId, MessageId
from haptera.model.json_types import JsonObject
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from haptera.model.requests import ModelRequest, OutputSchema, TokenCount
from haptera.model.tools import ToolSpec


def user(*parts: Part) -> Message:
    return UserMessage(id=MessageId("msg_1"), parts=parts)


def test_an_estimate_is_never_called_exact() -> None:
    assert estimate_tokens(ModelRequest(model="m", messages=())) == TokenCount(
        tokens=0, exact=False
    )


def test_four_plain_characters_are_one_token() -> None:
    assert [estimate_text("x" * n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_a_text_of_chinese_characters_is_about_one_token_each() -> None:
    assert estimate_text("世" * 100) == 100
    assert estimate_text("世" * 100 + "x" * 400) == 200


def test_a_broken_surrogate_is_counted_and_not_raised() -> None:
    assert estimate_text("\ud800") == 1


def test_everything_a_request_sends_adds_to_its_estimate() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    bare = ModelRequest(model="m", messages=(user(TextPart(text="hello")),))
    full = ModelRequest(
        model="m",
        messages=bare.messages,
        system=("x" * 400,),
        tools=(ToolSpec(name="weather", input_schema=schema, input_examples=({"city": "Rome"},)),),
        output_schema=OutputSchema(name="answer", schema=schema),
    )
    assert estimate_tokens(full).tokens > estimate_tokens(bare).tokens + 100 + 12


def test_every_kind_of_part_is_counted() -> None:
    call = CallId("call_1")
    parts: tuple[Part, ...] = (
        TextPart(text="x" * 40),
        ReasoningPart(text="x" * 40),
        ReminderPart(text="x" * 40),
        CompactionPart(text="x" * 40),
        ToolCallPart(call_id=call, name="look", arguments={"path": "x" * 40}),
        ToolCallPart(call_id=call, name="look", invalid="{" + "x" * 40),
        ToolResultPart(call_id=call, name="look", content=(TextPart(text="x" * 40),)),
        ProviderPart(provider="p", model="m", payload={"data": "x" * 40}),
    )
    empty = estimate_message(user())
    for part in parts:
        message = AssistantMessage(id=MessageId("msg_2"), parts=(part,))
        assert estimate_message(message) >= empty + 10


def test_media_is_counted_by_kind_and_not_by_the_length_of_its_base64() -> None:
    big = "A" * 4_000_000
    image = estimate_message(user(MediaPart(mime="image/png", data=big)))
    assert image < 2000
    document = estimate_message(user(MediaPart(mime="application/pdf", data=big)))
    assert 100_000 < document < 200_000
    sound = estimate_message(user(MediaPart(mime="audio/mpeg", url="https://example.org/a.mp3")))
    assert sound == 304


PICTURE = "iVBORw0KGgo" + "A" * 1_600_000


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PICTURE},
        {"inlineData": {"mimeType": "image/png", "data": PICTURE}},
        {"type": "images", "images": [{"image_url": {"url": f"data:image/png;base64,{PICTURE}"}}]},
        {"type": "x", "content": [{"data": "/9j/" + "A" * 900_000}]},
    ],
)
def test_a_generated_picture_counts_as_a_picture(payload: JsonObject) -> None:
    part = ProviderPart(provider="p", model="m", payload=payload)
    given = MediaPart(mime="image/png", data=PICTURE)
    assert abs(estimate_message(user(part)) - estimate_message(user(given))) < 60


def test_what_only_a_provider_can_read_counts_by_its_length() -> None:
    sealed = ProviderPart(provider="p", model="m", payload={"data": "c2VhbA" * 1000})
    assert 1_500 <= estimate_message(user(sealed)) <= 1_600
