"""What the Chat Completions decoder makes of answers, on small bodies that we wrote."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.stream_parts import PartOpaque, StreamFinished, StreamPart
from haptera.model.usage import Usage
from haptera.providers.wire.chat_completions.dialects import OPENROUTER, XAI
from haptera.providers.wire.chat_completions.reply import ChatDecoder
from haptera.providers.wire.protocol import Frame
from tests.providers.chat.replies import piece, read_reply, sse


def call(index: int | None = 0, **fields: Any) -> dict[str, Any]:
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    given_index = {} if index is None else {"index": index}
    return {**given_index, **fields, "function": function}


def kind_of(*payloads: object) -> str:
    finished = read_reply(sse(*payloads)).finished
    assert finished is not None
    return finished.kind


def failure_of(body: bytes) -> AgentError:
    error = read_reply(body).error
    assert error is not None
    return error


def test_text_reasoning_and_a_call_come_in_their_order() -> None:
    reply = read_reply(
        sse(
            piece(role="assistant", content=""),
            piece(reasoning_content="Let me "),
            piece(reasoning_content="see."),
            piece(content="Now: "),
            piece(tool_calls=[call(id="c1", name="add", arguments="")]),
            piece(tool_calls=[call(arguments='{"a": 1}')]),
            piece("tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}},
        )
    )
    assert [part.opened.kind for part in reply.parts.values()] == [
        "reasoning",
        "text",
        "tool_call",
    ]
    assert (reply.reasoning, reply.text) == ("Let me see.", "Now: ")
    assert reply.calls == [("add", {"a": 1})]
    assert reply.finished == StreamFinished(
        kind="tool_calls", reason="tool_calls", usage=Usage(input=5, output=7)
    )


def test_names_and_ids_that_are_repeated_are_not_joined() -> None:
    first = call(id="c1", name="add", arguments='{"a"')
    again = call(id="c1", name="add", arguments=": 1}")
    reply = read_reply(sse(piece(tool_calls=[first]), piece("tool_calls", tool_calls=[again])))
    assert reply.calls == [("add", {"a": 1})]


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    one = call(None, id="aaaaaaaaa", name="add", arguments='{"a": 1}')
    two = call(None, id="bbbbbbbbb", name="add", arguments='{"a": 2}')
    reply = read_reply(sse(piece(tool_calls=[one, two]), piece("tool_calls")))
    assert reply.calls == [("add", {"a": 1}), ("add", {"a": 2})]


def test_a_piece_without_index_and_id_belongs_to_the_last_call() -> None:
    start = call(None, id="aaaaaaaaa", name="add", arguments='{"a":')
    rest = call(None, arguments=" 1}")
    reply = read_reply(sse(piece(tool_calls=[start]), piece("tool_calls", tool_calls=[rest])))
    assert reply.calls == [("add", {"a": 1})]


def test_whole_calls_that_share_an_index_are_calls_of_their_own() -> None:
    one = call(0, id="c1", name="add", arguments='{"a": 1}')
    two = call(0, id="c2", name="add", arguments='{"a": 2}')
    reply = read_reply(sse(piece(tool_calls=[one]), piece(tool_calls=[two]), piece("stop")))
    assert reply.calls == [("add", {"a": 1}), ("add", {"a": 2})]


def test_an_id_that_changes_within_a_call_does_not_split_it() -> None:
    one = call(0, id="c1", name="add", arguments='{"a":')
    two = call(0, id="c2", arguments=" 1}")
    reply = read_reply(sse(piece(tool_calls=[one]), piece("tool_calls", tool_calls=[two])))
    assert reply.calls == [("add", {"a": 1})]


def test_a_call_of_a_second_answer_spliced_into_the_first_cannot_be_run() -> None:
    one = call(0, id="c1", name="add", arguments="{}")
    two = call(0, id="c2", name="add", arguments="{}")
    finish = piece("tool_calls")
    reply = read_reply(sse(piece(tool_calls=[one]), finish, piece(tool_calls=[two]), finish))
    assert reply.calls == [("add", {"__invalid_json__": "{}{}"})]


def test_a_name_that_comes_late_is_waited_for() -> None:
    reply = read_reply(
        sse(
            piece(tool_calls=[call(id="c1", arguments='{"a":')]),
            piece(tool_calls=[call(name="add", arguments=" 1}")]),
            piece("tool_calls"),
        )
    )
    assert reply.calls == [("add", {"a": 1})]


def test_arguments_sent_as_an_object_are_taken_as_text() -> None:
    body = sse(piece("tool_calls", tool_calls=[call(id="c1", name="add", arguments={"a": 1})]))
    assert read_reply(body).calls == [("add", {"a": 1})]


def test_a_call_without_an_id_gets_one_that_does_not_depend_on_chance() -> None:
    body = sse(piece("tool_calls", tool_calls=[call(name="add", arguments="{}")]))
    ids = {read_reply(body).parts["call-0"].opened.call_id for _ in range(2)}
    assert len(ids) == 1
    assert all(call_id and call_id.startswith("call_") for call_id in ids)


def test_the_old_function_call_is_a_tool_call() -> None:
    reply = read_reply(
        sse(
            piece(function_call={"name": "add", "arguments": '{"a"'}),
            piece(function_call={"arguments": ": 1}"}),
            piece("function_call"),
        )
    )
    assert reply.calls == [("add", {"a": 1})]
    assert reply.finished is not None
    assert reply.finished.kind == "tool_calls"


def test_only_the_first_of_several_answers_is_ours() -> None:
    other = {"id": "x", "model": "m", "choices": [{"index": 1, "delta": {"content": "no"}}]}
    reply = read_reply(sse(piece(content="yes"), other, piece("stop")))
    assert reply.text == "yes"


def test_content_arrays_hold_text_and_thinking() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply = read_reply(
        sse(
            piece(content=[thinking]),
            piece(content=[{"type": "text", "text": "yes"}, {"type": "reference", "ids": [1]}]),
            piece("stop"),
        )
    )
    assert (reply.reasoning, reply.text) == ("hm", "yes")
    closed = reply.parts["text-1"].closed
    assert closed is not None
    assert closed.native == {"annotations": [{"type": "reference", "ids": [1]}]}


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("model_length", "context_window"),
        ("banana", "other"),
    ],
)
def test_a_finish_reason_has_its_kind_and_keeps_its_word(reason: str, kind: str) -> None:
    reply = read_reply(sse(piece(content="x"), piece(reason)))
    assert reply.finished is not None
    assert (reply.finished.kind, reply.finished.reason) == (kind, reason)


def test_stop_after_a_demanded_call_means_the_call() -> None:
    demanded = piece(tool_calls=[call(id="c1", name="add", arguments="{}")])
    assert kind_of(demanded, piece("stop")) == "tool_calls"


def test_tool_calls_without_any_call_means_stop() -> None:
    assert kind_of(piece(content="x"), piece("tool_calls")) == "stop"


def test_the_token_limit_wins_over_the_calls_it_cut() -> None:
    cut = piece(tool_calls=[call(id="c1", name="add", arguments='{"a": ')])
    assert kind_of(cut, piece("length")) == "length"


def test_a_refusal_is_carried_and_named() -> None:
    reply = read_reply(sse(piece(refusal="I "), piece(refusal="won't."), piece("stop")))
    assert reply.text == ""
    assert PartOpaque(payload={"type": "refusal", "refusal": "I won't."}) in reply.stream
    assert reply.finished is not None
    assert reply.finished.kind == "refusal"
    assert reply.finished.native == {"refusal": "I won't."}


def test_a_stream_without_its_end_mark_is_complete_once_the_reason_was_seen() -> None:
    reply = read_reply(sse(piece(content="x"), piece("stop"), done=False))
    assert reply.error is None
    assert reply.finished is not None


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_without_a_reason_was_interrupted_and_its_calls_stay_open(done: bool) -> None:
    whole_call = piece(tool_calls=[call(id="c1", name="add", arguments="{}")])
    reply = read_reply(sse(piece(content="x"), whole_call, done=done))
    assert reply.error is not None
    assert reply.error.code is ErrorCode.STREAM_INTERRUPTED
    assert reply.text == "x"
    assert reply.calls == []


def test_an_empty_body_was_interrupted() -> None:
    assert failure_of(b"").code is ErrorCode.STREAM_INTERRUPTED


@pytest.mark.parametrize("reason", ["error", "network_error"])
def test_an_answer_that_the_server_gave_up_is_an_error(reason: str) -> None:
    reply = read_reply(sse(piece(content="x"), piece(reason)))
    assert reply.error is not None
    assert reply.error.code is ErrorCode.SERVER_ERROR
    assert reply.text == "x"


def test_an_overloaded_server_that_stops_early_says_so() -> None:
    body = sse(piece(content="x"), piece("insufficient_system_resource"))
    assert failure_of(body).code is ErrorCode.OVERLOADED


def test_an_error_in_the_stream_comes_after_what_came_before_it() -> None:
    error = {"error": {"message": "no", "code": 502}}
    reply = read_reply(sse(piece(content="x"), error, piece(content="never")))
    assert reply.text == "x"
    assert reply.error is not None
    assert (reply.error.code, reply.error.status) == (ErrorCode.OVERLOADED, 502)


def test_an_event_named_error_is_one() -> None:
    body = b'event: error\ndata: {"message": "The model x does not exist"}\n\n'
    assert failure_of(body).code is ErrorCode.MODEL_NOT_FOUND


def test_an_error_that_fits_no_rule_is_never_retried_by_itself() -> None:
    error = failure_of(sse({"error": "something odd"}))
    assert (error.code, error.basis) == (ErrorCode.SERVER_ERROR, "fallback")


def test_a_frame_that_is_not_json_is_a_protocol_error() -> None:
    assert failure_of(sse(piece(content="x"), "{oops")).code is ErrorCode.PROTOCOL


def test_a_frame_that_is_json_but_no_object_is_a_protocol_error() -> None:
    assert failure_of(sse("17")).code is ErrorCode.PROTOCOL


def test_comments_and_unknown_frames_are_passed_over() -> None:
    body = b": PROCESSING\n\n" + sse({"object": "ping"}, piece(content="x"), piece("stop"))
    assert read_reply(body).text == "x"


def test_a_field_of_the_wrong_type_costs_that_field_only() -> None:
    odd = {"id": 7, "model": "m", "choices": [{"index": 0, "delta": {"content": "x", "audio": 1}}]}
    reply = read_reply(sse(odd, piece("stop")))
    assert reply.text == "x"


def test_nothing_after_the_end_mark_is_read() -> None:
    decoder, out = ChatDecoder(), list[StreamPart]()
    frames = [
        Frame(line[6:]) for line in sse(piece(content="x"), piece("stop")).splitlines() if line
    ]
    decoder.feed([*frames, Frame(b"{oops")], out)
    assert decoder.finish() == []
    assert isinstance(out[-1], StreamFinished)


def test_a_whole_answer_in_one_frame_is_read_like_a_stream() -> None:
    message = {
        "role": "assistant",
        "content": "x",
        "reasoning": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f"}}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    reply = read_reply(sse({"id": "r", "model": "m", "choices": [choice]}, done=False))
    assert (reply.text, reply.reasoning, reply.calls) == ("x", "hm", [("f", {})])


def test_reasoning_details_are_joined_and_kept_with_the_reasoning() -> None:
    def detail(**fields: Any) -> list[dict[str, Any]]:
        return [{"index": 0, "type": "reasoning.text", **fields}]

    reply = read_reply(
        sse(
            piece(reasoning="a", reasoning_details=detail(text="a")),
            piece(reasoning="b", reasoning_details=detail(text="b")),
            piece(reasoning=None, reasoning_details=detail(signature="seal")),
            piece("stop", content="x"),
        )
    )
    closed = reply.parts["reasoning-0"].closed
    assert closed is not None
    assert closed.native == {
        "field": "reasoning",
        "reasoning_details": detail(text="ab", signature="seal"),
    }


def test_reasoning_that_comes_in_details_alone_is_read_from_them() -> None:
    details = [{"type": "reasoning.text", "text": "hm", "index": 0}]
    assert read_reply(sse(piece(reasoning_details=details), piece("stop"))).reasoning == "hm"


def test_sealed_details_without_reasoning_are_carried_by_themselves() -> None:
    sealed = {"type": "reasoning.encrypted", "data": "…", "index": 0}
    reply = read_reply(sse(piece(content="x", reasoning_details=[sealed]), piece("stop")))
    assert reply.text == "x"
    assert reply.payload("reasoning_details") == [sealed]


def test_what_a_server_wants_back_with_a_call_is_kept_with_it() -> None:
    signature = {"google": {"thought_signature": "seal"}}
    signed = call(id="c1", name="f", arguments="{}", extra_content=signature)
    closed = read_reply(sse(piece("tool_calls", tool_calls=[signed]))).parts["call-0"].closed
    assert closed is not None
    assert closed.native == {"extra_content": signature}


def test_sources_logprobs_server_tools_and_sound_are_kept() -> None:
    choice = {"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [{"token": "x"}]}}
    reply = read_reply(
        sse(
            {"id": "r", "model": "m", "choices": [choice], "citations": ["https://example.org"]},
            piece(executed_tools=[{"index": 0, "type": "search"}]),
            piece(executed_tools=[{"index": 0, "type": "search", "output": "found"}]),
            piece(audio={"id": "a1", "data": "AA", "transcript": "o"}),
            piece("stop", audio={"data": "BB", "transcript": "k"}),
        )
    )
    assert reply.finished is not None
    assert reply.finished.native == {
        "citations": ["https://example.org"],
        "logprobs": {"content": [{"token": "x"}]},
    }
    assert reply.payload("executed_tools") == [{"index": 0, "type": "search", "output": "found"}]
    assert reply.payload("audio") == {"id": "a1", "data": "AABB", "transcript": "ok"}


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 8},
            Usage(input=9, output=4, cache_read=8),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "reasoning_tokens": 3},
            Usage(input=9, output=4, reasoning=3),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 16, "reasoning_tokens": 3},
            Usage(input=9, output=7, reasoning=3),
        ),
        ({"prompt_tokens": None, "completion_tokens": "many"}, Usage()),
    ],
)
def test_usage_is_inclusive_whatever_its_shape(reported: Any, usage: Usage) -> None:
    reply = read_reply(sse(piece("stop", content="x", usage=reported)))
    assert reply.finished is not None
    assert reply.finished.usage == usage


def test_usage_beside_the_usual_places_is_found() -> None:
    reported = {"prompt_tokens": 9, "completion_tokens": 4}
    in_choice = {**piece("stop")["choices"][0], "usage": reported}
    elsewhere = [{"choices": [], "x_groq": {"usage": reported}}, {"choices": [in_choice]}]
    for place in elsewhere:
        reply = read_reply(sse(piece(content="x"), piece("stop"), place))
        assert reply.finished is not None
        assert reply.finished.usage == Usage(input=9, output=4)


def test_the_cost_is_the_providers_and_never_guessed() -> None:
    def cost(dialect: Any, **usage: Any) -> Decimal | None:
        usage |= {"prompt_tokens": 1, "completion_tokens": 1}
        finished = read_reply(sse(piece("stop", usage=usage)), dialect=dialect).finished
        assert finished is not None
        return finished.cost

    own_key = {"is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}
    assert cost(OPENROUTER, cost=0.25) == Decimal("0.25")
    assert cost(OPENROUTER, cost=0.25, **own_key) == Decimal("0.75")
    assert cost(OPENROUTER, cost=0.25, is_byok=True) is None
    assert cost(OPENROUTER, cost={"currency": "USD", "total_cost": 0.25}) == Decimal("0.25")
    assert cost(XAI, cost_in_usd_ticks=10_000_000_000) == Decimal(1)
    assert cost(XAI) is None


PIECES = st.sampled_from(
    [
        piece(content="é"),
        piece(content=""),
        piece(reasoning="hm"),
        piece(reasoning_content="so", content="both"),
        piece(refusal="no"),
        piece(tool_calls=[call(id="c1", name="f", arguments="{}")]),
        piece(tool_calls=[call(1, id="c2", name="g", arguments='{"a"')]),
        piece(tool_calls=[call(None, arguments="1")]),
        piece("stop"),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
        {"error": {"message": "no"}},
    ]
)


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 2_000), max_size=6), st.booleans())
def test_any_split_of_any_stream_gives_the_same_parts(
    pieces: list[object], places: list[int], done: bool
) -> None:
    body = sse(*pieces, done=done)
    cuts = sorted(place for place in places if place < len(body))
    whole, split = read_reply(body), read_reply(body, sizes=cuts)
    assert split.stream == whole.stream
    assert (split.error and split.error.code) == (whole.error and whole.error.code)
    assert (whole.error is None) == (whole.finished is not None)


def test_sources_beside_plain_text_are_not_lost() -> None:
    found = [{"url": "https://example.org"}]
    beside = {**piece(content="b"), "search_results": found}
    reply = read_reply(sse(piece(content="a"), beside, piece("stop")))
    assert reply.text == "ab"
    assert reply.finished is not None
    assert reply.finished.native == {"search_results": found}
