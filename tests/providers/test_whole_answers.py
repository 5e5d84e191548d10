"""Servers that answer with one JSON body although a stream was asked for."""

import json

import pytest

from haptera.model.errors import ErrorCode
from haptera.model.json_types import JsonObject
from haptera.testing import decode_reply
from tests.providers.exchanges import KEY, ask, client_for
from tests.providers.faulty_server import faulty_server, replies

JSON = {"Content-Type": "application/json; charset=utf-8"}
CHAT: JsonObject = {
    "id": "c",
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}
RESPONSES: JsonObject = {
    "id": "r",
    "object": "response",
    "model": "m",
    "status": "completed",
    "error": None,
    "output": [
        {
            "type": "message",
            "id": "i",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
GEMINI: JsonObject = {
    "candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4},
}
ERRORS: list[tuple[str, JsonObject, str]] = [
    ("compat-chat", {"error": {"message": "x", "code": "rate_limit_exceeded"}}, "RATE_LIMITED"),
    ("openai-responses", {"error": {"code": "insufficient_quota", "message": "x"}}, "QUOTA"),
    ("gemini-generatecontent", {"error": {"status": "UNAVAILABLE", "code": 503}}, "OVERLOADED"),
    ("anthropic-messages", {"type": "error", "error": {"type": "overloaded_error"}}, "OVERLOADED"),
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("chunk_size", [None, 1])
@pytest.mark.parametrize(
    ("api", "answer"),
    [("compat-chat", CHAT), ("openai-responses", RESPONSES), ("gemini-generatecontent", GEMINI)],
)
def test_a_whole_answer_is_read(
    *, api: str, answer: JsonObject, chunk_size: int | None, indent: int | None
) -> None:
    body = json.dumps(answer, indent=indent).encode()
    reply = decode_reply(api, body, headers=JSON, chunk_size=chunk_size)
    assert (reply.text, reply.outcome) == ("Hi", "complete")
    assert (reply.usage.input, reply.usage.output) == (3, 1)


@pytest.mark.parametrize(("api", "answer", "code"), ERRORS)
def test_a_whole_error_gets_its_code(api: str, answer: JsonObject, code: str) -> None:
    reply = decode_reply(api, json.dumps(answer).encode(), headers=JSON)
    assert reply.error is not None
    assert reply.error.code == code


def test_json_that_is_neither_is_an_error() -> None:
    for body in (b"{}", b'{"detail": "Not Found"}', b'["?"]', b'{"cut'):
        reply = decode_reply("compat-chat", body, headers=JSON)
        assert (reply.outcome, reply.text) == ("error_in_stream", "")


def test_a_stream_under_the_name_of_json_is_read() -> None:
    body = b"data: " + json.dumps(CHAT).encode() + b"\n\ndata: [DONE]\n\n"
    reply = decode_reply("compat-chat", body, headers=JSON)
    assert (reply.text, reply.outcome) == ("Hi", "complete")


async def test_an_error_inside_a_stream_does_not_repeat_the_key() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"bad key %s"}}'
    answer = replies(b"event: error\ndata: " + body % KEY.encode() + b"\n\n")
    async with faulty_server(answer) as server:
        client = client_for(server.url)
        _, error = await ask(client)
        await client.close()
    assert error is not None
    assert error.code is ErrorCode.OVERLOADED
    assert KEY not in f"{error}{error.__cause__}"
