"""What servers that speak OpenAI Responses do that its documentation does not say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json, JsonObject
from haptera.model.parts import ReasoningPart, TextPart
from haptera.model.stream_parts import StreamPart
from haptera.providers.wire.openai_responses import PROTOCOL
from haptera.providers.wire.openai_responses.reply import ResponsesDecoder
from haptera.providers.wire.protocol import Frame
from tests.providers.replies import Reply, decode, decode_frames

CREATED: JsonObject = {"type": "response.created", "response": {"id": "resp_1", "model": "m"}}
USAGE: JsonObject = {"input_tokens": 3, "output_tokens": 2}


def completed(*output: JsonObject, **more: Json) -> JsonObject:
    """Make the last event of a response."""
    response = {"id": "resp_1", "status": "completed", "output": list(output), "usage": USAGE}
    return {"type": "response.completed", "response": response | more}


def message(text: str, **more: Json) -> JsonObject:
    """Make a message item."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content} | more


def function_call(**more: Json) -> JsonObject:
    """Make a function call item."""
    made: JsonObject = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add"}
    return made | {"arguments": ""} | more


def event(name: str, **fields: Json) -> JsonObject:
    return {"type": f"response.{name}"} | fields


def said(*events: Json) -> Reply:
    reply = decode_frames(PROTOCOL, list(events))
    assert reply.error is None
    return reply


def test_text_comes_from_the_deltas_when_the_final_output_is_empty() -> None:
    delta = event("output_text.delta", delta="Hi", output_index=0, item_id="msg_1")
    assert said(CREATED, delta, completed()).text == "Hi"


def test_text_that_only_the_final_output_has_is_not_lost() -> None:
    assert said(CREATED, completed(message("Hi"))).text == "Hi"


def test_text_that_only_a_done_event_has_is_not_lost() -> None:
    done = event("output_text.done", text="Hi", output_index=0)
    assert said(CREATED, done, completed()).text == "Hi"
    assert said(CREATED, event("output_item.done", item=message("Hi")), completed()).text == "Hi"


def test_text_is_said_once_however_often_it_is_repeated() -> None:
    events = (
        event("output_item.added", item=message(""), output_index=0),
        event("output_text.delta", delta="Hi", output_index=0),
        event("output_text.done", text="Hi", output_index=0),
        event("output_item.done", item=message("Hi"), output_index=0),
    )
    assert said(CREATED, *events, completed(message("Hi"))).text == "Hi"


def test_a_summary_that_does_not_begin_like_the_deltas_adds_nothing() -> None:
    delta = event("output_text.delta", delta="Hi", output_index=0)
    assert said(CREATED, delta, completed(message("Hello there"))).text == "Hi"


def test_ids_that_change_in_the_middle_of_a_stream_do_not_matter() -> None:
    events = (
        event("output_item.added", item=function_call(id="a1"), output_index=0),
        event("function_call_arguments.delta", delta='{"a":', item_id="a2", output_index=0),
        event("function_call_arguments.delta", delta="1}", item_id="a3", output_index=0),
        event("output_item.done", item=function_call(id="a4", arguments='{"a":1}'), output_index=0),
    )
    reply = said(CREATED, *events, completed(function_call(id="a5", arguments='{"a":1}')))
    assert [(call.call_id, call.arguments) for call in reply.calls] == [("call_1", {"a": 1})]


def test_events_without_index_are_told_apart_by_id_and_by_call_id() -> None:
    first = function_call(id=None, call_id="fc_a")
    second = function_call(id=None, call_id="fc_b", name="multiply")
    events = (
        event("output_item.added", item=first),
        event("output_item.added", item=second),
        event("function_call_arguments.delta", delta='{"a":1}', item_id="fc_a"),
        event("function_call_arguments.delta", delta='{"b":2}', item_id="fc_b"),
        event("output_item.done", item=first | {"arguments": '{"a":1}'}),
        event("output_item.done", item=second | {"arguments": '{"b":2}'}),
    )
    reply = said(CREATED, *events, completed())
    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("add", {"a": 1}),
        ("multiply", {"b": 2}),
    ]


def test_events_without_index_and_id_go_to_what_is_open() -> None:
    events = (
        event("output_item.added", item={"type": "reasoning", "summary": []}),
        event("reasoning_text.delta", delta="Hm."),
        event("output_item.added", item=message("")),
        event("output_text.delta", delta="Yes"),
        event("output_text.delta", delta="."),
    )
    reply = said(CREATED, *events, completed())
    assert (reply.reasoning, reply.text) == ("Hm.", "Yes.")


def test_deltas_that_come_before_their_item_are_read() -> None:
    assert said(event("output_text.delta", delta="Hi"), completed()).text == "Hi"


