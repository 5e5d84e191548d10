"""Replies that are not quite what their protocol says, as gateways and small servers send them."""

import json

import pytest

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json, JsonObject
from haptera.model.usage import Usage
from haptera.testing import DecodedReply, decode_reply

MESSAGES = "anthropic-messages"
CHAT = "compat-chat"
RESPONSES = "openai-responses"
GEMINI = "gemini-generatecontent"
OLLAMA = "ollama-native"

START: JsonObject = {
    "type": "message_start",
    "message": {"id": "m", "model": "c", "usage": {"input_tokens": 3, "output_tokens": 1}},
}
TEXT: JsonObject = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "text", "text": "Hi"},
}
CLOSE: JsonObject = {"type": "content_block_stop", "index": 0}
END: JsonObject = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn"},
    "usage": {"output_tokens": 2},
}
STOP: JsonObject = {"type": "message_stop"}
CREATED: JsonObject = {"type": "response.created", "response": {"id": "r", "model": "m"}}


def stream(*frames: Json) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames)


def named(event: str, data: str) -> bytes:
    return f"event: {event}\ndata: {data}\n\n".encode()


def completed(*output: JsonObject, **more: Json) -> JsonObject:
    response: JsonObject = {"id": "r", "status": "completed", "output": list(output)}
    return {"type": "response.completed", "response": response | more}


def piece(finish: str | None = None, **delta: Json) -> JsonObject:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def candidate(*parts: JsonObject, finish: str | None = None) -> JsonObject:
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": finish}]}


def calls_of(reply: DecodedReply) -> list[tuple[str, Json, str | None]]:
    return [(call.name, call.arguments, call.invalid) for call in reply.tool_calls]


# Anthropic Messages


def delta(**fields: Json) -> JsonObject:
    return {"type": "content_block_delta", "index": 0, "delta": fields}


@pytest.mark.parametrize(
    "odd",
    [
        delta(type="text_delta", text=None),
        delta(type="citations_delta", citation=None),
        {"type": "message_delta", "usage": {"output_tokens": 2.0}},
        {"type": "message_delta", "delta": None, "usage": {"output_tokens": "many"}},
        {"type": "message_start", "message": None},
    ],
)
def test_a_message_outlives_fields_that_hold_nothing_or_something_odd(odd: JsonObject) -> None:
    at = 0 if odd["type"] == "message_start" else 2
    events: list[JsonObject] = [START, TEXT, CLOSE, END, STOP]
    reply = decode_reply(MESSAGES, stream(*events[:at], odd, *events[at:]))
    assert (reply.text, reply.outcome, reply.stop_reason) == ("Hi", "complete", "end_turn")
    assert reply.usage == Usage(input=3, output=2)


def test_a_message_s_events_may_have_their_type_in_their_name_only() -> None:
    events = (START, TEXT, CLOSE, END, STOP)
    body = b"".join(
        named(event["type"], json.dumps({k: v for k, v in event.items() if k != "type"}))
        for event in events
    )
    reply = decode_reply(MESSAGES, body)
    assert (reply.text, reply.outcome, reply.usage) == ("Hi", "complete", Usage(input=3, output=2))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ('{"message":"Rate limit reached"}', ErrorCode.RATE_LIMITED),
        ('{"type":"error","error":"overloaded"}', ErrorCode.OVERLOADED),
        ("upstream connect error: timed out", ErrorCode.TIMEOUT),
        ("[]", ErrorCode.SERVER_ERROR),
    ],
)
def test_an_event_of_the_name_error_is_one_whatever_it_holds(data: str, code: ErrorCode) -> None:
    reply = decode_reply(MESSAGES, stream(START, TEXT) + named("error", data))
    assert (reply.text, reply.outcome) == ("Hi", "error_in_stream")
    assert reply.error is not None
    assert reply.error.code is code


