"""Documents of libraries in the form in which these write them, with one of each thing."""

import json
from typing import Any

_TIME = "2026-05-01T10:00:00Z"
PICTURE = "iVBORw0KGgo="
PYDANTIC_AI: list[Any] = [
    {
        "kind": "request",
        "instructions": "Be brief.",
        "timestamp": _TIME,
        "run_id": "r",
        "parts": [
            {"part_kind": "system-prompt", "content": "You know cities.", "timestamp": _TIME},
            {
                "part_kind": "user-prompt",
                "timestamp": _TIME,
                "content": [
                    "How large is Oslo?",
                    {"kind": "binary", "media_type": "image/png", "data": "-_8="},
                    {
                        "kind": "image-url",
                        "url": "https://x.example/a.png",
                        "force_download": False,
                    },
                    {"kind": "cache-point", "ttl": "5m"},
                ],
            },
        ],
    },
    {
        "kind": "response",
        "model_name": "claude-sonnet-5",
        "provider_name": "anthropic",
        "timestamp": _TIME,
        "finish_reason": "tool_call",
        "usage": {
            "input_tokens": 50,
            "cache_read_tokens": 20,
            "cache_write_tokens": 10,
            "output_tokens": 9,
            "details": {"reasoning_tokens": 4},
            "cost": "0.25",
        },
        "parts": [
            {"part_kind": "thinking", "content": "Look it up.", "signature": "sig"},
            {"part_kind": "text", "content": "I look it up.", "citations": [{"url": "x"}]},
            {
                "part_kind": "tool-call",
                "tool_name": "size",
                "args": '{"city":"Oslo"}',
                "tool_call_id": "c1",
            },
            {
                "part_kind": "tool-call",
                "tool_name": "size",
                "args": {"city": 1},
                "tool_call_id": "c2",
            },
            {"part_kind": "builtin-tool-call", "tool_name": "web_search", "tool_call_id": "b"},
        ],
    },
    {
        "kind": "request",
        "instructions": "Be brief.",
        "timestamp": _TIME,
        "parts": [
            {
                "part_kind": "tool-return",
                "tool_name": "size",
                "content": {"km2": 454},
                "tool_call_id": "c1",
                "metadata": {"from": "cache"},
                "outcome": "success",
            },
            {
                "part_kind": "retry-prompt",
                "tool_name": "size",
                "content": [{"loc": ["city"], "msg": "not a text"}],
                "tool_call_id": "c2",
            },
        ],
    },
    {
        "kind": "response",
        "model_name": "claude-sonnet-5",
        "provider_name": "anthropic",
        "timestamp": _TIME,
        "usage": {},
        "parts": [{"part_kind": "text", "content": "454 km²."}],
    },
]
LANGCHAIN: list[Any] = [
    {"type": "system", "data": {"content": "You know cities.", "type": "system"}},
    {
        "type": "human",
        "data": {
            "content": [
                {"type": "text", "text": "How large is Oslo?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
                {
                    "type": "image",
                    "source_type": "base64",
                    "mime_type": "image/png",
                    "data": PICTURE,
                },
            ],
            "type": "human",
        },
    },
    {
        "type": "ai",
        "data": {
            "content": [
                {"type": "reasoning", "reasoning": "Look it up."},
                {"type": "text", "text": "I look it up."},
                {"type": "tool_use", "id": "c1", "name": "size", "input": {"city": "Oslo"}},
                {"type": "non_standard", "value": {"x": 1}},
            ],
            "type": "ai",
            "tool_calls": [{"name": "size", "args": {"city": "Oslo"}, "id": "c1"}],
            "invalid_tool_calls": [{"name": "size", "args": "{", "id": "c2", "error": "no JSON"}],
            "usage_metadata": {
                "input_tokens": 50,
                "output_tokens": 9,
                "total_tokens": 59,
                "input_token_details": {"cache_read": 20, "cache_creation": 10},
                "output_token_details": {"reasoning": 4},
            },
            "response_metadata": {"model_name": "gpt-5", "model_provider": "openai"},
        },
    },
    {
        "type": "tool",
        "data": {
            "content": "454 km²",
            "tool_call_id": "c1",
            "name": "size",
            "status": "success",
            "artifact": {"km2": 454},
            "type": "tool",
        },
    },
    {"type": "ai", "data": {"content": "454 km².", "type": "ai", "tool_calls": []}},
    {"type": "remove", "data": {"id": "m1", "type": "remove"}},
]
AI_SDK: list[Any] = [
    {"id": "s", "role": "system", "parts": [{"type": "text", "text": "You know cities."}]},
    {
        "id": "u",
        "role": "user",
        "metadata": {"createdAt": 1_790_000_000_000, "plan": "pro"},
        "parts": [
            {"type": "text", "text": "How large is Oslo?"},
            {
                "type": "file",
                "mediaType": "image/png",
                "filename": "a.png",
                "url": f"data:image/png;base64,{PICTURE}",
            },
        ],
    },
    {
        "id": "a",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {
                "type": "reasoning",
                "text": "Look it up.",
                "providerMetadata": {"anthropic": {"signature": "sig"}},
            },
            {"type": "text", "text": "I look it up.", "state": "done"},
            {
                "type": "tool-size",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"city": "Oslo"},
                "output": {"km2": 454},
                "approval": {"id": "p", "approved": True},
            },
            {
                "type": "dynamic-tool",
                "toolName": "size",
                "toolCallId": "c2",
                "state": "output-error",
                "input": {"city": 1},
                "errorText": "not a text",
            },
            {
                "type": "tool-size",
                "toolCallId": "c3",
                "state": "output-denied",
                "input": {},
                "approval": {"id": "q", "approved": False, "reason": "too dear"},
            },
            {
                "type": "tool-size",
                "toolCallId": "c4",
                "state": "input-streaming",
                "rawInput": '{"c',
            },
            {"type": "step-start"},
            {"type": "source-url", "sourceId": "1", "url": "https://x.example"},
            {"type": "data-weather", "data": {"sky": "blue"}},
            {"type": "steering-message", "id": "n", "parts": [{"type": "text", "text": "In km²."}]},
            {"type": "text", "text": "454 km²."},
        ],
    },
]
DOCUMENTS = {
    "pydantic-ai": json.dumps(PYDANTIC_AI).encode(),
    "langchain": json.dumps(LANGCHAIN).encode(),
    "ai-sdk": json.dumps(AI_SDK).encode(),
}
"""By the name of their format."""
