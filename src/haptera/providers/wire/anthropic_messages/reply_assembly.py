"""Anthropic Messages: the content blocks of one reply while they arrive.

Text, thinking, tool calls and compactions become stream parts. Any other block is assembled as the
provider would have sent it in one piece, and becomes an opaque part.
"""

from typing import TypeAlias

from haptera.formats.lenient_json import encode_lenient, with_text_ids
from haptera.kernel.blocks.stream_processor.aggregators import GrowingText
from haptera.model.errors import ProviderError
from haptera.model.json_types import JsonObject, objects_in
from haptera.model.parts import PartKind
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamPart,
)
from haptera.providers.wire.anthropic_messages.reply_format import (
    CitationsDelta,
    CompactionDelta,
    ContentDelta,
    InputJsonDelta,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
)
from haptera.providers.wire.lenient_decoding import as_text, decode_lenient

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
    """A block that becomes a part."""

    __slots__ = ("_block", "_citations", "_has_deltas", "_signature", "_type", "key")

    def __init__(self, key: str, block: JsonObject, out: list[StreamPart]) -> None:
        self.key = key
        self._type = str(block["type"])
        self._block = block
        self._has_deltas = False
        self._signature = GrowingText()
        self._signature.add(as_text(block.get("signature")))
        # The start of a block may hold citations already, or null.
        self._citations: list[JsonObject] = objects_in(block.get("citations"))
        kind = _KINDS[self._type]
        is_call = kind == "tool_call"
        out.append(
            PartOpened(
                key=key,
                kind=kind,
                call_id=as_text(block.get("id")) or None if is_call else None,
                name=as_text(block.get("name")) if is_call else None,
            )
        )
        # A block that arrives whole has its text here, and no deltas.
        text = as_text(block.get("text") or block.get("thinking") or block.get("content"))
        if text:
            self._has_deltas = True
            out.append(PartDelta(key=key, text=text))

    @property
    def is_call(self) -> bool:
        """Whether this is a tool call, which must not be used before it is complete."""
        return self._type == "tool_use"

    def take(self, delta: ContentDelta) -> str:
        """Take a delta; return the text that it adds to the part."""
        added: str | None = ""
        match delta:
            case TextDelta(text=text):
                added = text
            case ThinkingDelta(thinking=text):
                added = text
            case InputJsonDelta(partial_json=text):
                added = text
            case SignatureDelta(signature=signature):
                self._signature.add(signature)
            case CitationsDelta(citation=citation) if citation:
                self._citations.append(citation)
            case CompactionDelta(content=content):
                added = content
                self._keep("encrypted_content", delta.encrypted_content)
                self._keep("signature", delta.signature)
        self._has_deltas = self._has_deltas or bool(added)
        return added or ""

    def close(self, out: list[StreamPart]) -> None:
        """Append the end of the part."""
        if self.is_call and not self._has_deltas and self._block.get("input"):
            # Some gateways send the arguments with the beginning of the call.
            text = encode_lenient(self._block["input"]).decode()
            out.append(PartDelta(key=self.key, text=text))
        is_reasoning = self._type == "thinking"
        out.append(
            PartClosed(
                key=self.key,
                signature=(self._signature.whole() or None) if is_reasoning else None,
                native=self._native(),
            )
        )

    def _keep(self, name: str, value: str | None) -> None:
        if value is not None:
            self._block[name] = value

    def _native(self) -> JsonObject | None:
        """Return the fields of the block that a part has no field for."""
        native = {
            name: value
            for name, value in self._block.items()
            if name not in _MODELLED[self._type] and value is not None
        }
        if self._citations:
            native["citations"] = self._citations
        return native or None


class OpaqueBlock:
    """A block that is not modelled: assembled, and passed on unchanged."""

    __slots__ = ("_block", "_citations", "_input", "_text", "key")

    is_call = False

    def __init__(self, key: str, block: JsonObject) -> None:
        self.key = key
        self._block = block
        self._input = GrowingText()
        self._text = GrowingText()
        self._citations: list[JsonObject] = []

    def take(self, delta: ContentDelta) -> str:
        """Take a delta; no text is returned, because the block is passed on as a whole."""
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
        return ""

    def close(self, out: list[StreamPart]) -> None:
        """Append the block, unless it could not be sent back: without a type, or cut off."""
        if not self._block.get("type"):
            return
        if added := self._text.whole():
            self._block["text"] = as_text(self._block.get("text")) + added
        if self._citations:
            self._block["citations"] = [*objects_in(self._block.get("citations")), *self._citations]
        if text := self._input.whole():
            try:
                self._block["input"] = decode_lenient(text.encode("utf-8", "replace"))
            except ProviderError:
                return
        out.append(PartOpaque(payload=self._block))


ReplyBlock: TypeAlias = GrowingBlock | OpaqueBlock


def open_block(key: str, block: JsonObject, out: list[StreamPart]) -> ReplyBlock:
    """Begin a block, with the content that its start event already holds."""
    block = with_text_ids(block, "type", "id", "name", "tool_use_id")
    if block.get("type") in _KINDS:
        return GrowingBlock(key, block, out)
    return OpaqueBlock(key, block)


def implied_block(delta: ContentDelta) -> JsonObject | None:
    """Return the start of a block that was not sent, if a delta tells its type."""
    match delta:
        case TextDelta():
            return {"type": "text"}
        case ThinkingDelta():
            return {"type": "thinking"}
        case _:
            return None
