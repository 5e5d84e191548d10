"""Codex's rollout files: JSON lines of Responses items with bookkeeping in between, in and out."""

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Literal

from msgspec.structs import replace

from haptera.formats.bounded_input import ByteStream
from haptera.formats.export_fitting import ExportFitter, as_text_alone
from haptera.formats.forms import (
    iso_time,
    json_line,
    milliseconds_of,
    number_in,
    object_in,
    session_uuid,
    text_in,
)
from haptera.formats.message_builder import FileLine, MessageBuilder, object_lines
from haptera.formats.openai_responses.decoding import PROVIDER, ItemReader
from haptera.formats.openai_responses.encoding import (
    CUSTOM_CALL,
    ItemRules,
    call_item,
    input_piece,
    is_custom_call,
    output_item,
)
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    SessionExport,
    TimedMessage,
    WhyOpaque,
)
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
    reminder_text,
)
from haptera.model.usage import Usage
from haptera.model.vendors import split_model

FORMAT = "codex"

_SILENT = frozenset(
    {"user_message", "agent_message", "agent_reasoning", "item_completed", "token_count"}
)
"""Events that repeat what the items say; they are for the list of sessions and need no keeping."""

_RULES = ItemRules(image_detail=False)


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


def suggested_path(export: SessionExport) -> PurePosixPath:
    """Return where Codex looks for the file, below the home folder."""
    time = iso_time(export.created)
    day, clock = time[:10], time[:19].replace(":", "-")
    name = f"rollout-{clock}-{session_uuid(export.session_id)}.jsonl"
    return PurePosixPath(".codex", "sessions", *day.split("-"), name)


def write_codex(export: SessionExport) -> Iterator[bytes]:
    """Write the lines of a session that `codex resume` goes on with."""
    session = session_uuid(export.session_id)
    provider, _ = split_model(export.model)
    system = "\n\n".join(filter(None, export.system_prompts))
    meta = {
        "id": session,
        "timestamp": iso_time(export.created),
        "cwd": export.cwd or "/",
        "originator": "haptera",
        "cli_version": "0.0.0",
        "source": "cli",
        "model_provider": provider or PROVIDER,
        **({"base_instructions": {"text": system}} if system else {}),
    }
    yield _line("session_meta", meta, export.created)
    writer = _ItemWriter(export)
    for each in export.messages:
        time = each.time or export.created
        for kind, payload in _payloads(each, writer):
            yield _line(kind, payload, time)


def _line(kind: str, payload: JsonObject, time: int) -> bytes:
    return json_line({"timestamp": iso_time(time), "type": kind, "payload": payload})


def _payloads(each: TimedMessage, writer: "_ItemWriter") -> Iterator[tuple[str, JsonObject]]:
    message = each.message
    for part in message.parts:
        if isinstance(part, CompactionPart) and not isinstance(message, AssistantMessage):
            history = [_text_item("user", part.text)]
            yield "compacted", {"message": part.text, "replacement_history": history}
    for item in writer.items(message):
        yield "response_item", item
    # Codex lists a session by these, and shows them when it is resumed.
    kind = "agent_message" if isinstance(message, AssistantMessage) else "user_message"
    for part in message.parts:
        if isinstance(part, TextPart) and part.text.strip():
            yield "event_msg", {"type": kind, "message": part.text}
    usage = message.usage if isinstance(message, AssistantMessage) else None
    if usage is not None:
        yield "event_msg", {"type": "token_count", "info": _usage_fields(usage)}


def _usage_fields(usage: Usage) -> JsonObject:
    counted = {
        "input_tokens": usage.input,
        "cached_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "reasoning_output_tokens": usage.reasoning,
        "total_tokens": usage.total,
    }
    return {"total_token_usage": counted, "last_token_usage": counted}


class _ItemWriter:
    """Writes messages as items, in the forms that Codex gives them."""

    def __init__(self, export: SessionExport) -> None:
        self._fitter = ExportFitter(export, takes_media=_is_picture)
        self._custom: set[CallId] = set()

    def items(self, message: Message) -> Iterator[JsonObject]:
        """Yield the items of a message; summaries of user messages are not among them."""
        parts = [part for part in message.parts if not leaves_out(message, part)]
        if isinstance(message, UserMessage):
            yield from self._of_user(parts)
            return
        for part in parts:
            yield from self._of_answer(part)

    def _of_user(self, parts: list[Part]) -> Iterator[JsonObject]:
        content: list[JsonObject | None] = []
        for part in parts:
            match part:
                case ToolResultPart():
                    yield self._output(part)
                case ReminderPart(text=text):
                    yield _text_item("developer", text)
                case TextPart() | MediaPart():
                    content.append(input_piece(self._fitter.fitted(part), _RULES))
                case _:
                    continue
        if content:
            yield {"type": "message", "role": "user", "content": content}

    def _output(self, part: ToolResultPart) -> JsonObject:
        result = self._fitter.result(part)
        # A picture whose content is missing stands among the pieces as a text.
        has_media = any(map(_is_picture, part.content))
        if not has_media:
            result = as_text_alone(result)
        is_custom = result.call_id in self._custom
        return output_item(result, _RULES, is_custom=is_custom, has_media=has_media)

    def _of_answer(self, part: Part) -> Iterator[JsonObject]:
        match part:
            case TextPart(text=text) | CompactionPart(text=text):
                yield _text_item("assistant", text)
            case ReminderPart(text=text):
                yield _text_item("assistant", reminder_text(text))
            case ReasoningPart():
                summary = [{"type": "summary_text", "text": part.text}] if part.text else []
                sealed = {"id": (part.native or {})["id"], "encrypted_content": part.signature}
                yield {"type": "reasoning", "summary": summary, **sealed}
            case ToolCallPart():
                call = self._fitter.call(part)
                if is_custom_call(part):
                    # The outputs of its calls come in a later message.
                    self._custom.add(call.call_id)
                    call = replace(call, native={"type": CUSTOM_CALL})
                yield call_item(call)
            case ProviderPart(payload=payload):
                yield payload
            case _:
                return


