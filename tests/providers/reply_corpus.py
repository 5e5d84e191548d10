"""Replies of every protocol as frames: own small ones that hold every feature, and recordings."""

import json
from functools import cache
from typing import NamedTuple

from haptera.model.json_types import Json, JsonObject
from haptera.providers.transport.frames import new_frame_parser
from haptera.providers.wire.protocol import Frame
from haptera.testing.decode_reply import PROTOCOLS
from tests.fixtures_wire import wire_root

FAMILIES = {
    "Anthropic Messages": ("anthropic-messages",),
    "Responses": tuple(name for name in PROTOCOLS if name.endswith("-responses")),
    "Chat Completions": tuple(name for name in PROTOCOLS if name.endswith("-chat")),
    "Gemini": ("gemini-generatecontent", "vertex-generatecontent"),
    "Ollama": ("ollama-native",),
}
"""The protocols, each with the kinds of recordings that speak it."""

_OK = 200
_LARGEST = 20_000
"""Longer recordings are left out: what they hold, shorter ones hold too."""


class Reply(NamedTuple):
    """One reply: what it says it is, and its frames, as JSON where they are JSON."""

    api: str
    status: int
    frames: tuple[tuple[str, Json | bytes], ...]
    is_whole: bool = False
    """Whether it is one JSON body and no stream."""


def _stream(api: str, *frames: JsonObject) -> Reply:
    named = tuple((str(frame.get("type") or "message"), frame) for frame in frames)
    return Reply(api, _OK, named)


def _whole(api: str, body: JsonObject, status: int = _OK) -> Reply:
    return Reply(api, status, (("message", body),), is_whole=True)


_BLOCKS: list[JsonObject] = [
    {"type": "thinking", "thinking": "Hm", "signature": "c2VhbA=="},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
    {"type": "text", "text": "Hi", "citations": [{"type": "char_location", "cited_text": "x"}]},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]},
    {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": [1, 2], "b": "c"}},
    {"type": "compaction", "content": "so far", "encrypted_content": "e"},
]
_COUNTS: JsonObject = {
    "input_tokens": 3,
    "output_tokens": 2,
    "cache_creation_input_tokens": 2,
    "cache_creation": {"ephemeral_1h_input_tokens": 1},
    "output_tokens_details": {"thinking_tokens": 1},
    "server_tool_use": {"web_search_requests": 1},
    "iterations": [],
}
_MESSAGE: JsonObject = {"id": "msg_1", "model": "c", "role": "assistant", "usage": _COUNTS}
_DELTAS: list[tuple[JsonObject, JsonObject]] = [
    ({"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Hm"}),
    ({"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "s"}),
    ({"type": "text", "text": ""}, {"type": "text_delta", "text": "Hé 😀"}),
    ({"type": "text", "text": ""}, {"type": "citations_delta", "citation": {"cited_text": "x"}}),
    (
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"a": 1}'},
    ),
    (
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query": "q"}'},
    ),
    (
        {"type": "compaction", "content": None},
        {"type": "compaction_delta", "content": "so far", "encrypted_content": "e"},
    ),
]


def _anthropic() -> list[Reply]:
    api = "anthropic-messages"
    streamed: list[JsonObject] = [{"type": "message_start", "message": _MESSAGE | {"content": []}}]
    for index, (block, delta) in enumerate(_DELTAS):
        streamed += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    tail: JsonObject = {"stop_reason": "tool_use", "stop_sequence": None, "container": {"id": "k"}}
    ends: list[JsonObject] = [
        {"type": "ping"},
        {"type": "message_delta", "delta": tail, "usage": _COUNTS, "context_management": {}},
        {"type": "message_stop"},
    ]
    error: JsonObject = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}
    return [
        _stream(api, *streamed, *ends),
        _stream(api, *streamed[:7], error),
        _whole(api, _MESSAGE | {"type": "message", "content": _BLOCKS, "stop_reason": "end_turn"}),
        _whole(api, error | {"request_id": "req_1"}, 529),
        _whole(api, {"error": {"type": "x", "details": {"error_code": "spend_limit"}}}, 429),
    ]


_OUTPUT: list[JsonObject] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm"}],
        "content": [{"type": "reasoning_text", "text": "raw"}],
        "encrypted_content": "seal",
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "phase": "final",
        "content": [
            {"type": "output_text", "text": "Hi", "annotations": [{"type": "url_citation"}]},
            {"type": "refusal", "refusal": "No"},
        ],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "add",
        "arguments": '{"a": 1}',
        "namespace": "n",
    },
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "sh", "input": "ls"},
]
_RESPONSE: JsonObject = {
    "id": "resp_1",
    "object": "response",
    "model": "m",
    "status": "completed",
    "store": True,
    "background": False,
    "error": None,
    "incomplete_details": {"reason": "max_output_tokens"},
    "usage": {
        "input_tokens": 3,
        "output_tokens": 2,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 1},
        "cost": 0.5,
        "is_byok": True,
        "cost_details": {"upstream_inference_cost": 0.25},
    },
}


