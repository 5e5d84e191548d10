"""OpenAI Responses items: messages, reasoning, calls and outputs, to parts and back."""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from haptera.formats.forms import (
    UniqueCallIds,
    call_from,
    call_from_text,
    media_from_url,
    object_in,
    result_as_text,
    stand_in,
    text_in,
    tool_name,
    with_content,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.values import SessionExport
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    argument_object,
    reminder_text,
)

PROVIDER = "openai"
"""The provider that Codex uses unless it is told otherwise. Only OpenAI can read what it sealed, so
what another provider sealed by the same protocol has no place in the file."""
_CUSTOM = "custom_tool_call"
_CUSTOM_INPUT = "__input__"
"""What the free text of a custom tool is called among the arguments, as on the wire."""
_NOTES = ("<environment_context>", "<user_instructions>", "<permissions instructions>")
"""How Codex begins what it says to the model in the user's name, in files that do not mark it."""


def leaves_out(message: Message, part: Part) -> bool:
    """Whether a part is left out: empty text, reasoning without a signature or of others."""
    is_native = isinstance(message, AssistantMessage) and message.provider == PROVIDER
    match part:
        case TextPart(text=text) | CompactionPart(text=text) | ReminderPart(text=text):
            return not text
        case ReasoningPart(signature=signature, native=native):
            return not (is_native and signature and native and native.get("id"))
        case ProviderPart(provider=provider):
            return provider != PROVIDER
        case _:
            return False


def text_item(role: Literal["user", "assistant", "developer"], text: str) -> JsonObject:
    """Return a message that is one text."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


class ItemWriter:
    """Writes messages as items. Owns the ids of calls across the conversation."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._ids = UniqueCallIds()
        self._custom: set[CallId] = set()

    def items(self, message: Message) -> Iterator[JsonObject]:
        """Yield the items of a message; summaries of user messages are not among them."""
        kept = [part for part in message.parts if not leaves_out(message, part)]
        if isinstance(message, UserMessage):
            yield from self._of_user(kept)
            return
        # Kept until the next answer, because the outputs of its calls come in a later message.
        self._custom = {
            part.call_id
            for part in message.tool_calls
            if (part.native or {}).get("type") == _CUSTOM
        }
        for part in kept:
            yield from self._of_answer(part)

    def _of_user(self, parts: list[Part]) -> Iterator[JsonObject]:
        content: list[JsonObject] = []
        for part in parts:
            match part:
                case ToolResultPart():
                    yield self._output(part)
                case ReminderPart(text=text):
                    yield text_item("developer", text)
                case TextPart(text=text):
                    content.append({"type": "input_text", "text": text})
                case MediaPart():
                    content.append(_media_piece(with_content(part, self._export)))
                case _:
                    continue
        if content:
            yield {"type": "message", "role": "user", "content": content}

    def _of_answer(self, part: Part) -> Iterator[JsonObject]:
        match part:
            case TextPart(text=text) | CompactionPart(text=text):
                yield text_item("assistant", text)
            case ReminderPart(text=text):
                yield text_item("assistant", reminder_text(text))
            case ReasoningPart():
                summary = [{"type": "summary_text", "text": part.text}] if part.text else []
                sealed = {"id": (part.native or {})["id"], "encrypted_content": part.signature}
                yield {"type": "reasoning", "summary": summary, **sealed}
            case ToolCallPart():
                yield self._call(part)
            case ProviderPart(payload=payload):
                yield payload
            case _:
                return

    def _call(self, part: ToolCallPart) -> JsonObject:
        named: JsonObject = {
            "call_id": self._ids.of_call(part.call_id),
            "name": tool_name(part.name),
        }
        if part.call_id in self._custom and isinstance(part.arguments, dict):
            given = str(part.arguments.get(_CUSTOM_INPUT, ""))
            return {"type": _CUSTOM, **named, "input": given}
        arguments = msgspec.json.encode(argument_object(part)).decode()
        return {"type": "function_call", **named, "arguments": arguments}

    def _output(self, part: ToolResultPart) -> JsonObject:
        kind = f"{_CUSTOM}_output" if part.call_id in self._custom else "function_call_output"
        output: Json = result_as_text(part)
        pictures = [piece for piece in part.content if _is_picture(piece)]
        if pictures:
            output = [
                {"type": "input_text", "text": piece.text}
                if isinstance(piece, TextPart)
                else _media_piece(with_content(piece, self._export))
                for piece in part.content
            ]
        return {"type": kind, "call_id": self._ids.of_result(part.call_id), "output": output}


def _is_picture(piece: ResultContent) -> bool:
    return isinstance(piece, MediaPart) and piece.mime.startswith("image/")


def _media_piece(part: MediaPart) -> JsonObject:
    where = part.url or (part.data_url if part.data and part.is_readable else None)
    if where and part.mime.startswith("image/"):
        return {"type": "input_image", "image_url": where}
    return {"type": "input_text", "text": stand_in(part)}


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
        role, given = text_in(item, "role"), item.get("content")
        pieces = given if isinstance(given, list) else [given] if given else []
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
    part = call_from(call_id, name, {_CUSTOM_INPUT: text_in(item, "input")})
    return msgspec.structs.replace(part, native={"type": _CUSTOM})


def _shell_call(item: JsonObject) -> Part | None:
    call_id = text_in(item, "call_id", "id")
    return call_from(call_id, "local_shell", object_in(item, "action")) if call_id else None
