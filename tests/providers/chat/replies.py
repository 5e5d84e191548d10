"""Reads a Chat Completions reply as production does, and puts its parts together for a test."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from haptera.model.errors import AgentError
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamFinished,
    StreamOpened,
    StreamPart,
)
from haptera.providers.reply_reader import ReplyReader
from haptera.providers.wire import chat_completions
from haptera.providers.wire.chat_completions.dialects import GENERIC, Dialect


@dataclass
class Part:
    """One part while it is put together."""

    opened: PartOpened
    text: str = ""
    closed: PartClosed | None = None


@dataclass
class ReadReply:
    """What a reply came to. Making one checks the grammar of stream parts."""

    stream: list[StreamPart] = field(default_factory=list)
    error: AgentError | None = None
    opened: StreamOpened | None = None
    finished: StreamFinished | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    opaque: list[dict[str, Any]] = field(default_factory=list)

    def take(self, part: StreamPart) -> None:
        """Fold one stream part; asserts that it may come here."""
        assert self.finished is None, "nothing follows the end"
        match part:
            case StreamOpened():
                assert self.opened is None, "a stream opens once"
                self.opened = part
            case PartOpened(key=key):
                assert key not in self.parts, "a part opens once"
                self.parts[key] = Part(part)
            case PartDelta(key=key, text=text):
                assert self.parts[key].closed is None, "a closed part does not grow"
                assert text, "a delta holds something"
                self.parts[key].text += text
            case PartClosed(key=key):
                assert self.parts[key].closed is None, "a part closes once"
                self.parts[key].closed = part
            case PartOpaque(payload=payload):
                self.opaque.append(payload)
            case StreamFinished():
                self.finished = part

    def text_of(self, kind: str) -> str:
        """Return the text of all parts of one kind."""
        return "".join(part.text for part in self.parts.values() if part.opened.kind == kind)

    @property
    def text(self) -> str:
        """The answer."""
        return self.text_of("text")

    @property
    def reasoning(self) -> str:
        """What was thought before it."""
        return self.text_of("reasoning")

    @property
    def calls(self) -> list[tuple[str | None, Any]]:
        """Names and arguments of complete calls; broken arguments as the recordings note them."""
        return [
            (part.opened.name, parse_arguments(part.text))
            for part in self.parts.values()
            if part.opened.kind == "tool_call" and part.closed is not None
        ]

    def payload(self, name: str) -> Any:
        """Return what was carried opaquely under one name."""
        return next((item[name] for item in self.opaque if item["type"] == name), None)


def parse_arguments(text: str) -> Any:
    """Parse arguments as the stream processor does; text that is not JSON is kept."""
    try:
        return msgspec.json.decode(text.encode()) if text.strip() else {}
    except msgspec.DecodeError:
        return {"__invalid_json__": text}


def read_reply(body: bytes, *, sizes: list[int] | int = 0, dialect: Dialect = GENERIC) -> ReadReply:
    """Read `body` in pieces: of one size, or cut at the given places."""
    reply = ReadReply()
    reader = ReplyReader(chat_completions.protocol_for(dialect))
    try:
        # An empty read is the end of the body.
        for piece in (*filter(None, cut(body, sizes)), b""):
            reader.take(piece, reply.stream)
            if reader.is_finished:
                break
    except AgentError as error:
        reply.error = error
    for part in reply.stream:
        reply.take(part)
    return reply


def cut(body: bytes, sizes: list[int] | int) -> list[bytes]:
    """Cut bytes into pieces of one size, or at the given places."""
    if isinstance(sizes, list):
        places = [0, *sizes, len(body)]
        return [body[start:end] for start, end in pairwise(places)]
    size = sizes or len(body) or 1
    return [body[start : start + size] for start in range(0, len(body), size)]


def sse(*payloads: object, done: bool = True) -> bytes:
    """Frame payloads as a server would; strings are sent as they are."""
    lines = [
        payload.encode() if isinstance(payload, str) else msgspec.json.encode(payload)
        for payload in (*payloads, *(["[DONE]"] if done else []))
    ]
    return b"".join(b"data: " + line + b"\n\n" for line in lines)


def piece(finish: str | None = None, *, usage: Any = None, **delta: Any) -> dict[str, Any]:
    """Return the most ordinary piece of an answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    whole = {"id": "chatcmpl-1", "model": "some-model", "choices": [choice]}
    return whole if usage is None else {**whole, "usage": usage}