def _responses() -> list[Reply]:
    api = "openai-responses"
    places = [{"output_index": index, "item_id": item["id"]} for index, item in enumerate(_OUTPUT)]
    heads = [
        item | {"content": [], "summary": [], "arguments": "", "input": ""} for item in _OUTPUT
    ]
    growing: list[list[tuple[str, JsonObject]]] = [
        [
            ("reasoning_summary_text.delta", {"summary_index": 0, "delta": "Hm"}),
            ("reasoning_text.delta", {"content_index": 0, "delta": "raw"}),
        ],
        [],
        [
            ("output_text.delta", {"content_index": 0, "delta": "H"}),
            ("output_text.done", {"content_index": 0, "text": "Hi"}),
            ("refusal.delta", {"content_index": 1, "delta": "No"}),
        ],
        [
            ("function_call_arguments.delta", {"delta": '{"a": 1}'}),
            ("function_call_arguments.done", {"arguments": '{"a": 1}'}),
        ],
        [("custom_tool_call_input.delta", {"delta": "ls"})],
    ]
    events: list[JsonObject] = [{"type": "response.created", "response": _RESPONSE}]
    for place, head, deltas, item in zip(places, heads, growing, _OUTPUT, strict=True):
        events.append({"type": "response.output_item.added", "item": head} | place)
        events += [{"type": f"response.{name}"} | place | fields for name, fields in deltas]
        events.append({"type": "response.output_item.done", "item": item} | place)
    events = [event | {"sequence_number": number} for number, event in enumerate(events)]
    end: JsonObject = {"type": "response.completed", "response": _RESPONSE | {"output": _OUTPUT}}
    failure: JsonObject = {"code": "server_error", "message": "Failed", "type": "server_error"}
    failed = {"type": "response.failed", "response": _RESPONSE | {"error": failure}}
    return [
        _stream(api, *events, end),
        _stream(api, events[0], end),
        _stream(api, *events[:5], failed),
        _stream(api, events[0], {"type": "error", "error": failure}),
        _whole(api, _RESPONSE | {"output": _OUTPUT}),
        _whole("openrouter-responses", {"error": {"code": 402, "message": "No"}}, 402),
    ]


def _chat_piece(finish: str | None = None, **delta: Json) -> JsonObject:
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def _chat() -> list[Reply]:
    usage: JsonObject = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
        "cost": 0.5,
        "cost_in_usd_ticks": 5,
    }
    call: JsonObject = {"index": 0, "id": "call_1", "function": {"name": "add", "arguments": ""}}
    detail: JsonObject = {"type": "reasoning.text", "text": "Hm", "index": 0, "signature": None}
    pieces = [
        _chat_piece(role="assistant", content=""),
        _chat_piece(reasoning_content="Hm"),
        _chat_piece(reasoning="Hm", reasoning_details=[detail]),
        _chat_piece(reasoning_details=[detail | {"text": ".", "summary": "s"}]),
        _chat_piece(content="H"),
        _chat_piece(content="i", annotations=[{"type": "url_citation"}]),
        _chat_piece(content=[{"type": "thinking", "thinking": [{"text": "Hm"}]}, {"text": "x"}]),
        _chat_piece(refusal="No", audio={"data": "aa", "transcript": "t", "id": "a"}),
        _chat_piece(executed_tools=[{"index": 0, "type": "search", "output": "o"}]),
        _chat_piece(tool_calls=[call | {"extra_content": {"google": {"thought_signature": "s"}}}]),
        _chat_piece(tool_calls=[{"index": 0, "function": {"arguments": '{"a": 1}'}}]),
        _chat_piece(tool_calls=[{"index": 1, "function": {"name": "b", "arguments": {"x": 1}}}]),
        _chat_piece(function_call={"name": "old", "arguments": "{}"}),
        _chat_piece("tool_calls") | {"citations": ["u"], "search_results": [{"url": "u"}]},
        {"id": "c1", "choices": [], "usage": usage, "x_groq": {"usage": usage}},
    ]
    pieces[4]["choices"][0]["logprobs"] = {"content": [{"token": "H", "logprob": -0.5}]}
    error: JsonObject = {
        "error": {
            "message": "Slow",
            "type": "rate_limit",
            "code": 429,
            "metadata": {"raw": "busy", "provider_name": "p"},
            "innererror": {"code": "content_filter"},
        }
    }
    message: JsonObject = {"role": "assistant", "content": "Hi", "tool_calls": [call]}
    whole: JsonObject = {"id": "c", "model": "m", "usage": usage}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    replies = [
        _stream("openai-chat", *pieces),
        _stream("openrouter-chat", *pieces[:9], pieces[13], pieces[14]),
        _stream("xai-chat", *pieces[:5], error),
        _whole("compat-chat", whole),
        _whole("groq-chat", error, 429),
        _whole("mistral-chat", {"object": "error", "message": {"detail": []}, "code": 1}, 422),
    ]
    done = [reply._replace(frames=(*reply.frames, ("message", b"[DONE]"))) for reply in replies[:2]]
    return done + replies[2:]