def test_arguments_that_come_whole_are_read() -> None:
    for events in (
        (event("function_call_arguments.done", arguments='{"a":1}', output_index=0),),
        (event("output_item.done", item=function_call(arguments='{"a":1}'), output_index=0),),
        (),
    ):
        added = event("output_item.added", item=function_call(), output_index=0)
        last = completed() if events else completed(function_call(arguments='{"a":1}'))
        assert said(CREATED, added, *events, last).calls[0].arguments == {"a": 1}


def test_a_call_cut_by_the_token_limit_is_not_valid_and_the_stream_says_why() -> None:
    reply = said(
        CREATED,
        event("output_item.added", item=function_call(), output_index=0),
        event("function_call_arguments.delta", delta='{"a":2', output_index=0),
        {
            "type": "response.incomplete",
            "response": {
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [],
            },
        },
    )
    assert reply.calls[0].invalid == '{"a":2'
    assert reply.finished is not None
    assert (reply.finished.kind, reply.finished.reason) == (
        "length",
        "incomplete:max_output_tokens",
    )


def test_an_answer_that_was_filtered_is_a_refusal() -> None:
    response = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    reply = said(CREATED, {"type": "response.incomplete", "response": response})
    assert reply.finished is not None
    assert reply.finished.kind == "refusal"


def test_free_text_for_a_tool_becomes_an_argument_whatever_is_in_it() -> None:
    text = 'SELECT "a\\b"\n— ½ \u2028'
    item = {"type": "custom_tool_call", "id": "ct_1", "call_id": "c", "name": "sql", "input": ""}
    deltas = [
        event("custom_tool_call_input.delta", delta=letter, output_index=0) for letter in text
    ]
    added = event("output_item.added", item=item, output_index=0)
    for events in (deltas, []):
        done = event("output_item.done", item=item | {"input": text}, output_index=0)
        call = said(CREATED, added, *events, done, completed()).calls[0]
        assert call.arguments == {"__input__": text}
        assert call.native == {"type": "custom_tool_call", "id": "ct_1"}


def test_free_text_that_is_empty_is_an_empty_argument() -> None:
    item = {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": ""}
    reply = said(CREATED, event("output_item.done", item=item, output_index=0), completed())
    assert reply.calls[0].arguments == {"__input__": ""}


def test_each_summary_is_a_part_and_the_last_carries_the_seal() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": []}
    events = (
        event("output_item.added", item=item, output_index=0),
        event("reasoning_summary_text.delta", delta="One.", output_index=0, summary_index=0),
        event("reasoning_summary_text.delta", delta="Two.", output_index=0, summary_index=1),
        event("output_item.done", item=item | {"encrypted_content": "seal"}, output_index=0),
        event("output_item.done", item=message("Hi"), output_index=1),
    )
    reply = said(CREATED, *events, completed())
    assert reply.parts == (
        ReasoningPart(text="One.", native={"id": "rs_1"}),
        ReasoningPart(text="Two.", signature="seal", native={"id": "rs_1"}),
        TextPart(text="Hi", native={"id": "msg_1", "reasoning": "rs_1"}),
    )


def test_reasoning_without_words_keeps_its_seal_and_without_a_seal_is_nothing() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": []}
    done = event("output_item.done", item=item | {"encrypted_content": "s"}, output_index=0)
    assert said(CREATED, done, completed()).parts == (
        ReasoningPart(text="", signature="s", native={"id": "rs_1"}),
    )
    bare = event("output_item.done", item=item, output_index=0)
    assert said(CREATED, bare, completed()).parts == ()


def test_a_kept_response_leaves_its_id_on_what_it_said() -> None:
    created = {"type": "response.created", "response": {"id": "resp_1", "store": True}}
    reply = said(created, completed(message("Hi")))
    assert isinstance(reply.parts[0], TextPart)
    assert reply.parts[0].native == {"id": "msg_1", "response_id": "resp_1"}


def test_what_is_not_modelled_is_carried_whole() -> None:
    item = {"type": "hologram_call", "id": "h_1", "angles": [1, 2]}
    events = (
        event("output_item.added", item={"type": "hologram_call", "id": "h_1"}, output_index=0),
        event("hologram_call.turning", output_index=0),
        event("output_item.done", item=item, output_index=0),
    )
    assert said(CREATED, *events, completed(item)).opaque == [item]


def test_a_served_tool_that_never_ended_is_not_carried() -> None:
    added = event("output_item.added", item={"type": "web_search_call"}, output_index=0)
    assert said(CREATED, added, completed()).opaque == []


def test_what_comes_after_the_end_is_passed_over() -> None:
    reply = said(CREATED, completed(message("Hi")), {"type": "ping", "cost": "0"}, {"error": "x"})
    assert reply.text == "Hi"


def test_an_answer_in_one_body_is_read_like_a_stream() -> None:
    body: JsonObject = {"object": "response", "id": "resp_1", "status": "completed"}
    body |= {"output": [message("Hi"), function_call(arguments="{}")], "usage": USAGE}
    reply = said(body)
    assert (reply.text, len(reply.calls)) == ("Hi", 1)
    assert reply.finished is not None
    assert (reply.finished.kind, reply.finished.usage.total) == ("tool_calls", 5)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "RATE_LIMITED"),
        ({"type": "error", "error": {"type": "server_error", "message": "x"}}, "SERVER_ERROR"),
        ({"error": {"code": "context_length_exceeded", "message": "x"}}, "CONTEXT_LENGTH"),
        ({"type": "error", "message": "no idea"}, "SERVER_ERROR"),
        (event("failed", response={"error": {"code": "server_error"}}), "SERVER_ERROR"),
        (event("failed", response={"error": {"code": "invalid_prompt"}}), "CONTENT_FILTER"),
        (event("failed", response={"status": "failed"}), "SERVER_ERROR"),
        (event("cancelled", response={"status": "cancelled"}), "ABORTED"),
    ],
)
def test_an_error_inside_a_stream_comes_after_what_was_said(frame: Json, code: str) -> None:
    delta = event("output_text.delta", delta="Hi", output_index=0)
    reply = decode_frames(PROTOCOL, [CREATED, delta, frame], batch=3)
    assert reply.text == "Hi"
    assert reply.finished is None
    assert reply.error is not None
    assert reply.error.code == code