@pytest.mark.parametrize("headers", [None, {"content-type": "application/json"}])
def test_a_message_in_one_piece_is_read(headers: dict[str, str] | None) -> None:
    content = [
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}},
    ]
    whole: JsonObject = {"type": "message", "id": "m", "model": "c", "content": content}
    whole |= {"stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 2}}
    reply = decode_reply(MESSAGES, json.dumps(whole, indent=1).encode(), headers=headers)
    assert (reply.reasoning, reply.text, reply.outcome) == ("Hm", "Hi", "complete")
    assert calls_of(reply) == [("add", {"a": 1}, None)]
    assert (reply.stop_reason, reply.finish) == ("tool_use", "tool_calls")
    assert reply.usage == Usage(input=3, output=2)


def test_a_message_that_begins_with_blocks_keeps_them() -> None:
    head = START["message"] | {"content": [{"type": "tool_use", "id": "t", "name": "add"}]}
    reply = decode_reply(MESSAGES, stream({**START, "message": head}, TEXT, CLOSE, END, STOP))
    assert (calls_of(reply), reply.text) == ([("add", {}, None)], "Hi")


# Chat Completions


def call(name: str, arguments: Json, **more: Json) -> JsonObject:
    return {"function": {"name": name, "arguments": arguments}} | more


@pytest.mark.parametrize("place", [{}, {"index": 0}])
@pytest.mark.parametrize("together", [True, False])
def test_calls_without_any_id_are_told_apart(*, place: JsonObject, together: bool) -> None:
    calls = [call("f", '{"a": 1}', **place), call("f", '{"a": 2}', **place)]
    pieces = [calls] if together else [[each] for each in calls]
    body = stream(*(piece(tool_calls=each) for each in pieces), piece("tool_calls"))
    assert calls_of(decode_reply(CHAT, body)) == [("f", {"a": 1}, None), ("f", {"a": 2}, None)]


def test_a_name_that_is_repeated_without_arguments_begins_nothing() -> None:
    calls = [call("f", '{"a": 1}', index=0), call("f", "", index=0)]
    body = stream(*(piece(tool_calls=[each]) for each in calls), piece("tool_calls"))
    assert calls_of(decode_reply(CHAT, body)) == [("f", {"a": 1}, None)]


def test_arguments_that_are_a_list_do_not_become_none_at_all() -> None:
    body = stream(piece(tool_calls=[call("f", [1], id="c")]), piece("tool_calls"))
    assert calls_of(decode_reply(CHAT, body)) == [("f", {}, "[1]")]


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (
            {"choices": [{"index": 0, "error": {"code": 429, "message": "No"}, "delta": {}}]},
            ErrorCode.RATE_LIMITED,
        ),
        (
            {"object": "error", "message": "maximum context length is 10", "code": 400},
            ErrorCode.CONTEXT_LENGTH,
        ),
        ({"error": {"message": "Rate limit exceeded", "code": None}}, ErrorCode.RATE_LIMITED),
    ],
)
def test_an_error_is_found_where_a_server_puts_it(report: JsonObject, code: ErrorCode) -> None:
    reply = decode_reply(CHAT, stream(piece(content="Hi"), report))
    assert (reply.text, reply.outcome) == ("Hi", "error_in_stream")
    assert reply.error is not None
    assert reply.error.code is code


def test_the_mark_at_the_end_may_have_spaces_around_it() -> None:
    body = stream(piece("stop", content="Hi")) + b"data:  [DONE] \n\n"
    assert decode_reply(CHAT, body).outcome == "complete"


# OpenAI Responses


def test_a_response_s_arguments_may_be_an_object() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}}
    reply = decode_reply(RESPONSES, stream(CREATED, completed(item)))
    assert calls_of(reply) == [("f", {"a": 1}, None)]


