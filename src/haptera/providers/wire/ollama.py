"""Ollama: its own API, `/api/chat`, with one JSON object per line.

The decoder also reads the lines of `/api/generate`, which differ only in where the text is.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence

import msgspec

from haptera.formats.lenient_json import encode_lenient
from haptera.formats.tool_texts import marked_result
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    PartKind,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    argument_object,
    reminder_text,
)
from haptera.model.requests import ModelRequest
from haptera.model.settings import Thinking
from haptera.model.stream_parts import (
    FinishKind,
    PartClosed,
    PartDelta,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.model.usage import Usage
from haptera.providers.wire.accepted_inputs import TEXT_ONLY_MODELS, tool_description
from haptera.providers.wire.failures import Failure, FailureRules, error_object, status_among
from haptera.providers.wire.lenient_decoding import (
    DECODE_ERRORS,
    as_text,
    cut_off,
    decode_lenient,
    decode_object_as,
)
from haptera.providers.wire.prefix_cache import EncodedMessages, body_with_array
from haptera.providers.wire.protocol import Frame, HistoryRules, WireProtocol, WireRequest

# Reply types


class Function(msgspec.Struct):
    """The function of a call."""

    name: str = ""
    arguments: Json = None


class Call(msgspec.Struct):
    """A tool call; it always arrives complete."""

    function: Function = msgspec.field(default_factory=Function)
    id: str | None = None


class AnswerPiece(msgspec.Struct):
    """What one line adds to the answer."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None


class Line(msgspec.Struct):
    """One line of a reply."""

    model: str = ""
    message: AnswerPiece | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Json = None


_decode = msgspec.json.Decoder(Line).decode


_FINISH: dict[str, FinishKind] = {"stop": "stop", "length": "length"}


# Decoder


class OllamaDecoder:
    """Decodes one reply; implements `Decoder`."""

    def __init__(self) -> None:
        self._out: list[StreamPart] = []
        self._is_open = False
        self._is_finished = False
        self._count = 0
        self._open: PartOpened | None = None
        self._has_calls = False

    def feed(self, frames: Sequence[Frame], out: list[StreamPart]) -> None:
        """Decode `frames` and append their parts to `out`."""
        self._out = out
        for frame in frames:
            if self._is_finished:
                continue
            try:
                line = _decode(frame.data)
            except DECODE_ERRORS:
                line = decode_object_as(frame.data, Line)
            if line.error is not None:
                raise ERRORS.error_in_stream(decode_lenient(frame.data))
            self._on_line(line, frame.data)

    def finish(self) -> Sequence[StreamPart]:
        """Raise STREAM_INTERRUPTED unless the model was done; no parts are left."""
        if not self._is_finished:
            raise cut_off("the stream ended before the model was done")
        return ()

    def resume(self) -> str | None:
        """Return None: the server does not keep a reply that broke off."""
        return None

    def _on_line(self, line: Line, data: bytes) -> None:
        if not self._is_open:
            self._is_open = True
            self._out.append(StreamOpened(model=line.model))
        piece = line.message or AnswerPiece(content=line.response, thinking=line.thinking)
        if piece.thinking:
            self._add("reasoning", piece.thinking)
        if piece.content:
            self._add("text", piece.content)
        for call in piece.tool_calls or ():
            self._on_call(call, data)
        if line.done:
            self._on_done(line)

    def _add(self, kind: PartKind, text: str) -> None:
        if self._open is None or self._open.kind != kind:
            self._close()
            self._open = PartOpened(key=self._next_key(), kind=kind)
            self._out.append(self._open)
        self._out.append(PartDelta(key=self._open.key, text=text))

    def _close(self) -> None:
        if self._open is not None:
            self._out.append(PartClosed(key=self._open.key))
            self._open = None

    def _next_key(self) -> str:
        self._count += 1
        return str(self._count)

    def _on_call(self, call: Call, data: bytes) -> None:
        self._close()
        self._has_calls = True
        key = self._next_key()
        # A line contains the time, so an id made from it is unique, and the same at every decoding.
        call_id = call.id or f"call_{hashlib.sha256(data).hexdigest()[:16]}_{key}"
        name = call.function.name
        self._out.append(PartOpened(key=key, kind="tool_call", call_id=call_id, name=name))
        arguments = call.function.arguments
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments or {}).decode()
        self._out.append(PartDelta(key=key, text=arguments or "{}"))
        native: JsonObject | None = {"id": call.id} if call.id else None
        self._out.append(PartClosed(key=key, native=native))

    def _on_done(self, line: Line) -> None:
        self._close()
        self._is_finished = True
        # Servers before 0.1.39 send no reason.
        reason = line.done_reason or ""
        kind = _FINISH.get(reason, "other") if reason else "stop"
        usage = Usage(input=line.prompt_eval_count or 0, output=line.eval_count or 0)
        # Ollama reports `stop` after calls as well.
        is_call = kind == "stop" and self._has_calls
        self._out.append(
            StreamFinished(kind="tool_calls" if is_call else kind, reason=reason, usage=usage)
        )


