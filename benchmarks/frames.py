"""The mock provider's answers as bytes: SSE events in HTTP chunks, encoded beforehand."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from benchmarks.script import Api, Script

Fields = Mapping[str, object]

END_OF_BODY = b"0\r\n\r\n"
TOOL_NAME = "lookup"
TOOL_INPUT = {"key": "colour of the sea"}
_ANSWER_ID = "0000000000"
_WORDS = "The quick brown fox jumps over the lazy dog and goes home again. "
_USAGE_INPUT = 25
_CREATED = 1_760_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer: what comes before the text, its deltas, what comes after."""

    opening: bytes
    deltas: tuple[bytes, ...]
    closing: bytes
    burst: bytes
    """All of it, in one piece."""


def text_reply(api: Api, script: Script) -> Reply:
    """Give the text answer of a script; encoded once per process."""
    return _text_reply(api, script.deltas, script.size)


def tool_reply(api: Api, number: int) -> Reply:
    """Give an answer that calls the tool, with ids that no other answer of this server has."""
    identifier = f"{number:010d}"
    match api:
        case "anthropic":
            return _reply(_anthropic_tool(f"toolu_{identifier}"), (), ())
        case "chat":
            return _reply(_chat_tool(f"call_{identifier}"), (), ())
        case "responses":
            return _reply(_responses_tool(f"call_{identifier}", f"fc_{identifier}"), (), ())


def stamp(piece: bytes, number: int) -> bytes:
    """Put the number of the request into the ids of a pre-encoded piece, length unchanged."""
    return piece.replace(_ANSWER_ID.encode(), b"%010d" % number)


@cache
def _text_reply(api: Api, deltas: int, size: int) -> Reply:
    texts = _texts(deltas, size)
    match api:
        case "anthropic":
            return _anthropic_text(texts)
        case "chat":
            return _chat_text(texts)
        case "responses":
            return _responses_text(texts)