def test_a_response_outlives_an_item_that_is_nothing_and_an_odd_count() -> None:
    usage = {"input_tokens": 3.0, "output_tokens": 2, "input_tokens_details": []}
    body = stream(
        {"type": "response.output_item.added", "output_index": 0, "item": None},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"},
        {"type": "response.output_item.done", "output_index": 0, "item": None},
        completed(usage=usage),
    )
    reply = decode_reply(RESPONSES, body)
    assert (reply.text, len(reply.parts), reply.usage) == ("Hi", 1, Usage(input=3, output=2))


def test_a_response_s_events_may_have_their_type_in_their_name_only() -> None:
    delta_only = named("response.output_text.delta", '{"delta":"Hi","output_index":0}')
    end = named("response.completed", json.dumps({"response": completed()["response"]}))
    reply = decode_reply(RESPONSES, delta_only + end)
    assert (reply.text, reply.outcome) == ("Hi", "complete")


@pytest.mark.parametrize(
    "report",
    [
        {"type": "error", "code": 429, "message": "No"},
        {"type": "error", "status": 429, "error": {"type": "new", "message": "No"}},
    ],
)
def test_a_response_s_error_may_have_a_status_for_its_code(report: JsonObject) -> None:
    error = decode_reply(RESPONSES, stream(CREATED, report)).error
    assert error is not None
    assert (error.code, error.status) == (ErrorCode.RATE_LIMITED, 429)


# Gemini and Ollama


def test_a_list_of_replies_is_read_whatever_its_name() -> None:
    frames = [candidate({"text": "H"}), candidate({"text": "i"}, finish="STOP")]
    reply = decode_reply(GEMINI, json.dumps(frames, indent=1).encode(), chunk_size=3)
    assert (reply.text, reply.outcome) == ("Hi", "complete")


def test_a_gateway_s_mark_at_the_end_is_no_fault() -> None:
    body = stream(candidate({"text": "Hi"}, finish="STOP")) + b"data: [DONE]\n\n"
    assert decode_reply(GEMINI, body).outcome == "complete"


@pytest.mark.parametrize("arguments", ['{"a": 1}', [1]])
def test_a_call_whose_arguments_are_no_object_is_not_one_that_could_run(arguments: Json) -> None:
    part = {"functionCall": {"name": "f", "args": arguments}}
    (found,) = decode_reply(GEMINI, stream(candidate(part, finish="STOP"))).tool_calls
    assert (found.arguments, found.invalid) == ({}, json.dumps(arguments, separators=(",", ":")))


def test_gemini_s_error_without_a_word_has_its_number() -> None:
    body = stream(candidate({"text": "Hi"}), {"error": {"code": 503, "message": "No"}})
    error = decode_reply(GEMINI, body).error
    assert error is not None
    assert error.code is ErrorCode.OVERLOADED


def test_an_end_without_a_reason_has_no_word_for_it() -> None:
    lines = b'{"message":{"content":"Hi"}}\n{"done":true}\n'
    reply = decode_reply(OLLAMA, lines)
    assert (reply.outcome, reply.finish, reply.stop_reason) == ("complete", "stop", None)


def test_a_hosted_model_s_error_has_a_status() -> None:
    error = decode_reply(OLLAMA, b'{"StatusCode":401,"error":"no"}\n').error
    assert error is not None
    assert error.code is ErrorCode.AUTH


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (GEMINI, stream(candidate({"functionCall": {"name": "f", "args": {}}}))),
        (OLLAMA, b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":{}}}]}}\n'),
        (
            MESSAGES,
            stream(
                START,
                {**TEXT, "content_block": {"type": "tool_use", "id": "t", "name": "f"}},
                CLOSE,
            ),
        ),
        (
            RESPONSES,
            stream(
                CREATED,
                {
                    "type": "response.output_item.done",
                    "item": {"type": "function_call", "call_id": "c", "name": "f"},
                },
            ),
        ),
    ],
)
def test_a_call_of_an_answer_that_broke_off_is_not_among_its_calls(api: str, body: bytes) -> None:
    reply = decode_reply(api, body)
    assert (reply.outcome, reply.tool_calls) == ("interrupted", ())
