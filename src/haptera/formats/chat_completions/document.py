"""OpenAI messages: the list of a Chat Completions request as one JSON document, in and out."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from haptera.formats.bounded_input import (
    ByteStream,
    checked_count,
    document_of,
    refused,
)
from haptera.formats.chat_completions.encoding import (
    AUDIO_FORMATS,
    MessageRules,
    finish_lowered,
    lower_message,
)
from haptera.formats.export_fitting import ExportFitter
from haptera.formats.forms import (
    call_from_text,
    media_from_data,
    media_from_url,
    object_in,
    text_in,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.openai_responses.decoding import ItemReader, piece_of_item
from haptera.formats.tool_texts import CUSTOM_INPUT
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    SessionExport,
)
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolResultPart,
)

FORMAT = "openai"

_RULES = MessageRules(is_simplified=False)


def leaves_out(message: Message, part: Part) -> bool:
    """Whether a part has no place in the file: empty text, reasoning, what providers attach."""
    match part:
        case TextPart(text=text) | CompactionPart(text=text):
            return not text
        case ReasoningPart() | ProviderPart():
            return True
        # An answer holds texts and calls only.
        case ReminderPart(text=text):
            return not text or isinstance(message, AssistantMessage)
        case MediaPart():
            return isinstance(message, AssistantMessage)
        case _:
            return False


def write_openai_messages(export: SessionExport) -> Iterator[bytes]:
    """Write the list of messages, system prompts first, ready to be sent with a model."""
    yield b"["
    comma = b"\n"
    for message in _messages(export):
        yield comma + msgspec.json.encode(message)
        comma = b",\n"
    yield b"\n]\n"


def _messages(export: SessionExport) -> Iterator[JsonObject]:
    for prompt in export.system_prompts:
        if prompt:
            yield {"role": "system", "content": prompt}
    fitter = ExportFitter(export, takes_media=_takes, results_are_text=True)
    for each in export.messages:
        message = each.message
        parts = [fitter.fitted(part) for part in message.parts if not leaves_out(message, part)]
        for lowered in lower_message(_RULES, replace(message, parts=tuple(parts))):
            yield finish_lowered(_RULES, lowered)


def _takes(media: MediaPart) -> bool:
    return media.mime.startswith("image/") or media.data is not None


def read_openai_messages(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a list of messages, or a request's body that has one.

    Raises:
        ConfigError: CONFIG_INVALID if it is no such document, or exceeds a limit.

    """
    document = document_of(stream, limits)
    messages = document
    if isinstance(document, dict):
        # A request of the Responses API names its list `input`.
        messages = document.get("messages", document.get("input", document.get("output")))
    if not isinstance(messages, list):
        raise refused("this is not a document of OpenAI messages: it has no list of messages")
    builder = MessageBuilder(FORMAT)
    builder.facts.model = text_in(document, "model")
    _add_system(document.get("instructions") if isinstance(document, dict) else None, builder)
    items = ItemReader(builder)
    items.model = builder.facts.model
    for place, message in enumerate(checked_count(messages, limits), start=1):
        builder.records += 1
        if not isinstance(message, dict) or not _add(message, builder, items):
            raw, kind = msgspec.json.encode(message), text_in(message, "role", "type")
            builder.opaque(kind, "not understood", place=place, raw=raw)
    return builder.finish("a document of OpenAI messages")


def _add(message: JsonObject, builder: MessageBuilder, items: ItemReader) -> bool:
    """Add a message, or an item of the Responses API; False if its role is not known."""
    if message.get("type", "message") != "message":
        return items.add(message, 0)
    content = message.get("content")
    match message.get("role"):
        case "system" | "developer":
            _add_system(content, builder)
        case "user":
            builder.user(_parts_of(content, builder))
        case "assistant":
            facts = AnswerFacts(model=builder.facts.model)
            builder.assistant(_said(message, builder), facts)
        case "tool" | "function":
            # The role `function` is the form before `tool`. Its calls had no ids, and are found by
            # name.
            call_id = text_in(message, "tool_call_id", "name")
            parts = _parts_of(content, builder)
            texts = tuple(part for part in parts if isinstance(part, TextPart | MediaPart))
            result = ToolResultPart(call_id=CallId(call_id), name="", content=texts)
            builder.user([result])
        case _:
            return False
    return True


def _add_system(content: Json, builder: MessageBuilder) -> None:
    parts = _parts_of(content, builder)
    builder.system(part.text for part in parts if isinstance(part, TextPart))


def _said(message: JsonObject, builder: MessageBuilder) -> list[Part]:
    reasoning = text_in(message, "reasoning_content", "reasoning")
    parts: list[Part] = [ReasoningPart(text=reasoning)] if reasoning else []
    parts += _parts_of(message.get("content"), builder)
    if refusal := text_in(message, "refusal"):
        parts.append(TextPart(text=refusal))
    for call in objects_in(message.get("tool_calls")):
        parts.append(_call_of(call) or builder.opaque_part(call))
    old = object_in(message, "function_call")
    if name := text_in(old, "name"):  # the form before `tool_calls`; the name is the id
        parts.append(call_from_text(name, name, old.get("arguments")))
    return parts


def _call_of(call: JsonObject) -> Part | None:
    function, custom = object_in(call, "function"), object_in(call, "custom")
    call_id = text_in(call, "id")
    if call_id and text_in(function, "name"):
        return call_from_text(call_id, text_in(function, "name"), function.get("arguments"))
    if call_id and text_in(custom, "name"):
        arguments = {CUSTOM_INPUT: text_in(custom, "input")}
        return call_from_text(call_id, text_in(custom, "name"), arguments)
    return None


def _parts_of(content: Json, builder: MessageBuilder) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(text=content)] if content else []
    pieces = content if isinstance(content, list) else [] if content is None else [content]
    return [_part_of(piece) or builder.opaque_part(piece) for piece in pieces]


def _part_of(piece: Json) -> Part | None:
    match text_in(piece, "type"):
        case "text" | "refusal" if text_in(piece, "text", "refusal"):
            return TextPart(text=text_in(piece, "text", "refusal"))
        case "input_text" | "output_text" | "input_image" | "input_file":
            return piece_of_item(piece)
        case "image_url":
            url = text_in(object_in(piece, "image_url"), "url") or text_in(piece, "image_url")
            return media_from_url(url, mime="image/png")
        case "input_audio":
            sound = object_in(piece, "input_audio")
            form = text_in(sound, "format")
            mime = next((mime for mime, each in AUDIO_FORMATS.items() if each == form), "")
            return media_from_data(text_in(sound, "data"), mime=mime)
        case "file":
            file = object_in(piece, "file")
            name = text_in(file, "filename") or None
            return media_from_url(text_in(file, "file_data"), filename=name)
        case _:
            return None
