"""OpenAI Responses: decodes items, which are messages, reasoning, calls and outputs, to parts."""

from collections.abc import Callable

import msgspec

from haptera.formats.forms import (
    call_from,
    call_from_text,
    media_from_url,
    object_in,
    text_in,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.openai_responses.encoding import CUSTOM_CALL
from haptera.formats.tool_texts import CUSTOM_INPUT
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.parts import (
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolResultPart,
)

PROVIDER = "openai"
"""The provider that Codex uses unless it is told otherwise. Only OpenAI can read what it sealed, so
what another provider sealed by the same protocol has no place in the file."""
_NOTES = ("<environment_context>", "<user_instructions>", "<permissions instructions>")
"""How Codex begins what it says to the model in the user's name, in files that do not mark it."""


class ItemReader:
    """Reads items into a builder, in order."""

    def __init__(self, builder: MessageBuilder) -> None:
        self.provider = PROVIDER
        self.model = ""
        self._builder = builder
        self._readers: dict[str, Callable[[JsonObject], Part | None]] = {
            "reasoning": _reasoning,
            "function_call": _function_call,
            "custom_tool_call": _custom_call,
            "local_shell_call": _shell_call,
            "function_call_output": self._output,
            "custom_tool_call_output": self._output,
            "local_shell_call_output": self._output,
        }
        self.kinds = frozenset({"message", *self._readers})

    def add(self, item: JsonObject, time: int) -> bool:
        """Add an item to the conversation; False if it is of a kind that we do not know."""
        kind = text_in(item, "type")
        if kind == "message":
            return self._message(item, time)
        read = self._readers.get(kind)
        if read is None:
            return self._other(item, kind, time)
        part = read(item)
        if part is None:
            return False
        if isinstance(part, ToolResultPart):
            self._builder.user([part], time=time)
        else:
            self._builder.assistant([part], self._facts(), time=time)
        return True

    def _facts(self) -> AnswerFacts:
        return AnswerFacts(provider=self.provider, model=self.model)

    def _other(self, item: JsonObject, kind: str, time: int) -> bool:
        """Carry what a server's own tools did: `web_search_call` and the like."""
        if not kind.endswith("_call"):
            return False
        part = ProviderPart(provider=self.provider, model=self.model, payload=item)
        self._builder.assistant([part], self._facts(), time=time)
        return True

    def _message(self, item: JsonObject, time: int) -> bool:
        role, content = text_in(item, "role"), item.get("content")
        pieces = content if isinstance(content, list) else [content] if content else []
        parts = [piece_of_item(piece) or self._builder.opaque_part(piece) for piece in pieces]
        if role == "assistant":
            self._builder.assistant(parts, self._facts(), time=time)
        elif role == "user":
            self._builder.user(_as_said(parts, item), time=time)
        elif role in {"developer", "system"}:
            self._builder.user(map(_as_note, parts), time=time)
        else:
            return False
        return True

    def _output(self, item: JsonObject) -> Part | None:
        call_id, output = text_in(item, "call_id", "id"), item.get("output")
        if not call_id:
            return None
        if isinstance(output, dict):
            # Some versions of Codex wrote an object with `content` and `success` here.
            output = output.get("content", msgspec.json.encode(output).decode())
        pieces = output if isinstance(output, list) else [output]
        content = [_content(piece) for piece in pieces if piece is not None]
        return ToolResultPart(call_id=CallId(call_id), name="", content=tuple(content))


def _as_said(parts: list[Part], item: JsonObject) -> list[Part]:
    """Return what the user said, and as notes what Codex says to the model in their name."""
    marks = object_in(item, "internal_chat_message_metadata_passthrough")
    kinds = marks.get("content_item_metadata")
    origins = [text_in(object_in(each, "provenance"), "type") for each in objects_in(kinds)]
    # Newer files mark the origin of each piece. In others only the beginning of a text tells.
    if len(origins) == len(parts):
        return [
            part if origin in {"user", ""} else _as_note(part)
            for part, origin in zip(parts, origins, strict=True)
        ]
    return [
        _as_note(part) if isinstance(part, TextPart) and part.text.startswith(_NOTES) else part
        for part in parts
    ]


def _as_note(part: Part) -> Part:
    return ReminderPart(text=part.text, persisted=True) if isinstance(part, TextPart) else part


def piece_of_item(piece: Json) -> Part | None:
    """Read a piece of the content of an item; None if its kind is not known."""
    if isinstance(piece, str):
        return TextPart(text=piece)
    match text_in(piece, "type"):
        case "input_text" | "output_text" | "text" | "refusal" if text_in(piece, "text", "refusal"):
            return TextPart(text=text_in(piece, "text", "refusal"))
        case "input_image":
            return media_from_url(text_in(piece, "image_url"), mime="image/png")
        case "input_file":
            name = text_in(piece, "filename") or None
            return media_from_url(text_in(piece, "file_data", "file_url"), filename=name)
        case _:
            return None


def _content(piece: Json) -> ResultContent:
    part = piece_of_item(piece)
    if isinstance(part, TextPart | MediaPart):
        return part
    return TextPart(text=msgspec.json.encode(piece).decode())


def _reasoning(item: JsonObject) -> Part | None:
    pieces = [*objects_in(item.get("summary")), *objects_in(item.get("content"))]
    native = {"id": item["id"]} if isinstance(item.get("id"), str) else None
    return ReasoningPart(
        text="\n\n".join(text_in(piece, "text") for piece in pieces),
        signature=text_in(item, "encrypted_content") or None,
        native=native,
    )


def _function_call(item: JsonObject) -> Part | None:
    call_id, name = text_in(item, "call_id"), text_in(item, "name")
    return call_from_text(call_id, name, item.get("arguments")) if call_id and name else None


def _custom_call(item: JsonObject) -> Part | None:
    call_id, name = text_in(item, "call_id"), text_in(item, "name")
    if not call_id or not name:
        return None
    part = call_from(call_id, name, {CUSTOM_INPUT: text_in(item, "input")})
    return msgspec.structs.replace(part, native={"type": CUSTOM_CALL})


def _shell_call(item: JsonObject) -> Part | None:
    call_id = text_in(item, "call_id", "id")
    return call_from(call_id, "local_shell", object_in(item, "action")) if call_id else None
