"""The decoder of Anthropic's replies, on cases written by hand."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json
from haptera.model.parts import CompactionPart, ProviderPart, ReasoningPart, TextPart
from haptera.model.stream_parts import StreamFinished, StreamPart
from haptera.model.usage import Usage
from haptera.providers.reply_reader import ReplyReader
from haptera.providers.wire.anthropic_messages import PROTOCOL
from haptera.providers.wire.anthropic_messages.reply_format import FINISH_KINDS
from haptera.testing.decode_reply import DecodedReply, decode_pieces, decode_reply
from tests.providers.exchanges import CASES, case

API = "anthropic-messages"

START = {"type": "message_start", "message": {"id": "msg_x", "model": "m", "usage": {}}}
OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
CLOSE = {"type": "content_block_stop", "index": 0}
STOP = {"type": "message_stop"}


def delta(kind: str, index: int = 0, **fields: Json) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def end(reason: str | None) -> Json:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}


def block(index: int, **fields: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": fields}


def body(*events: Json) -> bytes:
    """Write events as a stream."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def decode(*events: Json) -> DecodedReply:
    return decode_reply(API, body(*events))


def stream_parts(pieces: Iterable[bytes]) -> list[StreamPart]:
    reader, out = ReplyReader(PROTOCOL), list[StreamPart]()
    for piece in filter(None, pieces):
        reader.take(piece, out)
    return out


def test_text_is_put_together() -> None:
    reply = decode_reply(API, case("text"))
    assert (reply.text, reply.outcome, reply.finish) == ("Grüße, world 🌍", "complete", "stop")
    assert (reply.model, reply.response_id) == ("claude-sonnet-5", "msg_a")
    assert reply.usage == Usage(input=12, output=9)


def test_thinking_and_parallel_calls_are_put_together() -> None:
    reply = decode_reply(API, case("thinking_and_tools"))
    thinking, hidden, *calls = reply.parts
    assert isinstance(thinking, ReasoningPart)
    assert (thinking.text, thinking.signature) == ("Two cities, two calls.", "c2VhbA==")
    assert isinstance(hidden, ProviderPart)
    assert hidden.payload == {"type": "redacted_thinking", "data": "b3BhcXVl"}
    assert [(call.call_id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("toolu_1", "weather", {"city": "Oslo"}),
        ("toolu_2", "weather", {"city": "Rome"}),
        ("toolu_3", "now", {}),
    ]
    assert reply.tool_calls[0].native == {"caller": {"type": "direct"}}
    assert calls == list(reply.tool_calls)
    assert reply.finish == "tool_calls"


def test_usage_includes_what_a_cache_served() -> None:
    usage = decode_reply(API, case("thinking_and_tools")).usage
    assert usage == Usage(
        input=600, output=88, cache_read=500, cache_write=70, cache_write_1h=50, reasoning=21
    )
    assert (usage.fresh_input, usage.cache_write_5m) == (30, 20)


def test_what_we_do_not_model_is_carried_whole() -> None:
    reply = decode_reply(API, case("server_tool_and_citations"))
    search, found, text = reply.parts
    assert isinstance(search, ProviderPart)
    assert search.payload == {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "tides"},
    }
    assert isinstance(found, ProviderPart)
    assert found.payload["content"][0]["encrypted_content"] == "ZW5j"
    assert isinstance(text, TextPart)
    assert text.text == "Twice a day."
    assert text.native is not None
    assert text.native["citations"][0]["cited_text"] == "twice a day"
    assert (reply.stop_reason, reply.finish, reply.outcome) == ("pause_turn", "pause", "complete")


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.sse")))
def test_any_split_of_the_bytes_gives_the_same_parts(name: str) -> None:
    whole = case(name)
    parts = stream_parts([whole])
    for place in range(len(whole)):
        assert stream_parts([whole[:place], whole[place:]]) == parts
    for size in (1, 2, 3, 7):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert stream_parts(pieces) == parts


@given(st.data())
def test_any_cut_of_any_case_is_interrupted(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(path.stem for path in CASES.glob("*.sse"))))
    whole = case(name)
    place = data.draw(st.integers(0, whole.index(b'"message_stop"')))
    reply = decode_pieces(PROTOCOL, [whole[:place]])
    assert reply.outcome == "interrupted"
    assert reply.stop_reason is None


@pytest.mark.parametrize(
    ("reason", "kind"),
    [*FINISH_KINDS.items(), ("a_reason_of_next_year", "other")],
)
def test_every_stop_reason_has_its_kind(reason: str, kind: str) -> None:
    reply = decode(START, OPEN, delta("text_delta", text="a"), CLOSE, end(reason), STOP)
    assert (reply.stop_reason, reply.finish, reply.outcome) == (reason, kind, "complete")


def test_an_end_without_a_reason_is_an_interruption() -> None:
    reply = decode(START, OPEN, delta("text_delta", text="a"), CLOSE, end(None), STOP)
    assert (reply.text, reply.stop_reason, reply.outcome) == ("a", None, "interrupted")


def test_what_a_refusal_says_is_kept() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "No."}
    last = {
        "type": "message_delta",
        "delta": {"stop_reason": "refusal", "stop_details": details},
        "usage": {"output_tokens": 3},
    }
    finished = stream_parts([body(START, last, STOP)])[-1]
    assert isinstance(finished, StreamFinished)
    assert finished.kind == "refusal"
    assert finished.native == {"stop_details": details}


