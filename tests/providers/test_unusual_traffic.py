"""Small cases of what real servers send beside what their documentation says."""

import json
from typing import Any

import pytest

from haptera import Agent, tool
from haptera.formats.tool_texts import CUSTOM_INPUT
from haptera.model.errors import ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.parts import ProviderPart, ReasoningPart, TextPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamPart
from haptera.model.usage import Usage
from haptera.providers.reply_reader import ReplyReader
from haptera.providers.transport.protocol import HttpRequest
from haptera.providers.wire import ollama
from haptera.testing.decode_reply import PROTOCOLS, DecodedReply, decode_reply
from tests.providers.conversations import assistant, result, user


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


def test_the_name_of_the_model_comes_from_a_later_event_if_the_first_has_none() -> None:
    delta = response("output_text.delta", delta="Hi", output_index=0, content_index=0)
    named = response("in_progress", response={"id": "r", "model": "gpt-5"})
    created = response("created", response={"id": "r"})
    assert responses(created, named, delta, COMPLETED).model == "gpt-5"

    unnamed: JsonObject = {**chat_frame(role="assistant", content=""), "model": ""}
    assert chat(unnamed, chat_frame(content="Hi"), chat_frame("stop")).model == "m"

    silent: JsonObject = {"usageMetadata": {"promptTokenCount": 3}}
    said = gemini_frame("Hi", "STOP", modelVersion="gemini-2.5-flash")
    assert gemini(silent, said).model == "gemini-2.5-flash"


def test_the_name_of_the_model_may_come_after_the_first_words() -> None:
    delta = response("output_text.delta", delta="Hi", output_index=0, content_index=0)
    created = response("created", response={"id": "r"})
    completed = response("completed", response={"id": "r", "model": "gpt-5", "status": "completed"})
    reply = responses(created, delta, completed)
    assert (reply.text, reply.model) == ("Hi", "gpt-5")

    unnamed: JsonObject = {**chat_frame(content="Hi"), "model": None}
    assert chat(unnamed, chat_frame("stop")).model == "m"
    ended: JsonObject = {**chat_frame("stop"), "model": None}
    usage: JsonObject = {"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": 1}}
    assert chat(unnamed, ended, usage).model == "m"

    said = gemini_frame("Hi", "", modelVersion="")
    assert gemini(said, gemini_frame("!", "STOP", modelVersion="gemini-2.5")).model == "gemini-2.5"


def test_an_answer_whose_model_is_never_named_is_opened_all_the_same() -> None:
    unnamed: JsonObject = {**chat_frame(content="Hi"), "model": None}
    reply = chat(unnamed, {**chat_frame("stop"), "model": None})
    assert (reply.text, reply.model, reply.response_id) == ("Hi", "", "c")
    created = response("created", response={"id": "r"})
    nameless = responses(created, COMPLETED)
    assert (nameless.model, nameless.response_id, nameless.outcome) == ("", "r", "complete")
    blocked: JsonObject = {"promptFeedback": {"blockReason": "SAFETY"}, "responseId": "g"}
    assert (gemini(blocked).outcome, gemini(blocked).response_id) == ("complete", "g")


def test_a_responses_item_that_is_not_modelled_keeps_its_place_without_a_done_event() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
    content = [{"type": "output_text", "text": "Hi"}]
    message = {"type": "message", "id": "msg_1", "content": content}
    frames = (
        response("output_item.added", item=search, output_index=0),
        response("web_search_call.completed", item_id="ws_1", output_index=0),
        response("output_item.added", item={**message, "content": []}, output_index=1),
        response("output_text.delta", delta="Hi", output_index=1, content_index=0),
    )
    output = [{**search, "status": "completed"}, message]
    final = response("completed", response={"status": "completed", "output": output})
    reply = responses(CREATED, *frames, final)
    assert [type(part) for part in reply.parts] == [ProviderPart, TextPart]
    carried = reply.parts[0]
    assert isinstance(carried, ProviderPart)
    assert carried.payload == {**search, "status": "completed"}


def test_responses_items_that_only_the_final_output_has_come_in_its_order() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    message = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hi"}]}
    final = response("completed", response={"status": "completed", "output": [search, message]})
    reply = responses(CREATED, final)
    assert [type(part) for part in reply.parts] == [ProviderPart, TextPart]


def custom_piece(text: str, name: str | None = None) -> JsonObject:
    """Make a frame with a piece of a call whose input is free text."""
    custom = {"name": name, "input": text}
    return chat_frame(tool_calls=[{"index": 0, "id": "call_1", "type": "custom", "custom": custom}])


def test_a_custom_chat_call_has_its_name_and_goes_back_as_what_it_was() -> None:
    pieces = (custom_piece("", "shell"), custom_piece('echo "'), custom_piece('hi"'))
    reply = chat(*pieces, chat_frame("tool_calls"))
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("shell", {CUSTOM_INPUT: 'echo "hi"'})
    answer = assistant(call, provider="p", model="m")
    request = ModelRequest(
        model="m", messages=(user("Go."), answer, user(result("shell", "call_1", "hi")))
    )
    sent = json.loads(PROTOCOLS["openai-chat"].new_encoder()(request).body)["messages"][1]
    custom = {"name": "shell", "input": 'echo "hi"'}
    assert sent["tool_calls"] == [{"id": "call_1", "type": "custom", "custom": custom}]


class Replies:
    """A transport that answers each request with the next reply."""

    def __init__(self, *bodies: bytes) -> None:
        self.requests: list[HttpRequest] = []
        self._bodies = list(bodies)

    async def send(self, request: HttpRequest) -> "ReadyReply":
        self.requests.append(request)
        return ReadyReply(self._bodies.pop(0))

    async def close(self) -> None:
        pass


class ReadyReply:
    """A reply that has arrived."""

    status = 200

    def __init__(self, body: bytes) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._reads = [body]

    async def read(self) -> bytes:
        return self._reads.pop() if self._reads else b""

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


@tool
def clock() -> str:
    """Tell the time."""
    return "noon"


async def test_an_empty_end_turn_after_a_tool_result_ends_the_query() -> None:
    start = {"type": "message_start", "message": {"id": "m", "model": "claude", "usage": {}}}
    block = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}}
    call = (
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
    )

    def end(reason: str) -> tuple[JsonObject, JsonObject]:
        return (
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}},
            {"type": "message_stop"},
        )

    transport = Replies(events(start, *call, *end("tool_use")), events(start, *end("end_turn")))
    agent = Agent(
        "anthropic/claude-sonnet-5",
        api_key="sk-x",
        tools=[clock],
        transport=lambda: transport,
        environment={},
    )
    async with agent:
        result = await agent.run("What time is it?")
    assert (result.stop_reason, result.finish_reason, result.text) == ("complete", "end_turn", "")
    assert len(transport.requests) == 2


def test_an_answer_of_empty_reasoning_is_left_out_for_ollama() -> None:
    messages = (user("Hi."), assistant(ReasoningPart(text="")), user("Well?"))
    body = json.loads(ollama.RequestEncoder()(ModelRequest(model="m", messages=messages)).body)
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
