"""OpenAI Responses: the output items of one response while they arrive.

An item has pieces: the texts of a message, the summaries of a reasoning item. Items are identified
by `output_index`, else by id, else by order: some gateways change ids in the middle of a stream,
and some servers send neither index nor id.
"""

from collections import deque
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from haptera.formats.lenient_json import id_text
from haptera.formats.openai_responses.encoding import plain_item
from haptera.formats.tool_texts import CUSTOM_INPUT
from haptera.kernel.blocks.stream_processor.aggregators import GrowingText
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.stream_parts import (
    PartClosed,
    PartDelta,
    PartOpaque,
    PartOpened,
    StreamPart,
)
from haptera.providers.wire.lenient_decoding import as_text
from haptera.providers.wire.openai_responses.reply_format import Event

CALLS = frozenset({"function_call", "custom_tool_call"})
_MODELLED = CALLS | {"message", "reasoning"}

PieceKind: TypeAlias = Literal["text", "reasoning", "refusal"]


class Piece:
    """One text of an item, as far as it has arrived."""

    __slots__ = ("is_open", "key", "kind", "words")

    def __init__(self, key: str, kind: PieceKind) -> None:
        self.key = key
        self.kind: PieceKind = kind
        self.is_open = False
        self.words = GrowingText()
        """What has arrived, to be compared with the complete text at the end."""

    def rest_of(self, whole: str) -> str:
        """Return what `whole` has beyond the deltas; nothing if it does not begin with them."""
        if len(whole) <= self.words.length:
            return ""
        return whole[self.words.length :] if whole.startswith(self.words.whole()) else ""


class Item:
    """One item of the output, as far as it has arrived."""

    __slots__ = ("is_announced", "is_closed", "key", "length", "pieces", "value")

    def __init__(self, key: str, value: JsonObject) -> None:
        self.key = key
        self.value = value
        self.pieces: dict[str, Piece] = {}
        self.is_announced = False
        """Whether the part of a tool call was opened."""
        self.length = 0
        """The number of characters of a tool call's arguments that have arrived."""
        self.is_closed = False

    @property
    def type(self) -> str:
        """The item's type."""
        return str(self.value.get("type") or "")

    def facts(self, *names: str) -> JsonObject:
        """Return the named fields that are not empty."""
        return {name: self.value[name] for name in names if self.value.get(name)}