def test_a_compaction_is_a_part_with_all_that_belongs_to_it() -> None:
    reply = decode(
        START,
        block(0, type="compaction", content=None),
        delta("compaction_delta", content="They greeted.", encrypted_content="ZW5j"),
        CLOSE,
        end("compaction"),
        STOP,
    )
    (part,) = reply.parts
    assert isinstance(part, CompactionPart)
    assert (part.text, part.native) == ("They greeted.", {"encrypted_content": "ZW5j"})
    assert (reply.finish, reply.text) == ("compaction", "")


def test_an_error_comes_after_what_came_before_it() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reply = decode(START, OPEN, delta("text_delta", text="so far"), error)
    assert (reply.text, reply.outcome, reply.stop_reason) == ("so far", "error_in_stream", None)
    assert reply.error is not None
    assert (reply.error.code, reply.error.basis) == (ErrorCode.OVERLOADED, "code")


def test_an_error_without_a_type_is_an_error_too() -> None:
    reply = decode_reply(API, b'data: {"error":{"message":"upstream gave up"}}\n\n')
    assert reply.outcome == "error_in_stream"


def test_nothing_counts_after_the_end() -> None:
    error = {"type": "error", "error": {"type": "api_error", "message": "late"}}
    reply = decode(START, OPEN, delta("text_delta", text="a"), CLOSE, end("end_turn"), STOP, error)
    assert (reply.outcome, reply.text) == ("complete", "a")


def test_deltas_and_ends_of_blocks_that_were_not_started_are_read_or_passed_over() -> None:
    reply = decode(
        START,
        delta("input_json_delta", index=7, partial_json="{}"),
        delta("text_delta", index=8, text="un"),
        delta("text_delta", index=8, text="announced"),
        {"type": "content_block_stop", "index": 9},
        end("end_turn"),
        STOP,
    )
    assert (reply.text, reply.outcome, reply.tool_calls) == ("unannounced", "complete", ())


def test_text_in_the_head_of_a_block_is_read() -> None:
    reply = decode(START, block(0, type="text", text="head"), CLOSE, end("end_turn"), STOP)
    assert reply.text == "head"


def test_arguments_in_the_head_of_a_call_are_read() -> None:
    call = block(0, type="tool_use", id="t", name="weather", input={"city": "Oslo"})
    reply = decode(START, call, CLOSE, end("tool_use"), STOP)
    assert reply.tool_calls[0].arguments == {"city": "Oslo"}


def test_arguments_that_are_not_json_are_marked() -> None:
    call = block(0, type="tool_use", id="t", name="weather", input={})
    cut = delta("input_json_delta", partial_json='{"city": "Os')
    reply = decode(START, call, cut, CLOSE, end("max_tokens"), STOP)
    assert reply.tool_calls[0].invalid == '{"city": "Os'


def test_an_index_that_is_used_twice_makes_two_parts() -> None:
    reply = decode(
        START,
        block(0, type="text", text="a"),
        block(0, type="text", text="b"),
        CLOSE,
        end("end_turn"),
        STOP,
    )
    assert [part.text for part in reply.parts if isinstance(part, TextPart)] == ["a", "b"]


def test_an_answer_that_begins_twice_before_any_content_is_one() -> None:
    reply = decode(START, START, OPEN, delta("text_delta", text="a"), CLOSE, end("end_turn"), STOP)
    assert (reply.outcome, reply.text) == ("complete", "a")


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    raw = body(START, OPEN).replace(b'"m"', b'"\\ud83d"')
    text = b'data: {"type":"content_block_delta","index":0,"delta":'
    text += b'{"type":"text_delta","text":"a \\ud83d b"}}\n\n'
    reply = decode_reply(API, raw + text + body(CLOSE, end("end_turn"), STOP))
    assert (reply.text, reply.outcome) == ("a � b", "complete")
    assert reply.text.encode()


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    text = b'data: {"type":"content_block_delta","index":0,"delta":'
    text += b'{"type":"text_delta","text":"a \xff b"}}\n\n'
    reply = decode_reply(API, body(START, OPEN) + text + body(CLOSE, end("end_turn"), STOP))
    assert (reply.text, reply.outcome) == ("a � b", "complete")


@pytest.mark.parametrize(
    "frame",
    [
        b"data: {not json}\n\n",
        b'data: {"type":"content_block_delta","index":"no","delta":{"type":"text_delta"}}\n\n',
    ],
)
def test_a_malformed_frame_is_a_protocol_error(frame: bytes) -> None:
    reply = decode_reply(API, body(START, OPEN) + frame + body(STOP))
    assert reply.error is not None
    assert reply.error.code is ErrorCode.PROTOCOL


@pytest.mark.parametrize("frame", [b"data:\n\n", b"data: [DONE]\n\n", b"data: 7\n\n", b": hi\n\n"])
def test_a_frame_that_says_nothing_is_passed_over(frame: bytes) -> None:
    head = body(START, OPEN, delta("text_delta", text="a"))
    reply = decode_reply(API, head + frame + body(CLOSE, end("end_turn"), STOP) + frame)
    assert (reply.text, reply.outcome) == ("a", "complete")


def test_a_carried_block_whose_input_was_cut_off_is_dropped() -> None:
    reply = decode(
        START,
        block(0, type="server_tool_use", id="s", name="web_search", input={}),
        delta("input_json_delta", partial_json='{"query": "ti'),
        end("max_tokens"),
        STOP,
    )
    assert reply.parts == ()


def test_the_model_that_answered_instead_is_kept() -> None:
    fallback = block(0, type="fallback", **{"from": {"model": "a"}, "to": {"model": "b"}})
    finished = stream_parts([body(START, fallback, CLOSE, end("end_turn"), STOP)])[-1]
    assert isinstance(finished, StreamFinished)
    assert finished.native == {"model": "b"}
