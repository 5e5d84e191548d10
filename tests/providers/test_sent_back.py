"""What a provider wants back with its own answer comes back, as it was."""

import json
from typing import Any

import msgspec
import pytest

from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import Message
from haptera.model.parts import ProviderPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamFinished
from haptera.providers.wire import anthropic_messages, chat_completions, openai_responses
from haptera.providers.wire.chat_completions.dialects import GENERIC
from haptera.providers.wire.openai_responses.dialects import OPENROUTER
from haptera.providers.wire.openai_responses.request import RequestEncoder
from tests.providers.conversations import assistant, call, result, user
from tests.providers.replies import decode


def sse(*payloads: Json) -> bytes:
    return b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in payloads)


def request(*messages: Message) -> ModelRequest:
    return ModelRequest(model="some-model", messages=messages)


def blocks_sent(*messages: Message) -> list[list[JsonObject]]:
    encode = anthropic_messages.PROTOCOL.new_encoder()
    body: Any = msgspec.json.decode(encode(request(*messages)).body)
    return [message["content"] for message in body["messages"]]


def piece(finish: str | None = None, **delta: Json) -> JsonObject:
    return {"id": "r", "model": "m", "choices": [{"delta": delta, "finish_reason": finish}]}


def test_the_signature_of_a_whole_message_is_sent_back() -> None:
    """Gemini's endpoint for OpenAI's clients signs thoughts beside the text, too."""
    signature = {"google": {"thought_signature": "c2VhbA=="}}
    protocol = chat_completions.protocol_for(GENERIC)
    body = sse(piece(content="Hi"), piece("stop", content="", extra_content=signature))
    answer = decode(protocol, body).message("some", "some-model")
    encode = protocol.new_encoder()
    sent: Any = json.loads(encode(request(user("a"), answer, user("b"))).body)
    assert sent["messages"][1] == {"role": "assistant", "content": "Hi", "extra_content": signature}


def test_the_format_of_sealed_reasoning_is_sent_back() -> None:
    """OpenRouter names the provider whose form it is; without it the reasoning is dropped."""
    sealed: JsonObject = {
        "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbA==",
        "format": "anthropic-claude-v1", "signature": "c2ln",
    }  # fmt: skip
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}]}  # fmt: skip
    whole = {"id": "resp_1", "status": "completed", "output": [sealed, said]}
    reply = decode(
        openai_responses.protocol_for(OPENROUTER),
        sse(
            {"type": "response.created", "response": {"id": "resp_1", "model": "m"}},
            {"type": "response.completed", "response": whole},
        ),
    )
    answer = reply.message("openrouter", "some-model")
    encode = RequestEncoder(OPENROUTER)
    body: Any = json.loads(encode(request(user("a"), answer, user("b"))).body)
    assert body["input"][1] == sealed


SEARCH: JsonObject = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}


def _search() -> ProviderPart:
    return ProviderPart(provider="anthropic", model="some-model", payload=SEARCH)


def test_a_server_tool_that_runs_beside_ours_is_sent_back_with_our_result() -> None:
    both = assistant(_search(), call("add", "call_1"))
    sent = blocks_sent(user("a"), both, user(result("add", "call_1", "3")))
    assert [block["type"] for block in sent[1]] == ["server_tool_use", "tool_use"]
    # Its own result is in the next answer, which would be refused without the call.
    found = ProviderPart(
        provider="anthropic",
        model="some-model",
        payload={"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
    )
    later = blocks_sent(
        user("a"), both, user(result("add", "call_1", "3")), assistant(found, "done"), user("b")
    )
    assert later[1] == sent[1]


def test_a_server_tool_that_never_ended_is_left_out_of_what_is_over() -> None:
    assert blocks_sent(user("a"), assistant("hm", _search()), user("b"))[1] == [
        {"type": "text", "text": "hm"}
    ]
    # The answer that the model is to continue is sent as it is.
    assert blocks_sent(user("a"), assistant("hm", _search()))[1][1] == SEARCH


def usage_of(**usage: Json) -> StreamFinished:
    """Decode an answer of Anthropic's with a usage."""
    body = b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        for event in (
            {"type": "message_start", "message": {"id": "m", "model": "m",
                                                  "usage": {"input_tokens": 2_479}}},
            {"type": "content_block_start", "index": 0,
             "content_block": {"type": "text", "text": "hi"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": usage},
            {"type": "message_stop"},
        )
    )  # fmt: skip
    finished = decode(anthropic_messages.PROTOCOL, body).finished
    assert finished is not None
    return finished


@pytest.mark.parametrize(
    ("usage", "context"),
    [
        ({"input_tokens": 100, "output_tokens": 9}, None),
        (
            {"input_tokens": 404_500, "output_tokens": 943,
             "server_tool_use": {"web_search_requests": 10, "web_fetch_requests": 0}},
            0,
        ),
        (
            {"input_tokens": 300, "output_tokens": 30, "iterations": [
                {"type": "message", "input_tokens": 100, "output_tokens": 10},
                {"type": "message", "input_tokens": 150, "cache_read_input_tokens": 50,
                 "output_tokens": 20}]},
            220,
        ),
        (
            {"input_tokens": 5, "output_tokens": 2, "iterations": [
                {"type": "message", "input_tokens": 5, "output_tokens": 2}]},
            None,
        ),
    ],
)  # fmt: skip
def test_rounds_of_a_servers_own_tools_do_not_fill_the_window_twice(
    usage: JsonObject, context: int | None
) -> None:
    finished = usage_of(**usage)
    assert finished.context_tokens == context
    assert finished.usage.input == usage["input_tokens"]