def _gemini() -> list[Reply]:
    def frame(*parts: JsonObject, finish: str | None = None, **more: Json) -> JsonObject:
        candidate: JsonObject = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
        return {"candidates": [candidate | {"finishReason": finish}], "responseId": "r1"} | more

    usage: JsonObject = {
        "promptTokenCount": 3,
        "candidatesTokenCount": 2,
        "thoughtsTokenCount": 1,
        "cachedContentTokenCount": 1,
        "totalTokenCount": 6,
    }
    piece: JsonObject = {"jsonPath": "$.files[0].name", "stringValue": "a", "willContinue": True}
    number: JsonObject = {"jsonPath": "$.count", "numberValue": 5}
    parts: list[JsonObject] = [
        {"text": "Hm", "thought": True, "thoughtSignature": "s"},
        {"text": "Hi"},
        {"text": "", "thoughtSignature": "s"},
        {"inlineData": {"mimeType": "image/png", "data": "aa"}},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"functionCall": {"name": "add", "args": {"a": [1]}, "id": "f1"}, "thoughtSignature": "s"},
        {"functionCall": {"name": "b", "willContinue": True}},
        {"functionCall": {"partialArgs": [piece], "willContinue": True}},
        {"functionCall": {"partialArgs": [number]}},
    ]
    end = frame(finish="STOP", usageMetadata=usage, modelVersion="g")
    end["candidates"][0]["groundingMetadata"] = {"webSearchQueries": ["q"]}
    end["candidates"][0]["citationMetadata"] = {"citationSources": []}
    info: JsonObject = {"@type": "google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    quota: JsonObject = {"violations": [{"quotaId": "PerDay"}], "retryDelay": "5s"}
    error: JsonObject = {"code": 429, "message": "No", "status": "RESOURCE_EXHAUSTED"}
    api = "gemini-generatecontent"
    return [
        _stream(api, *(frame(part) for part in parts), end),
        _stream("vertex-generatecontent", frame(*parts, finish="STOP", usageMetadata=usage)),
        _stream(api, {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage}),
        _stream(api, frame(parts[1]), {"error": error | {"details": [quota]}}),
        _whole(api, frame(*parts, finish="MAX_TOKENS", usageMetadata=usage)),
        _whole(api, {"error": error | {"details": [info, quota]}}, 429),
    ]


def _ollama() -> list[Reply]:
    def line(**message: Json) -> JsonObject:
        return {"model": "m", "message": {"role": "assistant"} | message, "done": False}

    call: JsonObject = {"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}
    end: JsonObject = {"model": "m", "done": True, "done_reason": "stop", "eval_count": 2}
    lines = [
        line(thinking="Hm"),
        line(content="Hi"),
        line(tool_calls=[call, {"function": {"name": "b", "arguments": "{}"}}]),
        end | {"prompt_eval_count": 3},
    ]
    api = "ollama-native"
    return [
        _stream(api, *lines),
        _stream(api, {"model": "m", "response": "Hi", "thinking": "Hm"}, end),
        _stream(api, lines[1], {"error": "it failed", "StatusCode": 500}),
        _whole(api, lines[1]["message"] and line(content="Hi") | end),
        _whole(api, {"error": "model 'x' not found"}, 404),
    ]


OWN = {
    "Anthropic Messages": _anthropic,
    "Responses": _responses,
    "Chat Completions": _chat,
    "Gemini": _gemini,
    "Ollama": _ollama,
}


@cache
def corpus(family: str) -> tuple[Reply, ...]:
    """Return the replies of a protocol: ours, and the recorded ones where they are at hand."""
    return (*OWN[family](), *(reply for api in FAMILIES[family] for reply in _recorded(api)))


def _recorded(api: str) -> list[Reply]:
    found = []
    for path in sorted(wire_root().glob(f"open/{api}/*/meta.json")):
        meta = json.loads(path.read_text(encoding="utf-8"))
        body = (path.parent / meta["body_file"]).read_bytes()
        if len(body) <= _LARGEST:
            kind = (meta.get("headers") or {}).get("content-type", "")
            found.append(_read(api, meta["status"], kind, body))
    return found


def _read(api: str, status: int, kind: str, body: bytes) -> Reply:
    is_whole = status != _OK or kind.startswith("application/json")
    frames: list[Frame] = []
    parser = new_frame_parser(PROTOCOLS[api].framing, "application/json" if is_whole else kind)
    parser.feed(body, frames)
    parser.flush(frames)
    return Reply(
        api, status, tuple((frame.event, _value(frame.data)) for frame in frames), is_whole
    )


def _value(data: bytes) -> Json | bytes:
    try:
        return json.loads(data)
    except ValueError:
        return data
