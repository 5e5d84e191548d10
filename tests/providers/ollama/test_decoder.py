"""What Ollama's native replies hold, and what becomes of odd ones."""

import json

import pytest

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json, JsonObject
from haptera.model.parts import ReasoningPart, TextPart
from haptera.providers.wire.ollama import PROTOCOL
from tests.providers.replies import Reply, decode, decode_frames

DONE: JsonObject = {"model": "m", "done": True, "done_reason": "stop"}


def line(**message: Json) -> JsonObject:
    return {"model": "m", "created_at": "t", "message": {"role": "assistant"} | message}


def said(*lines: Json) -> Reply:
    reply = decode_frames(PROTOCOL, list(lines))
    assert reply.error is None
    return reply


def call(name: str, arguments: Json, **more: Json) -> JsonObject:
    return {"function": {"name": name, "arguments": arguments}} | more


def test_thinking_goes_before_text() -> None:
    reply = said(
        line(thinking="Hm"),
        line(thinking=".", content=""),
        line(content="Yes"),
        line(content="."),
        DONE,
    )
    assert reply.parts == (ReasoningPart(text="Hm."), TextPart(text="Yes."))


def test_calls_come_whole_and_get_ids_where_they_have_none() -> None:
    lines = [
        line(tool_calls=[call("a", {"x": 1}), call("b", '{"y":2}'), call("c", None, id="own")]),
        DONE,
    ]
    reply = said(*lines)
    assert [(each.name, each.arguments) for each in reply.calls] == [
        ("a", {"x": 1}),
        ("b", {"y": 2}),
        ("c", {}),
    ]
    assert reply.calls[2].call_id == "own"
    assert [each.call_id for each in said(*lines).calls] == [each.call_id for each in reply.calls]
    assert len({each.call_id for each in reply.calls}) == 3
    assert reply.finished is not None
    assert reply.finished.kind == "tool_calls"


@pytest.mark.parametrize(
    ("reason", "kind"), [("stop", "stop"), ("length", "length"), ("load", "other"), (None, "stop")]
)
def test_every_reason_to_stop_has_its_kind(reason: str | None, kind: str) -> None:
    reply = said(line(content="x"), DONE | {"done_reason": reason})
    assert reply.finished is not None
    assert reply.finished.kind == kind


def test_an_answer_in_one_body_is_read_like_a_stream() -> None:
    body = line(content="Hi") | {"done": True, "prompt_eval_count": 3, "eval_count": 2}
    reply = said(body)
    assert reply.text == "Hi"
    assert reply.finished is not None
    assert (reply.finished.usage.input, reply.finished.usage.output) == (3, 2)


@pytest.mark.parametrize("words", ["it broke", {"message": "it broke"}])
def test_an_error_inside_a_stream_comes_after_what_was_said(words: Json) -> None:
    reply = decode_frames(PROTOCOL, [line(content="Hi"), {"error": words}], batch=2)
    assert reply.text == "Hi"
    assert reply.finished is None
    assert reply.error is not None
    assert (reply.error.code, reply.error.message) == (ErrorCode.SERVER_ERROR, "it broke")


def test_a_line_that_is_not_json_is_a_breach_of_protocol() -> None:
    reply = decode(PROTOCOL, b'{"model":\n' + json.dumps(DONE).encode() + b"\n")
    assert reply.error is not None
    assert reply.error.code is ErrorCode.PROTOCOL


def test_a_field_of_a_wrong_type_does_not_hide_the_others() -> None:
    odd = {
        "model": 5,
        "message": {"content": "Hi", "thinking": 1, "tool_calls": [call("a", {}), 7]},
    }
    reply = said(odd, DONE | {"eval_count": "many"})
    assert (reply.text, len(reply.calls)) == ("Hi", 1)


def test_what_comes_after_the_end_is_passed_over() -> None:
    assert said(line(content="Hi"), DONE, line(content="there")).text == "Hi"