# Request

_LEVELS: dict[Thinking, str] = {
    # gpt-oss has levels, of which none turns thinking off.
    "off": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_HAS_LEVELS = re.compile(r"gpt-oss")


class RequestEncoder:
    """Encodes requests, each message of a conversation once."""

    def __init__(self) -> None:
        self._messages = EncodedMessages()

    def __call__(self, request: ModelRequest) -> WireRequest:
        """Return the request that asks for a streamed answer."""
        system = [encode_lenient({"role": "system", "content": text}) for text in request.system]
        messages = self._messages.encode(request.messages, _messages_of)
        body = body_with_array(_fields(request), "messages", [*system, *messages])
        return WireRequest(path="api/chat", body=body)


def _fields(request: ModelRequest) -> JsonObject:
    """Return everything but the messages."""
    body: JsonObject = {"model": request.model, "stream": True}
    # A tool cannot be required; offering no other comes close.
    tools = [tool for tool in request.tools if request.require_tool in {None, tool.name}]
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool_description(tool),
                    "parameters": tool.input_schema,
                },
            }
            for tool in tools
        ]
    if request.thinking is not None:
        has_levels = _HAS_LEVELS.search(request.model) is not None
        body["think"] = _LEVELS[request.thinking] if has_levels else request.thinking != "off"
    if request.output_schema is not None:
        body["format"] = request.output_schema.schema
    if options := _options(request):
        body["options"] = options
    # Names with a hyphen are betas of another protocol, not fields.
    return body | {name: value for name, value in request.betas.items() if "-" not in name}


def _options(request: ModelRequest) -> JsonObject:
    values = {
        "num_predict": request.max_tokens or None,
        "temperature": request.temperature,
        "stop": list(request.stop) or None,
        "seed": request.seed,
    }
    return {name: value for name, value in values.items() if value is not None}


def _messages_of(message: Message) -> list[JsonObject]:
    if isinstance(message, UserMessage):
        return list(_user_messages(message))
    lowered = _assistant_message(message)
    # An answer of empty parts says nothing, and the server refuses a message without content.
    return [lowered] if lowered["content"] or len(lowered) > len(("role", "content")) else []


def _user_messages(message: UserMessage) -> Iterator[JsonObject]:
    texts: list[str] = []
    images: list[str] = []
    for part in message.parts:
        match part:
            case ToolResultPart(name=name):
                yield {"role": "tool", "tool_name": name, "content": marked_result(part)}
            case TextPart(text=text) | CompactionPart(text=text) if text:
                texts.append(text)
            case ReminderPart(text=text):
                texts.append(f"{reminder_text(text)}\n")
            case MediaPart(data=str(data)):
                images.append(data)
            case MediaPart(url=url):
                # Neither we nor the server fetch URLs.
                texts.append(f"[image: {url}]")
            case _:
                pass
    if texts or images:
        lowered: JsonObject = {"role": "user", "content": "\n\n".join(texts)}
        yield lowered | ({"images": images} if images else {})


def _assistant_message(message: AssistantMessage) -> JsonObject:
    lowered: JsonObject = {"role": "assistant"}
    texts = [part.text for part in message.parts if isinstance(part, TextPart | CompactionPart)]
    lowered["content"] = "".join(texts)
    thoughts = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    if thoughts:
        lowered["thinking"] = thoughts
    calls = [_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
    return lowered | ({"tool_calls": calls} if calls else {})


def _call(part: ToolCallPart) -> JsonObject:
    function: JsonObject = {"name": part.name, "arguments": argument_object(part)}
    return {"type": "function", "function": function}


# Errors


def _read_error(report: Json) -> Failure:
    """Read an error: it has a message only, and for hosted models a status."""
    status = status_among(report.get("StatusCode")) if isinstance(report, dict) else None
    return Failure(message=as_text(error_object(report).get("message")), status=status)


ERRORS = FailureRules(read=_read_error)


PROTOCOL = WireProtocol(
    name="ollama",
    framing="ndjson",
    new_encoder=RequestEncoder,
    decoder=OllamaDecoder,
    classify=ERRORS.error_of_reply,
    history=HistoryRules(linked_media=(), text_models=TEXT_ONLY_MODELS),
)
