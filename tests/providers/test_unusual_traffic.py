"""Small cases of what real servers send beside what their documentation says."""

import json
from typing import Any

import pytest

from holdfast.providers.reply_reader import ReplyReader
from holdfast.testing.decode_reply import PROTOCOLS, DecodedReply, decode_reply
from holdfast.vocabulary.errors import ErrorCode
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.parts import TextPart
from holdfast.vocabulary.stream_parts import StreamPart
from holdfast.vocabulary.usage import Usage


def events(*frames: JsonObject) -> bytes:
    """Frame events as a server does."""
    return b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)


def responses(*frames: JsonObject) -> DecodedReply:
    """Decode a stream of OpenAI Responses."""
    return decode_reply("compat-responses", events(*frames))


def response(name: str, **fields: Any) -> JsonObject:
    """Make an event of OpenAI Responses."""
    return {"type": f"response.{name}", **fields}


CREATED = response("created", response={"id": "r", "model": "m"})
COMPLETED = response("completed", response={"id": "r", "status": "completed", "output": []})


@pytest.mark.parametrize("index", [0, 1, 7])
def test_responses_text_is_not_doubled_when_its_index_is_not_its_place_in_the_item(
    index: int,
) -> None:
    item = {"type": "message", "id": "i", "content": [{"type": "output_text", "text": "Hi"}]}
    delta = response("output_text.delta", delta="Hi", output_index=0, content_index=index)
    done = response("output_item.done", item=item, output_index=0)
    assert responses(CREATED, delta, done, COMPLETED).text == "Hi"
    final = response("completed", response={"status": "completed", "output": [item]})
    assert responses(CREATED, delta, final).text == "Hi"


def test_responses_texts_of_one_message_keep_their_order_at_any_indexes() -> None:
    content = [{"type": "output_text", "text": text} for text in ("One. ", "Two.")]
    item = {"type": "message", "id": "i", "content": content}
    deltas = [
        response("output_text.delta", delta=text, output_index=0, content_index=index)
        for index, text in ((1, "One. "), (2, "Tw"))
    ]
    done = response("output_item.done", item=item, output_index=0)
    assert responses(CREATED, *deltas, done, COMPLETED).text == "One. Two."


def test_responses_text_that_only_the_item_has_comes_beside_a_text_that_was_streamed() -> None:
    content = [{"type": "output_text", "text": text} for text in ("One. ", "Two.")]
    item = {"type": "message", "id": "i", "content": content}
    delta = response("output_text.delta", delta="Two.", output_index=0, content_index=1)
    done = response("output_item.done", item=item, output_index=0)
    reply = responses(CREATED, delta, done, COMPLETED)
    texts = [part.text for part in reply.parts if isinstance(part, TextPart)]
    assert sorted(texts) == ["One. ", "Two."]


@pytest.mark.parametrize(
    ("name", "index", "field"),
    [
        ("reasoning_text", "content_index", "content"),
        ("reasoning_summary_text", "summary_index", "summary"),
    ],
)
def test_responses_reasoning_is_not_doubled_when_its_index_is_not_its_place_in_the_item(
    name: str, index: str, field: str
) -> None:
    item = {"type": "reasoning", "id": "i", field: [{"type": name, "text": "Hmm"}]}
    delta: JsonObject = response(f"{name}.delta", delta="Hmm", output_index=0)
    done = response("output_item.done", item=item, output_index=0)
    assert responses(CREATED, {**delta, index: 1}, done, COMPLETED).reasoning == "Hmm"


def chat(*frames: JsonObject) -> DecodedReply:
    """Decode a stream of Chat Completions."""
    return decode_reply("compat-chat", events(*frames) + b"data: [DONE]\n\n")


def chat_frame(reason: str | None = None, **delta: Any) -> JsonObject:
    """Make a frame of Chat Completions."""
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "c", "model": "m", "choices": [choice]}


def call_piece(arguments: str | None, **fields: Any) -> JsonObject:
    """Make a frame with a piece of a tool call."""
    function = {"arguments": arguments, **fields}
    return chat_frame(tool_calls=[{"index": 0, "id": "call_1", "function": function}])


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (["null"], {}),
        (["n", "ul", "l"], {}),
        ([" null "], {}),
        (["nul"], None),
        (["nullable"], None),
        (["", '{"a":', "null}"], {"a": None}),
    ],
)
def test_chat_arguments_of_null_are_no_arguments(
    pieces: list[str], arguments: JsonObject | None
) -> None:
    frames = [call_piece(piece) for piece in pieces]
    reply = chat(call_piece(None, name="clock"), *frames, chat_frame("tool_calls"))
    (call,) = reply.tool_calls
    assert (call.name, call.arguments if call.invalid is None else None) == ("clock", arguments)


def refusal(api: str, status: int, body: JsonObject) -> tuple[ErrorCode, bool]:
    """Return the code of a reply that is not a success, and whether it is asked again."""
    error = decode_reply(api, json.dumps(body).encode(), status=status).error
    assert error is not None
    return error.code, error.retryable


