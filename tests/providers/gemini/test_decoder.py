"""What Gemini does that its documentation does not say, or says in passing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json, JsonObject
from haptera.model.parts import ReasoningPart, TextPart
from haptera.providers.wire.gemini import PROTOCOL
from haptera.providers.wire.gemini.reply_format import PartialArgument, put_argument, steps_of
from tests.providers.gemini.vendor_types import types
from tests.providers.replies import Reply, decode, decode_frames


def frame(*parts: JsonObject, finish: str | None = None, **more: Json) -> JsonObject:
    """Make one frame."""
    candidate: JsonObject = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "responseId": "r1", "modelVersion": "gemini-x"} | more


END = frame(finish="STOP")


def said(*frames: Json) -> Reply:
    reply = decode_frames(PROTOCOL, list(frames))
    assert reply.error is None
    return reply


def test_text_and_thoughts_are_told_apart() -> None:
    reply = said(
        frame({"text": "Hm", "thought": True}),
        frame({"text": ".", "thought": True}, {"text": "Yes"}),
        frame({"text": "."}),
        END,
    )
    assert reply.parts == (ReasoningPart(text="Hm."), TextPart(text="Yes."))


def test_a_part_with_a_signature_is_not_joined_with_its_neighbours() -> None:
    reply = said(
        frame({"text": "One "}),
        frame({"text": "two ", "thoughtSignature": "s1"}),
        frame({"text": "three"}, {"text": "", "thoughtSignature": "s2"}),
        frame({"text": "Think", "thought": True, "thoughtSignature": "s3"}),
        END,
    )
    assert reply.parts[:3] == (
        TextPart(text="One "),
        TextPart(text="two ", native={"thoughtSignature": "s1"}),
        TextPart(text="three"),
    )
    assert reply.opaque == [{"text": "", "thoughtSignature": "s2"}]
    assert reply.parts[4] == ReasoningPart(text="Think", signature="s3")


def test_a_call_without_an_id_gets_one_that_is_always_the_same() -> None:
    frames = [frame({"functionCall": {"name": "a"}}, {"functionCall": {"name": "b"}}), END]
    ids = [call.call_id for call in said(*frames).calls]
    assert ids == [call.call_id for call in said(*frames).calls]
    assert len(set(ids)) == 2
    assert all("r1" in call_id for call_id in ids)
    other = [each | {"responseId": "r2"} for each in frames]
    assert {*ids}.isdisjoint(call.call_id for call in said(*other).calls)


def test_a_call_without_any_id_around_it_gets_one_of_what_was_said() -> None:
    call = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "a"}}]}}]}
    first = said(call | {"createTime": "1"}, END).calls[0].call_id
    assert first != said(call | {"createTime": "2"}, END).calls[0].call_id


def test_the_providers_own_id_of_a_call_is_kept() -> None:
    call = said(frame({"functionCall": {"name": "a", "id": "x1"}, "thoughtSignature": "s"}), END)
    assert call.calls[0].call_id == "x1"
    assert call.calls[0].native == {"thoughtSignature": "s", "id": "x1"}


def piece(path: str, *, more: bool = True, **value: Json) -> JsonObject:
    argument = {"jsonPath": path} | value
    return frame({"functionCall": {"partialArgs": [argument], "willContinue": more}})


def test_arguments_that_come_in_pieces_are_put_together() -> None:
    reply = said(
        frame({"functionCall": {"name": "write", "willContinue": True}}),
        piece("$.text", stringValue="Hello ", willContinue=True),
        piece("$.text", stringValue="there"),
        piece("$.files[1].name", stringValue="b"),
        piece("$.files[0].size", numberValue=7),
        piece("$['odd name']", boolValue=True),
        piece("$.nothing", nullValue=None),
        frame({"functionCall": {}}),
        frame({"functionCall": {"name": "read", "args": {"id": 1}}}),
        END,
    )
    assert [(call.name, call.arguments) for call in reply.calls] == [
        (
            "write",
            {
                "text": "Hello there",
                "files": [{"size": 7}, {"name": "b"}],
                "odd name": True,
                "nothing": None,
            },
        ),
        ("read", {"id": 1}),
    ]


def test_a_call_that_was_cut_off_is_not_valid() -> None:
    reply = said(
        frame({"functionCall": {"name": "write", "willContinue": True}}),
        piece("$.a", numberValue=2),
        frame(finish="MAX_TOKENS"),
    )
    assert reply.calls[0].invalid == '{"a":2'
    assert reply.finished is not None
    assert reply.finished.kind == "length"


@given(st.lists(st.from_regex(r"[a-z_]{1,5}", fullmatch=True) | st.integers(0, 3), min_size=1))
def test_a_path_is_read_step_by_step(steps: list[str | int]) -> None:
    path = "$" + "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps)
    assert steps_of(path) == steps


def test_a_piece_without_a_place_changes_nothing() -> None:
    arguments: JsonObject = {"a": 1}
    put_argument(arguments, PartialArgument(json_path="$", string_value="x"))
    put_argument(arguments, PartialArgument(json_path="$.a.b", string_value="x"))
    assert arguments == {"a": 1}


def test_text_after_a_finish_reason_still_counts() -> None:
    reply = said(frame({"text": "First "}, finish="STOP"), frame({"text": "second"}, finish="STOP"))
    assert reply.text == "First second"


KINDS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        ),
        "refusal",
    ),
}


@pytest.mark.parametrize("reason", [*types.FinishReason.__members__, "SOMETHING_NEW"])
def test_every_finish_reason_has_its_kind(reason: str) -> None:
    reply = said(frame({"text": "x"}, finish=reason))
    assert reply.finished is not None
    assert (reply.finished.kind, reply.finished.reason) == (KINDS.get(reason, "other"), reason)


@pytest.mark.parametrize("reason", types.BlockedReason.__members__)
def test_a_blocked_prompt_is_a_refusal(reason: str) -> None:
    usage = {"promptTokenCount": 5, "totalTokenCount": 5}
    reply = said({"promptFeedback": {"blockReason": reason}, "usageMetadata": usage})
    assert reply.finished is not None
    assert (reply.finished.kind, reply.finished.reason) == ("refusal", reason)
    assert reply.finished.usage.input == 5


def test_usage_is_inclusive_and_the_last_one_counts() -> None:
    reply = said(
        frame({"text": "a"}, usageMetadata={"promptTokenCount": 9, "totalTokenCount": 9}),
        frame(
            finish="STOP",
            usageMetadata={
                "promptTokenCount": 100,
                "cachedContentTokenCount": 40,
                "toolUsePromptTokenCount": 5,
                "candidatesTokenCount": 7,
                "thoughtsTokenCount": 3,
                "totalTokenCount": 115,
            },
        ),
        {"usageMetadata": {"trafficType": "ON_DEMAND"}},
    )
    assert reply.finished is not None
    usage = reply.finished.usage
    assert (usage.input, usage.output, usage.cache_read, usage.reasoning) == (105, 10, 40, 3)
    assert usage.total == 115


def test_where_a_text_is_from_stays_with_the_text() -> None:
    source = {"groundingChunks": [{"web": {"uri": "https://example.org"}}]}
    last = frame({"text": "."}, finish="STOP")
    last["candidates"][0]["groundingMetadata"] = source
    reply = said(frame({"text": "Yes"}), last)
    assert reply.parts == (TextPart(text="Yes.", native={"groundingMetadata": source}),)


def test_what_is_not_modelled_is_carried_whole() -> None:
    part = {"hologram": {"angles": [1]}, "thoughtSignature": "s"}
    assert said(frame({"text": "a"}, part, {"text": "b"}), END).opaque == [part]


def test_an_array_of_replies_is_read_like_a_stream() -> None:
    assert said([frame({"text": "a"}), frame({"text": "b"}, finish="STOP")]).text == "ab"


def test_a_field_of_a_wrong_type_does_not_hide_the_others() -> None:
    odd = frame({"text": "Hi", "thought": "no"}, finish="STOP", responseId=5)
    odd["candidates"][0]["index"] = "zero"
    assert said(odd | {"usageMetadata": {"promptTokenCount": "3"}}).text == "Hi"


@pytest.mark.parametrize("error", [{"error": {"status": "UNAVAILABLE"}}, [{"error": {"code": 5}}]])
def test_an_error_inside_a_stream_comes_after_what_was_said(error: Json) -> None:
    reply = decode_frames(PROTOCOL, [frame({"text": "Hi"}), error], batch=2)
    assert reply.text == "Hi"
    assert reply.error is not None
    assert reply.finished is None


def test_a_frame_that_is_not_json_is_a_breach_of_protocol() -> None:
    reply = decode(PROTOCOL, b"data: {\r\n\r\ndata: {}\r\n\r\n")
    assert reply.error is not None
    assert reply.error.code is ErrorCode.PROTOCOL


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=4)), max_size=8), st.integers(1, 5))
def test_any_words_come_through_in_any_batches(pieces: list[tuple[bool, str]], batch: int) -> None:
    frames = [frame({"text": text, "thought": thought}) for thought, text in pieces]
    frames = json.loads(json.dumps([*frames, END]))
    one, many = decode_frames(PROTOCOL, frames), decode_frames(PROTOCOL, frames, batch)
    assert one.stream == many.stream
    assert one.text == "".join(text for thought, text in pieces if not thought)
