"""Reads a reply body through a protocol's decoder and sums it up, for comparing with recordings."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from haptera.model.errors import AgentError
from haptera.model.ids import CallId, MessageId
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import AssistantMessage
from haptera.model.parts import (
    Part,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
)
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
from haptera.providers.wire.protocol import Frame, WireProtocol


class Reply:
    """What a reply came to: its parts, put together as a conversation would keep them."""

    def __init__(self, stream: list[StreamPart], error: AgentError | None) -> None:
        self.stream = stream
        self.error = error
        self.opened = next((part for part in stream if isinstance(part, StreamOpened)), None)
        self.finished = next((part for part in stream if isinstance(part, StreamFinished)), None)
        self.parts = assemble(stream)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def calls(self) -> list[ToolCallPart]:
        return [part for part in self.parts if isinstance(part, ToolCallPart)]

    @property
    def opaque(self) -> list[JsonObject]:
        return [part.payload for part in self.parts if isinstance(part, ProviderPart)]

    def message(self, provider: str, model: str) -> AssistantMessage:
        """Return the answer as a conversation would keep it."""
        parts = tuple(
            ProviderPart(provider=provider, model=model, payload=part.payload)
            if isinstance(part, ProviderPart)
            else part
            for part in self.parts
        )
        return AssistantMessage(id=MessageId("msg_1"), parts=parts, provider=provider, model=model)


def assemble(stream: list[StreamPart]) -> tuple[Part, ...]:
    """Put stream parts together; fails on any breach of their grammar."""
    opened: dict[str, PartOpened] = {}
    texts: dict[str, str] = {}
    parts: dict[str, Part] = {}
    for index, part in enumerate(stream):
        assert isinstance(part, StreamOpened) == (index == 0), "exactly one StreamOpened, first"
        match part:
            case PartOpened(key=key):
                assert key not in opened, "a key is used once"
                opened[key], texts[key] = part, ""
                parts[key] = TextPart(text="")
            case PartDelta(key=key, text=text):
                assert key in texts, "no delta outside of an open part"
                assert text
                texts[key] += text
            case PartClosed(key=key):
                parts[key] = _part_of(opened[key], texts.pop(key), part)
            case PartOpaque(payload=payload):
                parts[f"opaque{index}"] = ProviderPart(provider="p", model="m", payload=payload)
            case StreamFinished():
                assert index == len(stream) - 1, "nothing follows StreamFinished"
                assert not texts, "every part is closed"
    for key, text in texts.items():
        parts[key] = _part_of(opened[key], text, PartClosed(key=key))
    return tuple(parts.values())


def _part_of(opened: PartOpened, text: str, closed: PartClosed) -> Part:
    if opened.kind == "text":
        return TextPart(text=text, native=closed.native)
    if opened.kind == "reasoning":
        return ReasoningPart(text=text, signature=closed.signature, native=closed.native)
    assert opened.kind == "tool_call"
    assert opened.call_id
    assert opened.name
    try:
        arguments, invalid = msgspec.json.decode(text or "{}"), None
    except msgspec.DecodeError:
        arguments, invalid = {}, text
    return ToolCallPart(
        call_id=CallId(opened.call_id),
        name=opened.name,
        arguments=arguments,
        invalid=invalid,
        native=closed.native,
    )


def decode(protocol: WireProtocol, body: bytes, sizes: int | list[int] | None = None) -> Reply:
    """Decode a body that arrives in reads of `sizes` bytes each (None: all at once)."""
    stream: list[StreamPart] = []
    reader = ReplyReader(protocol)
    try:
        # An empty read is the end of the body.
        for read in (*filter(None, _reads(body, sizes)), b""):
            reader.take(read, stream)
            if reader.is_finished:
                return Reply(stream, None)
    except AgentError as error:
        return Reply(stream, error)
    return Reply(stream, None)


def decode_frames(protocol: WireProtocol, frames: list[Json], batch: int = 1) -> Reply:
    """Decode ready-made JSON frames, `batch` at a time."""
    made = [Frame(json.dumps(frame).encode()) for frame in frames]
    stream: list[StreamPart] = []
    decoder = protocol.decoder()
    try:
        for start in range(0, len(made), batch):
            decoder.feed(made[start : start + batch], stream)
        stream.extend(decoder.finish())
    except AgentError as error:
        return Reply(stream, error)
    return Reply(stream, None)


def _reads(body: bytes, sizes: int | list[int] | None) -> Iterator[bytes]:
    if sizes is None:
        yield body
    elif isinstance(sizes, int):
        yield from (body[at : at + sizes] for at in range(0, len(body), sizes))
    else:
        start = 0
        for end in (*sizes, len(body)):
            yield body[start:end]
            start = end


def body_of(case: Path) -> bytes:
    """Return the recorded body of a case."""
    return next(case.glob("response.*")).read_bytes()


def read_json(path: Path) -> JsonObject:
    """Return a JSON file's object."""
    value: JsonObject = json.loads(path.read_text(encoding="utf-8"))
    return value