class OutputItems:
    """The items of one response. Appends to `out`, which the decoder sets for every read."""

    def __init__(self) -> None:
        self.out: list[StreamPart] = []
        self.kept_as: str | None = None
        """The id of the response, if the provider keeps it for a later request to continue."""
        self.has_calls = False
        self.refusals: list[str] = []
        self._items: list[Item] = []
        self._by_name: dict[int | str, Item] = {}
        """By `output_index`, by id and by call id."""
        self._reasoning_id: str | None = None
        """The id of the last reasoning item."""

    # Finding items

    def item_of(self, event: Event, kind: str) -> Item:
        """Return the item that `event` is about; a new one if there is none yet."""
        if event.output_index is not None:
            item = self._by_name.get(event.output_index)
        elif event.item_id is not None and event.item_id in self._by_name:
            item = self._by_name[event.item_id]
        else:
            item = self._latest(kind)
        return item or self.add({"type": kind, "id": event.item_id}, event.output_index)

    def _latest(self, kind: str) -> Item | None:
        unfinished = (item for item in reversed(self._items) if not item.is_closed)
        return next((item for item in unfinished if item.type == kind), None)

    def add(self, value: JsonObject, index: int | None) -> Item:
        """Begin an item."""
        value = plain_item(value)
        # The item was begun by one of its deltas, which came before it.
        if index is not None and index in self._by_name:
            return self._by_name[index]
        self._end_opaque_item()
        item = Item(str(len(self._items)), value)
        self._items.append(item)
        for name in (index, value.get("id"), value.get("call_id")):
            if isinstance(name, int | str):
                self._by_name[name] = item
        if item.type in CALLS:
            self._open_call(item)
        return item

    def _end_opaque_item(self) -> None:
        """End the last item, if it is not modelled, because the next one begins.

        Some servers send no done event for such items, and with the final output they would come
        after the text that followed. So the item is passed on as it is known now.
        """
        item = self._items[-1] if self._items else None
        if item is not None and not item.is_closed and item.type not in {"", *_MODELLED}:
            is_open = item.value.get("status") == "in_progress"
            self.end(item, {"status": "completed"} if is_open else {})

    def end_all(self, output: Json) -> None:
        """End all items when the response is complete, with what its `output` adds."""
        for index, value in enumerate(output if isinstance(output, list) else ()):
            if isinstance(value, dict) and (item := self._counterpart(index, value)):
                self.end(item, value)
        for item in self._items:
            if item.type in CALLS or item.pieces:
                self.end(item, {})

    def _counterpart(self, index: int, value: JsonObject) -> Item | None:
        """Return the item that the final output repeats, by order, because ids may have changed."""
        item = self._by_name.get(index)
        if item is None and index < len(self._items):
            item = self._items[index]
        if item is None:
            return self.add(value, index)
        kind = id_text(value.get("type"))
        return item if item.type == kind else self._latest(kind)

    # Text

    def piece_of(self, item: Item, name: str, kind: PieceKind) -> Piece:
        """Return a piece of an item; a new one if there is none yet."""
        if (piece := item.pieces.get(name)) is None:
            piece = item.pieces[name] = Piece(f"{item.key}.{name}", kind)
        return piece

    def add_text(self, item: Item, piece: Piece, text: str) -> None:
        """Add text to a piece; the first text opens its part."""
        if not text or item.is_closed:
            return
        piece.words.add(text)
        if piece.kind == "refusal":
            return
        if not piece.is_open:
            if piece.kind == "reasoning":
                self._close_reasoning(item)
            piece.is_open = True
            self.out.append(PartOpened(key=piece.key, kind=piece.kind))
        self.out.append(PartDelta(key=piece.key, text=text))

    def end(self, item: Item, value: JsonObject) -> None:
        """End an item; `value` is the complete item, as the provider sends it at the end."""
        if item.is_closed:
            return
        item.value = item.value | plain_item(value)
        if item.type == "message":
            self._end_message(item)
        elif item.type == "reasoning":
            self._end_reasoning(item)
        elif item.type in CALLS:
            self._end_call(item)
        elif item.type:
            # An item without a type could not be sent back.
            self.out.append(PartOpaque(payload=item.value))
        item.is_closed = True

    def _end_message(self, item: Item) -> None:
        annotations: dict[str, Json] = {}
        contents = objects_in(item.value.get("content"))
        texts = [as_text(each.get("refusal")) or as_text(each.get("text")) for each in contents]
        names = _piece_names(item, "c", texts)
        for name, content, whole in zip(names, contents, texts, strict=True):
            kind: PieceKind = "refusal" if content.get("type") == "refusal" else "text"
            piece = self.piece_of(item, name, kind)
            self.add_text(item, piece, piece.rest_of(whole))
            annotations[piece.key] = content.get("annotations")
        for piece in item.pieces.values():
            if piece.kind == "refusal" and piece.words.length:
                self._refuse(item, piece.words.whole())
            elif piece.is_open:
                native = self._identity(item) | item.facts("phase")
                if cited := objects_in(annotations.get(piece.key)):
                    native["annotations"] = cited
                self._close(piece, native)

    def _refuse(self, item: Item, words: str) -> None:
        """Pass a refusal on as an opaque message, because it is not text of the answer."""
        self.refusals.append(words)
        message: JsonObject = {"type": "message", "role": "assistant", "status": "completed"}
        content = [{"type": "refusal", "refusal": words}]
        self.out.append(PartOpaque(payload=message | item.facts("id") | {"content": content}))

    def _close(self, piece: Piece, native: JsonObject, signature: str | None = None) -> None:
        piece.is_open = False
        native |= self._response_fact()
        self.out.append(PartClosed(key=piece.key, signature=signature, native=native or None))

    def _identity(self, item: Item) -> JsonObject:
        """Return an item's id and the reasoning item that must precede it when it is sent back."""
        wanted = {"reasoning": self._reasoning_id} if self._reasoning_id else {}
        return item.facts("id") | wanted

    def _response_fact(self) -> JsonObject:
        return {} if self.kept_as is None else {"response_id": self.kept_as}

    # Reasoning

    def _close_reasoning(self, item: Item, signature: str | None = None) -> None:
        """Close the open piece of a reasoning item; the last piece has the signature."""
        for name, piece in item.pieces.items():
            if piece.is_open:
                raw: JsonObject = {"raw": True} if name.startswith("c") else {}
                facts = item.facts("id", "format", "signature")
                self._close(piece, facts | raw, signature)

    def _end_reasoning(self, item: Item) -> None:
        for letter, field in (("s", "summary"), ("c", "content")):
            texts = [as_text(each.get("text")) for each in objects_in(item.value.get(field))]
            for name, whole in zip(_piece_names(item, letter, texts), texts, strict=True):
                piece = self.piece_of(item, name, "reasoning")
                self.add_text(item, piece, piece.rest_of(whole))
        signature = item.value.get("encrypted_content") or None
        # Encrypted reasoning without a summary still needs a part, to carry the signature.
        if signature and not any(piece.is_open for piece in item.pieces.values()):
            piece = self.piece_of(item, "s0", "reasoning")
            piece.is_open = True
            self.out.append(PartOpened(key=piece.key, kind="reasoning"))
        self._close_reasoning(item, signature)
        self._reasoning_id = item.value.get("id") or self._reasoning_id

    # Tool calls

    def _open_call(self, item: Item) -> None:
        name = item.value.get("name")
        if item.is_announced or not name:
            return
        item.is_announced = self.has_calls = True
        call_id = item.value.get("call_id") or item.value.get("id") or f"call_{item.key}"
        self.out.append(PartOpened(key=item.key, kind="tool_call", call_id=call_id, name=name))

    def add_arguments(self, item: Item, text: str) -> None:
        """Add to a call's arguments; the free text of a custom tool becomes a JSON string."""
        if not text or not item.is_announced or item.is_closed:
            return
        if item.type == "custom_tool_call":
            text = ("" if item.length else f'{{"{CUSTOM_INPUT}":"') + _escaped(text)
        item.length += len(text)
        self.out.append(PartDelta(key=item.key, text=text))

    def _end_call(self, item: Item) -> None:
        self._open_call(item)
        if not item.is_announced:
            return
        is_custom = item.type == "custom_tool_call"
        if not item.length:
            arguments = item.value.get("input" if is_custom else "arguments") or ""
            # Some servers send the arguments as an object.
            text = (
                arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            )
            self.add_arguments(item, text)
        native = item.facts("namespace", "caller")
        if is_custom:
            end = '"}' if item.length else f'{{"{CUSTOM_INPUT}":""}}'
            self.out.append(PartDelta(key=item.key, text=end))
            native["type"] = item.type
        native |= self._identity(item) | self._response_fact()
        self.out.append(PartClosed(key=item.key, native=native or None))


def _piece_names(item: Item, letter: str, texts: Sequence[str]) -> list[str]:
    """Return the names of the pieces that the texts of a complete item belong to.

    That is the index of each text, unless deltas had an index that the item does not have: some
    servers count other content as well. Then the order decides, and whether the deltas are the
    beginning of the text.
    """
    by_index = [f"{letter}{index}" for index in range(len(texts))]
    streamed = [name for name in item.pieces if name.startswith(letter)]
    if set(streamed) <= set(by_index):
        return by_index
    if len(streamed) == len(texts):
        return streamed
    waiting = deque(streamed)
    names: list[str] = []
    for index, text in enumerate(texts):
        is_begun = bool(waiting) and text.startswith(item.pieces[waiting[0]].words.whole())
        # A name that no delta can have.
        names.append(waiting.popleft() if is_begun else f"{letter}-{index}")
    return names


def _escaped(text: str) -> str:
    """Return text as it stands between the quotes of a JSON string."""
    return msgspec.json.encode(text)[1:-1].decode()
