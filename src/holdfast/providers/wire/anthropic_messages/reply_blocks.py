"""Anthropic Messages: the content blocks of one reply while they grow.

Text, thinking, tool calls and compactions become parts of ours. Everything else is put together as
the provider would have sent it in one piece, and carried.
"""

from typing import TypeAlias

from holdfast.blocks.stream_processor.aggregators import GrowingText
from holdfast.providers.wire.anthropic_messages.reply_types import (
    CitationsDelta,
    CompactionDelta,
    Delta,
    InputJsonDelta,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
)
from holdfast.providers.wire.failures import objects_in, text_of
from holdfast.providers.wire.lenient_json import decode_lenient, encode_lenient, with_words
from holdfast.vocabulary.errors import ProviderError
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.parts import PartKind
from holdfast.vocabulary.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamPart,
)

_KINDS: dict[str, PartKind] = {
    "text": "text",
    "thinking": "reasoning",
    "tool_use": "tool_call",
    "compaction": "compaction",
}
_MODELLED = {
    "text": {"type", "text", "citations"},
    "thinking": {"type", "thinking", "signature"},
    "tool_use": {"type", "id", "name", "input"},
    "compaction": {"type", "content"},
}


class GrowingBlock:
    """A block that becomes a part of ours."""

    __slots__ = ("_block", "_citations", "_has_grown", "_signature", "_type", "key")

    def __init__(self, key: str, block: JsonObject, out: list[StreamPart]) -> None:
        self.key = key
        self._type = str(block["type"])
        self._block = block
        self._has_grown = False
        self._signature = GrowingText()
        self._signature.add(text_of(block.get("signature")))
        self._citations: list[JsonObject] = objects_in(block.get("citations"))
        kind = _KINDS[self._type]
        is_call = kind == "tool_call"
        out.append(
            PartOpened(
                key=key,
                kind=kind,
                call_id=text_of(block.get("id")) or None if is_call else None,
                name=text_of(block.get("name")) if is_call else None,
            )
        )
        self._grow(block.get("text") or block.get("thinking") or block.get("content"), out)

    @property
    def is_call(self) -> bool:
        """Whether this is a tool call, which is worth nothing before it is complete."""
        return self._type == "tool_use"

    def take(self, delta: Delta, out: list[StreamPart]) -> None:
        """Take in a delta."""
        match delta:
            case TextDelta(text=text):
                self._grow(text, out)
            case ThinkingDelta(thinking=text):
                self._grow(text, out)
            case InputJsonDelta(partial_json=text):
                self._grow(text, out)
            case SignatureDelta(signature=signature):
                self._signature.add(signature)
            case CitationsDelta(citation=citation) if citation:
                self._citations.append(citation)
            case CompactionDelta(content=text):
                self._grow(text, out)
                self._keep("encrypted_content", delta.encrypted_content)
                self._keep("signature", delta.signature)

    def close(self, out: list[StreamPart]) -> None:
        """Give the end of the part."""
        if self.is_call and not self._has_grown and self._block.get("input"):
            # Some gateways send the arguments with the head of the call.
            self._grow(encode_lenient(self._block["input"]).decode(), out)
        is_reasoning = self._type == "thinking"
        out.append(
            PartClosed(
                key=self.key,
                signature=(self._signature.whole() or None) if is_reasoning else None,
                native=self._native(),
            )
        )

    def _grow(self, text: object, out: list[StreamPart]) -> None:
        if isinstance(text, str) and text:
            self._has_grown = True
            out.append(PartDelta(key=self.key, text=text))

    def _keep(self, name: str, value: str | None) -> None:
        if value is not None:
            self._block[name] = value

    def _native(self) -> JsonObject | None:
        """Return what the block holds beside what a part of ours has a place for."""
        native = {
            name: value
            for name, value in self._block.items()
            if name not in _MODELLED[self._type] and value is not None
        }
        if self._citations:
            native["citations"] = self._citations
        return native or None


class CarriedBlock:
    """A block that we do not model: put together whole, and handed on as it is."""

    __slots__ = ("_block", "_citations", "_input", "_text", "key")

    is_call = False

    def __init__(self, key: str, block: JsonObject) -> None:
        self.key = key
        self._block = block
        self._input = GrowingText()
        self._text = GrowingText()
        self._citations: list[JsonObject] = []

    def take(self, delta: Delta, out: list[StreamPart]) -> None:  # noqa: ARG002 - same as above
        """Take in a delta; nothing is given before the end."""
        match delta:
            case InputJsonDelta(partial_json=text):
                self._input.add(text)
            case TextDelta(text=text):
                self._text.add(text)
            case CitationsDelta(citation=citation):
                self._citations.append(citation)
            case SignatureDelta(signature=signature):
                self._block["signature"] = signature
            case _:
                pass

    def close(self, out: list[StreamPart]) -> None:
        """Give the block; one that could not be replayed is dropped.

        That is one without a type, and one whose input was cut off.
        """
        if not self._block.get("type"):
            return
        if said := self._text.whole():
            self._block["text"] = text_of(self._block.get("text")) + said
        if self._citations:
            self._block["citations"] = [*objects_in(self._block.get("citations")), *self._citations]
        if text := self._input.whole():
            try:
                self._block["input"] = decode_lenient(text.encode("utf-8", "replace"))
            except ProviderError:
                return
        out.append(PartOpaque(payload=self._block))


Block: TypeAlias = GrowingBlock | CarriedBlock


def open_block(key: str, block: JsonObject, out: list[StreamPart]) -> Block:
    """Begin a block, with what its head already holds."""
    block = with_words(block, "type", "id", "name", "tool_use_id")
    if block.get("type") in _KINDS:
        return GrowingBlock(key, block, out)
    return CarriedBlock(key, block)


def implied_block(delta: Delta) -> JsonObject | None:
    """Return the head of a block whose beginning was not sent, where a delta tells its type."""
    match delta:
        case TextDelta():
            return {"type": "text"}
        case ThinkingDelta():
            return {"type": "thinking"}
        case _:
            return None