def test_ollama_says_that_a_prompt_is_too_long_in_words_of_its_own() -> None:
    body = {"error": "prompt too long; exceeded max context length by 912 tokens"}
    assert refusal("ollama-native", 400, body) == (ErrorCode.CONTEXT_LENGTH, False)


@pytest.mark.parametrize(
    ("api", "status", "body", "code"),
    [
        (
            "xai-chat",
            403,
            {"code": "permission denied", "error": "Content violates usage guidelines."},
            ErrorCode.CONTENT_FILTER,
        ),
        (
            "vertex-generatecontent",
            400,
            {
                "error": {
                    "code": 400,
                    "message": "The prompt contains sensitive words that violate our practices.",
                    "status": "INVALID_ARGUMENT",
                }
            },
            ErrorCode.CONTENT_FILTER,
        ),
        (
            "deepseek-chat",
            400,
            {
                "error": {
                    "message": "The supported API model names are deepseek-chat or others.",
                    "type": "invalid_request_error",
                    "code": "invalid_request_error",
                }
            },
            ErrorCode.MODEL_NOT_FOUND,
        ),
        (
            "openrouter-chat",
            404,
            {"error": {"message": "No endpoints found that support tool use.", "code": 404}},
            ErrorCode.BAD_REQUEST,
        ),
        (
            "compat-chat",
            404,
            {"error": {"message": "tools is not supported in this model."}},
            ErrorCode.BAD_REQUEST,
        ),
    ],
)
def test_what_a_request_was_refused_for_is_read_from_words_that_are_known(
    api: str, status: int, body: JsonObject, code: ErrorCode
) -> None:
    assert refusal(api, status, body) == (code, False)


EMPTY_DELTA = {"role": "assistant", "content": ""}


@pytest.mark.parametrize("delta", [{}, EMPTY_DELTA])
def test_a_chat_message_beside_an_empty_delta_is_the_answer(delta: JsonObject) -> None:
    message = {"role": "assistant", "content": "Paris."}
    choice = {"index": 0, "delta": delta, "message": message, "finish_reason": "stop"}
    body = {"id": "c", "model": "sonar", "object": "chat.completion", "choices": [choice]}
    reply = decode_reply(
        "compat-chat", json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    assert (reply.text, reply.outcome) == ("Paris.", "complete")


def test_a_chat_message_that_repeats_what_was_streamed_is_not_said_again() -> None:
    def frame(delta: JsonObject, text: str, reason: str | None = None) -> JsonObject:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "delta": delta, "message": message, "finish_reason": reason}
        return {"id": "c", "model": "sonar", "choices": [choice]}

    first, second = {"content": "Par"}, {"content": "is."}
    frames = (frame(first, "Par"), frame(second, "Paris."), frame(EMPTY_DELTA, "Paris.", "stop"))
    assert chat(*frames).text == "Paris."


def gemini(*frames: JsonObject) -> DecodedReply:
    """Decode a stream of Gemini generateContent."""
    return decode_reply("gemini-generatecontent", events(*frames))


def gemini_frame(text: str, reason: str | None = None, **fields: Any) -> JsonObject:
    """Make a frame of Gemini generateContent."""
    candidate = {"content": {"parts": [{"text": text}]}, "finishReason": reason}
    return {"candidates": [candidate], **fields}


def test_gemini_usage_without_a_prompt_count_counts_the_rest() -> None:
    counted = {"candidatesTokenCount": 7, "thoughtsTokenCount": 2}
    reply = gemini(gemini_frame("Hi", "STOP", usageMetadata=counted))
    assert reply.usage == Usage(output=9, reasoning=2)


def test_gemini_usage_of_a_later_frame_adds_to_what_was_counted_before() -> None:
    first = gemini_frame("Hi", usageMetadata={"promptTokenCount": 5, "totalTokenCount": 5})
    last = gemini_frame("!", "STOP", usageMetadata={"candidatesTokenCount": 7})
    silent = gemini_frame("", usageMetadata={"trafficType": "ON_DEMAND"})
    assert gemini(first, last, silent).usage == Usage(input=5, output=7)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_responses_body_that_is_still_worked_on_is_not_an_answer(status: str) -> None:
    body = {"object": "response", "id": "r", "model": "m", "status": status, "output": []}
    reply = decode_reply(
        "compat-responses", json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    assert reply.outcome == "interrupted"
    assert reply.error is not None
    assert reply.error.code is ErrorCode.STREAM_INTERRUPTED


def test_a_responses_body_in_the_background_can_be_asked_for_later() -> None:
    body = {"object": "response", "id": "r", "status": "queued", "background": True}
    reader, parts = ReplyReader(PROTOCOLS["compat-responses"]), list[StreamPart]()
    reader.take(events(body), parts)
    assert reader.resume() == "/r?stream=true"
