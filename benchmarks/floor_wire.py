"""The floor's wire: the least that builds a request and reads an answer, per API."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from benchmarks.frames import TOOL_NAME
from benchmarks.script import Api

OnText = Callable[[str], None]
Message = dict[str, object]

_SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
_DESCRIPTION = "Look a key up."


class ToolCall(msgspec.Struct):
    """A tool call as it is put together from its pieces."""

    call_id: str
    name: str
    arguments: str = ""


class Answer(msgspec.Struct):
    """What is kept of one answer."""

    texts: list[str] = []
    calls: list[ToolCall] = []
    is_complete: bool = False


class Wire(Protocol):
    """Speaks one API."""

    path: str

    def encode(self, model: str, messages: Sequence[Message], *, has_tools: bool) -> bytes:
        """Build the body of a request."""
        ...

    def decode(self, frames: list[bytes], answer: Answer, on_text: OnText) -> None:
        """Read the frames of one socket read into the answer; hand on each text."""
        ...

    def reply_to(self, answer: Answer, result: str) -> list[Message]:
        """Give the messages that answer each tool call with the result."""
        ...

    def said(self, text: str) -> Message:
        """Give the message that holds a text answer."""
        ...


class _Delta(msgspec.Struct):
    text: str | None = None
    partial_json: str | None = None


class _Block(msgspec.Struct):
    type: str
    id: str = ""
    name: str = ""


class _AnthropicEvent(msgspec.Struct):
    type: str
    delta: _Delta | None = None
    content_block: _Block | None = None


class AnthropicWire:
    """Anthropic Messages."""

    path = "/v1/messages"

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_AnthropicEvent).decode

    def encode(self, model: str, messages: Sequence[Message], *, has_tools: bool) -> bytes:
        """Build the body of a request."""
        body = {"model": model, "max_tokens": 1024, "stream": True, "messages": messages}
        if has_tools:
            tool = {"name": TOOL_NAME, "description": _DESCRIPTION, "input_schema": _SCHEMA}
            body["tools"] = [tool]
        return msgspec.json.encode(body)

    def decode(self, frames: list[bytes], answer: Answer, on_text: OnText) -> None:
        """Read the frames of one socket read into the answer; hand on each text."""
        for frame in frames:
            event = self._decode(frame[frame.find(b"data: ") + 6 :])
            delta = event.delta
            if delta is not None and delta.text is not None:
                answer.texts.append(delta.text)
                on_text(delta.text)
            elif delta is not None and delta.partial_json is not None:
                answer.calls[-1].arguments += delta.partial_json
            elif event.content_block is not None and event.content_block.type == "tool_use":
                block = event.content_block
                answer.calls.append(ToolCall(call_id=block.id, name=block.name))
            elif event.type == "message_stop":
                answer.is_complete = True

    def reply_to(self, answer: Answer, result: str) -> list[Message]:
        """Give the messages that answer each tool call with the result."""
        calls = [
            {
                "type": "tool_use",
                "id": call.call_id,
                "name": call.name,
                "input": msgspec.json.decode(call.arguments),
            }
            for call in answer.calls
        ]
        results = [
            {"type": "tool_result", "tool_use_id": call.call_id, "content": result}
            for call in answer.calls
        ]
        return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]

    def said(self, text: str) -> Message:
        """Give the message that holds a text answer."""
        return {"role": "assistant", "content": text}


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _CallPiece(msgspec.Struct):
    function: _Function
    id: str | None = None


class _ChatDelta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct):
    delta: _ChatDelta
    finish_reason: str | None = None


class _ChatChunk(msgspec.Struct):
    choices: list[_Choice]


class ChatWire:
    """OpenAI Chat Completions."""

    path = "/v1/chat/completions"

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_ChatChunk).decode

    def encode(self, model: str, messages: Sequence[Message], *, has_tools: bool) -> bytes:
        """Build the body of a request."""
        usage = {"include_usage": True}
        body = {"model": model, "stream": True, "stream_options": usage, "messages": messages}
        if has_tools:
            function = {"name": TOOL_NAME, "description": _DESCRIPTION, "parameters": _SCHEMA}
            body["tools"] = [{"type": "function", "function": function}]
        return msgspec.json.encode(body)

    def decode(self, frames: list[bytes], answer: Answer, on_text: OnText) -> None:
        """Read the frames of one socket read into the answer; hand on each text."""
        for frame in frames:
            data = frame[6:]
            if data == b"[DONE]":
                answer.is_complete = True
                continue
            for choice in self._decode(data).choices:
                if choice.delta.content:
                    answer.texts.append(choice.delta.content)
                    on_text(choice.delta.content)
                for piece in choice.delta.tool_calls or ():
                    self._add(piece, answer)

    def _add(self, piece: _CallPiece, answer: Answer) -> None:
        if piece.id is not None:
            answer.calls.append(ToolCall(call_id=piece.id, name=piece.function.name))
        answer.calls[-1].arguments += piece.function.arguments

    def reply_to(self, answer: Answer, result: str) -> list[Message]:
        """Give the messages that answer each tool call with the result."""
        calls = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
        results: list[Message] = [
            {"role": "tool", "tool_call_id": call.call_id, "content": result}
            for call in answer.calls
        ]
        return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]

    def said(self, text: str) -> Message:
        """Give the message that holds a text answer."""
        return {"role": "assistant", "content": text}


class _Item(msgspec.Struct):
    type: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class _ResponsesEvent(msgspec.Struct):
    type: str
    delta: str | None = None
    item: _Item | None = None


class ResponsesWire:
    """OpenAI Responses."""

    path = "/v1/responses"

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_ResponsesEvent).decode

    def encode(self, model: str, messages: Sequence[Message], *, has_tools: bool) -> bytes:
        """Build the body of a request."""
        body = {"model": model, "stream": True, "store": False, "input": messages}
        if has_tools:
            tool = {"name": TOOL_NAME, "description": _DESCRIPTION, "parameters": _SCHEMA}
            body["tools"] = [{"type": "function", **tool}]
        return msgspec.json.encode(body)

    def decode(self, frames: list[bytes], answer: Answer, on_text: OnText) -> None:
        """Read the frames of one socket read into the answer; hand on each text."""
        for frame in frames:
            event = self._decode(frame[frame.find(b"data: ") + 6 :])
            if event.type == "response.output_text.delta" and event.delta is not None:
                answer.texts.append(event.delta)
                on_text(event.delta)
            elif event.type == "response.output_item.done" and event.item is not None:
                item = event.item
                if item.type == "function_call":
                    call = ToolCall(item.call_id, item.name, item.arguments)
                    answer.calls.append(call)
            elif event.type == "response.completed":
                answer.is_complete = True

    def reply_to(self, answer: Answer, result: str) -> list[Message]:
        """Give the messages that answer each tool call with the result."""
        calls: list[Message] = [
            {
                "type": "function_call",
                "call_id": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
            }
            for call in answer.calls
        ]
        results: list[Message] = [
            {"type": "function_call_output", "call_id": call.call_id, "output": result}
            for call in answer.calls
        ]
        return calls + results

    def said(self, text: str) -> Message:
        """Give the message that holds a text answer."""
        return {"role": "assistant", "content": text}


def wire_for(api: Api) -> Wire:
    """Construct the wire of an API."""
    match api:
        case "anthropic":
            return AnthropicWire()
        case "chat":
            return ChatWire()
        case "responses":
            return ResponsesWire()