def _texts(deltas: int, size: int) -> list[str]:
    source = _WORDS * (size // len(_WORDS) + 2)
    starts = (index * size % len(_WORDS) for index in range(deltas))
    return [source[start : start + size] for start in starts]


def _reply(
    opening: tuple[bytes, ...], deltas: tuple[bytes, ...], closing: tuple[bytes, ...]
) -> Reply:
    parts = [tuple(map(_chunk, events)) for events in (opening, deltas, closing)]
    first, last = b"".join(parts[0]), b"".join(parts[2]) + END_OF_BODY
    return Reply(
        opening=first, deltas=parts[1], closing=last, burst=first + b"".join(parts[1]) + last
    )


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _json(fields: Fields) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _typed(kind: str, /, **fields: object) -> bytes:
    """Encode an event as Anthropic and Responses do: its type as the event's name and in it."""
    return f"event: {kind}\ndata: {_json({'type': kind, **fields})}\n\n".encode()


# Anthropic Messages


def _anthropic_opening() -> bytes:
    usage = {"input_tokens": _USAGE_INPUT, "output_tokens": 1}
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    message: Fields = {
        "id": f"msg_{_ANSWER_ID}",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage | cached,
    }
    return _typed("message_start", message=message)


def _anthropic_closing(stop_reason: str, tokens: int) -> tuple[bytes, ...]:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return (
        _typed("content_block_stop", index=0),
        _typed("message_delta", delta=delta, usage={"output_tokens": tokens}),
        _typed("message_stop"),
    )


def _anthropic_delta(kind: str, /, **fields: str) -> bytes:
    return _typed("content_block_delta", index=0, delta={"type": kind, **fields})


def _anthropic_text(texts: list[str]) -> Reply:
    block = {"type": "text", "text": ""}
    opening = (
        _anthropic_opening(),
        _typed("content_block_start", index=0, content_block=block),
        _typed("ping"),
    )
    deltas = tuple(_anthropic_delta("text_delta", text=text) for text in texts)
    return _reply(opening, deltas, _anthropic_closing("end_turn", len(texts)))


def _anthropic_tool(call_id: str) -> tuple[bytes, ...]:
    block = {"type": "tool_use", "id": call_id, "name": TOOL_NAME, "input": {}}
    pieces = ("", *_halves(_json(TOOL_INPUT)))
    return (
        _anthropic_opening(),
        _typed("content_block_start", index=0, content_block=block),
        *(_anthropic_delta("input_json_delta", partial_json=piece) for piece in pieces),
        *_anthropic_closing("tool_use", 12),
    )


def _halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


# Chat Completions


def _chat_chunk(choices: list[Fields], usage: Fields | None = None) -> bytes:
    fields = {
        "id": f"chatcmpl-{_ANSWER_ID}",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": "bench",
        "service_tier": "default",
        "system_fingerprint": "fp_bench",
        "choices": choices,
        "usage": usage,
    }
    return f"data: {_json(fields)}\n\n".encode()


def _chat_choice(delta: Fields, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return _chat_chunk([choice])


def _chat_closing(finish_reason: str, tokens: int) -> tuple[bytes, ...]:
    usage = {
        "prompt_tokens": _USAGE_INPUT,
        "completion_tokens": tokens,
        "total_tokens": _USAGE_INPUT + tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    return _chat_choice({}, finish_reason), _chat_chunk([], usage), b"data: [DONE]\n\n"


def _chat_text(texts: list[str]) -> Reply:
    opening = (_chat_choice({"role": "assistant", "content": "", "refusal": None}),)
    deltas = tuple(_chat_choice({"content": text}) for text in texts)
    return _reply(opening, deltas, _chat_closing("stop", len(texts)))


def _chat_tool(call_id: str) -> tuple[bytes, ...]:
    call = {"index": 0, "id": call_id, "type": "function"}
    function = {"name": TOOL_NAME, "arguments": ""}
    pieces = _halves(_json(TOOL_INPUT))
    return (
        _chat_choice(
            {"role": "assistant", "content": None, "tool_calls": [{**call, "function": function}]}
        ),
        *(
            _chat_choice({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            for piece in pieces
        ),
        *_chat_closing("tool_calls", 12),
    )


# Responses


def _response(status: str, output: list[Fields], tokens: int | None = None) -> Fields:
    usage = tokens and {
        "input_tokens": _USAGE_INPUT,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": _USAGE_INPUT + tokens,
    }
    return {
        "id": f"resp_{_ANSWER_ID}",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "bench",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }


def _responses_opening() -> list[bytes]:
    response = _response("in_progress", [])
    return [
        _typed("response.created", sequence_number=0, response=response),
        _typed("response.in_progress", sequence_number=1, response=response),
    ]


def _text_item(status: str, content: list[Fields]) -> Fields:
    return {
        "id": "msg_bench",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _responses_text(texts: list[str]) -> Reply:
    place = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    whole = part | {"text": "".join(texts)}
    started, ended = _text_item("in_progress", []), _text_item("completed", [whole])
    last = len(texts) + 4

    def event(kind: str, number: int, **fields: object) -> bytes:
        return _typed(f"response.{kind}", sequence_number=number, **fields)

    opening = (
        *_responses_opening(),
        event("output_item.added", 2, output_index=0, item=started),
        event("content_part.added", 3, **place, part=part),
    )
    deltas = tuple(
        event("output_text.delta", number, **place, delta=text, logprobs=[])
        for number, text in enumerate(texts, start=4)
    )
    closing = (
        event("output_text.done", last, **place, text=whole["text"], logprobs=[]),
        event("content_part.done", last + 1, **place, part=whole),
        event("output_item.done", last + 2, output_index=0, item=ended),
        event("completed", last + 3, response=_response("completed", [ended], len(texts))),
    )
    return _reply(opening, deltas, closing)


def _responses_tool(call_id: str, item_id: str) -> tuple[bytes, ...]:
    place = {"item_id": item_id, "output_index": 0}
    item = {"id": item_id, "type": "function_call", "call_id": call_id, "name": TOOL_NAME}
    started = item | {"status": "in_progress", "arguments": ""}
    ended = item | {"status": "completed", "arguments": _json(TOOL_INPUT)}
    kind = "response.function_call_arguments"
    done = _response("completed", [ended], 12)
    return (
        *_responses_opening(),
        _typed("response.output_item.added", sequence_number=2, output_index=0, item=started),
        *(
            _typed(f"{kind}.delta", sequence_number=number, **place, delta=piece)
            for number, piece in enumerate(_halves(_json(TOOL_INPUT)), start=3)
        ),
        _typed(f"{kind}.done", sequence_number=5, **place, arguments=ended["arguments"]),
        _typed("response.output_item.done", sequence_number=6, output_index=0, item=ended),
        _typed("response.completed", sequence_number=7, response=done),
    )