def _is_picture(piece: ResultContent) -> bool:
    return isinstance(piece, MediaPart) and piece.mime.startswith("image/")


def _text_item(role: Literal["user", "assistant", "developer"], text: str) -> JsonObject:
    """Return a message that is one text."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def read_codex(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a rollout file.

    Raises:
        ConfigError: CONFIG_INVALID if there is no message in it, or it exceeds a limit.

    """
    reader = _Reader()
    for line in object_lines(stream, limits, reader.builder):
        if line.is_object:
            reader.add(line)
        else:
            reader.builder.unreadable(line.number, line.raw)
    return reader.builder.finish("a rollout of Codex")


class _Reader:
    """Reads the lines of one file in order."""

    def __init__(self) -> None:
        self.builder = MessageBuilder(FORMAT)
        self._items = ItemReader(self.builder)
        self._by_kind: dict[str, Callable[[JsonObject, int], bool]] = {
            "session_meta": self._meta,
            "response_item": self._items.add,
            "compacted": self._compacted,
            "event_msg": self._event,
            "turn_context": self._turn_context,
            "token_usage_record": self._usage_record,
        }
        self._has_usage_records = False
        self._sessions = 0

    def add(self, line: FileLine) -> None:
        fields = line.fields
        kind, payload = text_in(fields, "type"), fields.get("payload")
        if not isinstance(payload, dict):
            # The first versions wrote items and session facts without anything around them.
            is_item = kind in self._items.kinds
            payload = fields if is_item or not kind else None
            kind = "response_item" if is_item else kind or "session_meta"
        time = milliseconds_of(fields.get("timestamp"))
        read = self._by_kind.get(kind)
        if payload is None or read is None or not read(payload, time):
            inner = text_in(payload, "type")
            name = f"{kind}/{inner}" if kind in {"event_msg", "response_item"} and inner else kind
            is_item = kind == "response_item"
            why: WhyOpaque = "not understood" if is_item else "not conversation"
            self.builder.opaque(name, why, place=line.number, raw=line.raw, time=time)

    def _meta(self, payload: JsonObject, time: int) -> bool:
        if not text_in(payload, "id"):
            return False
        self._sessions += 1
        if self._sessions > 1:
            return True  # a fork copies what its parent said of itself
        facts = self.builder.facts
        facts.source_id, facts.cwd = text_in(payload, "id"), text_in(payload, "cwd")
        facts.created = milliseconds_of(payload.get("timestamp")) or time
        self._items.provider = text_in(payload, "model_provider") or PROVIDER
        instructions = object_in(payload, "base_instructions")
        if "provenance" not in instructions and (text := text_in(instructions, "text")):
            facts.system_prompts = (text,)  # otherwise they are Codex's own
        if "forked_from_ordinal_exclusive" in payload:
            parent = text_in(payload, "forked_from_id")
            self.builder.warn(f"the beginning of this session is in the file of session {parent}")
        return True

    def _turn_context(self, payload: JsonObject, _time: int) -> bool:
        self._items.model = text_in(payload, "model") or self._items.model
        if self._items.model:
            self.builder.facts.model = f"{self._items.provider}/{self._items.model}"
        return False  # it says more than we take from it

    def _usage_record(self, payload: JsonObject, _time: int) -> bool:
        self._has_usage_records = True
        self.builder.usage_of_last_answer(_usage_from(object_in(payload, "usage")))
        return True

    def _event(self, payload: JsonObject, _time: int) -> bool:
        kind = text_in(payload, "type")
        if kind == "thread_rolled_back":
            # The event is kept as a record: otherwise nothing would tell that something was taken
            # back.
            self.builder.drop_prompts(number_in(payload, "num_turns"))
            return False
        # Files with records of usage have these counts as well, and they would be added twice.
        if kind == "token_count" and not self._has_usage_records:
            last = object_in(object_in(payload, "info"), "last_token_usage")
            if last:
                self.builder.usage_of_last_answer(_usage_from(last))
        if kind == "thread_name_updated":
            self.builder.facts.title = text_in(payload, "thread_name") or None
            return True
        return kind in _SILENT

    def _compacted(self, payload: JsonObject, time: int) -> bool:
        text = text_in(payload, "message")
        if not text:
            # Some files have no summary, but only the history that takes the place of the old one.
            text = "\n\n".join(_texts_of(payload.get("replacement_history")))
        if not text:
            return False
        self.builder.compaction(text, time=time)
        return True


def _usage_from(fields: JsonObject) -> Usage:
    return Usage(
        input=number_in(fields, "input_tokens"),
        output=number_in(fields, "output_tokens"),
        cache_read=number_in(fields, "cached_input_tokens"),
        cache_write=number_in(fields, "cache_write_input_tokens"),
        reasoning=number_in(fields, "reasoning_output_tokens"),
    )


def _texts_of(items: Json) -> Iterator[str]:
    for item in objects_in(items):
        for piece in objects_in(item.get("content")):
            if text := text_in(piece, "text"):
                yield text