def test_an_event_named_error_is_one_whatever_it_holds() -> None:
    reply = decode(PROTOCOL, b'event: error\ndata: {"message":"bad","code":"server_error"}\n\n')
    assert reply.error is not None
    assert reply.error.code is ErrorCode.SERVER_ERROR


def test_a_frame_that_is_not_json_is_a_breach_of_protocol() -> None:
    reply = decode(PROTOCOL, b'data: {"type":\n\ndata: {}\n\n')
    assert reply.error is not None
    assert reply.error.code is ErrorCode.PROTOCOL


def test_a_field_of_a_wrong_type_does_not_hide_the_others() -> None:
    odd = event("output_text.delta", delta="Hi", output_index="0", item_id=5, logprobs=None)
    assert said(CREATED, odd, completed(usage={"input_tokens": "3"})).text == "Hi"


def test_a_lone_surrogate_does_not_end_a_stream() -> None:
    body = b'data: {"type":"response.output_text.delta","delta":"a\\ud83d"}\n\n'
    reply = decode(PROTOCOL, body)
    assert reply.text == "a\ufffd"


def test_a_response_in_the_background_can_be_taken_up_where_it_broke_off() -> None:
    created = event("created", response={"id": "resp_9", "background": True}, sequence_number=0)
    events = [
        created,
        event("output_text.delta", delta="One ", output_index=0, sequence_number=1),
        event("output_text.delta", delta="two", output_index=0, sequence_number=2),
        completed(),
    ]
    frames = [Frame(json.dumps(each).encode()) for each in events]
    out: list[StreamPart] = []
    decoder = ResponsesDecoder()
    assert decoder.resume() is None
    decoder.feed(frames[:2], out)
    assert decoder.resume() == "/resp_9?stream=true&starting_after=1"
    decoder.feed(frames[1:], out)  # what was seen before the break is passed over
    assert decoder.finish() == ()
    assert Reply(out, None).text == "One two"
    assert decoder.resume() is None


def test_a_response_that_is_not_kept_cannot_be_taken_up() -> None:
    decoder = ResponsesDecoder()
    decoder.feed([Frame(json.dumps(CREATED).encode())], [])
    assert decoder.resume() is None


WORDS = st.lists(st.text(min_size=1, max_size=5), max_size=6)


@given(thoughts=WORDS, words=WORDS, batch=st.integers(1, 9))
def test_any_words_come_through_in_any_batches(
    thoughts: list[str], words: list[str], batch: int
) -> None:
    events = [
        CREATED,
        *(event("reasoning_text.delta", delta=each, output_index=0) for each in thoughts),
        *(event("output_text.delta", delta=each, output_index=1) for each in words),
        completed(),
    ]
    events = json.loads(json.dumps(events).encode("utf-8", "replace"))
    one, many = decode_frames(PROTOCOL, events), decode_frames(PROTOCOL, events, batch)
    assert one.stream == many.stream
    assert (one.reasoning, one.text) == ("".join(thoughts), "".join(words))


def test_what_llamacpp_streams_is_read_at_any_split() -> None:
    body = (Path(__file__).parent / "recordings" / "llamacpp_text.sse").read_bytes()
    whole = decode(PROTOCOL, body)
    assert whole.text == "I'm a brave and curious AI assistant, just enjoying a lazy day's work"
    assert whole.finished is not None
    assert (whole.finished.usage.input, whole.finished.usage.output) == (33, 16)
    for size in (1, 2, 3, 7):
        assert decode(PROTOCOL, body, size).stream == whole.stream
