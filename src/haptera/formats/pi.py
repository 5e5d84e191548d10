"""pi's session files, version 3: JSON lines, a tree of entries by `parentId`, in and out."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import PurePosixPath

from msgspec.structs import replace

from haptera.formats.bounded_input import ByteStream
from haptera.formats.forms import (
    UniqueCallIds,
    call_from,
    cost_in,
    iso_time,
    json_line,
    leaves_out,
    media_from_data,
    milliseconds_of,
    number_in,
    object_in,
    session_uuid,
    split_usage,
    stand_in,
    text_in,
    tool_name,
    with_content,
    without_reminder_tags,
)
from haptera.formats.message_builder import AnswerFacts, FileLine, MessageBuilder, object_lines
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
from haptera.model.messages import AssistantMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ReasoningPart,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    argument_object,
)
from haptera.model.usage import Usage
from haptera.model.vendors import Protocol, split_model

__all__ = ["FORMAT", "leaves_out", "read_pi", "suggested_path", "write_pi"]

FORMAT = "pi"
VERSION = 3
_REMINDER = "haptera.reminder"


def suggested_path(export: SessionExport) -> PurePosixPath:
    """Return where pi looks for the file, below the home folder."""
    plain = export.cwd.removeprefix("/").removeprefix("\\")
    folder = "".join("-" if each in "/\\:" or not each.isprintable() else each for each in plain)
    clock = iso_time(export.created).replace(":", "-").replace(".", "-")
    name = f"{clock}_{session_uuid(export.session_id)}.jsonl"
    return PurePosixPath(".pi", "agent", "sessions", f"--{folder}--", name)


def write_pi(export: SessionExport) -> Iterator[bytes]:
    """Write the lines of a session that `pi --session FILE` goes on with."""
    session = session_uuid(export.session_id)
    begun = {"version": VERSION, "id": session, "timestamp": iso_time(export.created)}
    yield json_line({"type": "session", **begun, "cwd": export.cwd or "/"})
    writer = _Writer(export)
    provider, model = split_model(export.model)
    if model:
        change = {"type": "model_change", "provider": provider, "modelId": model}
        yield json_line(writer.entry(change, export.created))
    for each in export.messages:
        yield from map(json_line, writer.entries(each))
    if export.title:
        named = {"type": "session_info", "name": export.title}
        yield json_line(writer.entry(named, export.updated))


class _Writer:
    """Writes messages as entries, each the child of the one before."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._messages = _MessageWriter(export)
        self._parent: str | None = None
        self._count = 0

    def entries(self, each: TimedMessage) -> Iterator[JsonObject]:
        time = each.time or self._export.created
        is_answer = isinstance(each.message, AssistantMessage)
        for part in each.message.parts:
            if isinstance(part, CompactionPart) and part.text and not is_answer:
                yield self._compaction(part, time)
            elif isinstance(part, ReminderPart) and part.text:
                note = {"customType": _REMINDER, "content": part.text, "display": False}
                yield self.entry({"type": "custom_message", **note}, time)
        for message in self._messages.of(each, time):
            yield self.entry({"type": "message", "message": message}, time)

    def entry(self, fields: JsonObject, time: int) -> JsonObject:
        self._count += 1
        # Derived, not random, so that a session is written as the same bytes each time.
        own = sha256(f"{self._export.session_id}/{self._count}".encode()).hexdigest()[:12]
        entry = {**fields, "id": own, "parentId": self._parent, "timestamp": iso_time(time)}
        self._parent = own
        return entry

    def _compaction(self, part: CompactionPart, time: int) -> JsonObject:
        entry = self.entry({"type": "compaction", "summary": part.text, "tokensBefore": 0}, time)
        # Nothing before it is kept: no entry before it has this id.
        return entry | {"firstKeptEntryId": entry["id"]}


def read_pi(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a session file: the branch that ends with its last entry.

    Raises:
        ConfigError: CONFIG_INVALID if there is no message in it, or it exceeds a limit.

    """
    builder = MessageBuilder(FORMAT)
    lines = [_EntryLine(line) for line in object_lines(stream, limits, builder)]
    _Reader(builder, lines).read()
    return builder.finish("a session of pi")


class _EntryLine:
    """A line of the file with what its place in the tree is."""

    def __init__(self, line: FileLine) -> None:
        self.number, self.raw, self.fields, self.is_object = line
        self.kind = text_in(self.fields, "type")
        self.id = text_in(self.fields, "id")
        self.parent = text_in(self.fields, "parentId")
        self.time = milliseconds_of(self.fields.get("timestamp"))

    @property
    def name(self) -> str:
        """The kind, and for a message its role."""
        role = text_in(object_in(self.fields, "message"), "role")
        return f"{self.kind}/{role}" if role else self.kind


class _Reader:
    """Reads the entries of one file."""

    def __init__(self, builder: MessageBuilder, lines: list[_EntryLine]) -> None:
        self._builder = builder
        self._lines = lines
        self._begins: dict[str, int] = {}
        """How many messages there are before an entry, for summaries that keep some of them."""
        self._by_kind: dict[str, Callable[[_EntryLine], bool]] = {
            "session": self._session,
            "message": self._message,
            "compaction": self._compaction,
            "branch_summary": self._branch_summary,
            "custom_message": self._custom_message,
            "session_info": self._session_info,
            "model_change": self._model_change,
        }

    def read(self) -> None:
        branch = self._branch()
        for line in self._lines:
            if not line.is_object:
                self._builder.unreadable(line.number, line.raw)
                continue
            self._begins[line.id] = len(self._builder)
            is_on_branch = line.number in branch
            read = self._by_kind.get(line.kind) if is_on_branch else None
            if read is None or not read(line):
                why: WhyOpaque = "not conversation" if is_on_branch else "another branch"
                self._builder.opaque(
                    line.name, why, place=line.number, raw=line.raw, time=line.time
                )

    def _branch(self) -> set[int]:
        """Return the numbers of the lines that lead to the last entry, and of the header."""
        entries = [line for line in self._lines if line.is_object and line.kind != "session"]
        headers = {line.number for line in self._lines if line.kind == "session"}
        if not entries or not all(line.id for line in entries):
            return {line.number for line in self._lines}  # version 1 had no tree
        by_id = {line.id: line for line in entries}
        way: dict[str, int] = {}
        name = entries[-1].id
        while name in by_id and name not in way:
            way[name] = by_id[name].number
            name = by_id[name].parent
        if name in way:
            self._builder.warn("entries name each other as parents in a circle; it was cut")
        elif name:
            self._builder.warn("the beginning of this session is not in this file")
        return headers | set(way.values())

    def _session(self, line: _EntryLine) -> bool:
        facts = self._builder.facts
        facts.source_id, facts.cwd, facts.created = line.id, text_in(line.fields, "cwd"), line.time
        version = line.fields.get("version", 1)
        if not isinstance(version, int) or version > VERSION:
            self._builder.warn(f"this file has version {version}; versions up to 3 are known")
        return True

    def _message(self, line: _EntryLine) -> bool:
        return _read_message(object_in(line.fields, "message"), self._builder, time=line.time)

    def _compaction(self, line: _EntryLine) -> bool:
        summary = text_in(line.fields, "summary")
        if not summary:
            return False
        first_kept = self._begins.get(text_in(line.fields, "firstKeptEntryId"))
        # pi keeps the messages from `firstKeptEntryId` on beside the summary, so it goes before
        # these.
        self._builder.compaction(summary, time=line.time, before=first_kept)
        return True

    def _branch_summary(self, line: _EntryLine) -> bool:
        note = ReminderPart(text=text_in(line.fields, "summary"), persisted=True)
        self._builder.user([note] if note.text else [], time=line.time)
        return bool(note.text)

    def _custom_message(self, line: _EntryLine) -> bool:
        text = "\n".join(_texts_of(line.fields.get("content")))
        note = ReminderPart(text=without_reminder_tags(text), persisted=True)
        self._builder.user([note] if text else [], time=line.time)
        return bool(text)

    def _session_info(self, line: _EntryLine) -> bool:
        self._builder.facts.title = text_in(line.fields, "name") or None
        return True

    def _model_change(self, line: _EntryLine) -> bool:
        provider, model = text_in(line.fields, "provider"), text_in(line.fields, "modelId")
        self._builder.facts.model = f"{provider}/{model}"
        return bool(model)


_APIS: dict[Protocol, str] = {
    "messages": "anthropic-messages",
    "responses": "openai-responses",
    "chat": "openai-completions",
    "generate_content": "google-generative-ai",
    "ollama": "openai-completions",
    "native": "anthropic-messages",
    "process": "openai-completions",
}
"""What pi would speak to a provider with this protocol."""
_STOPS = {"tool_use": "toolUse", "tool_calls": "toolUse", "max_tokens": "length"}


class _MessageWriter:
    """Writes messages as pi keeps them. Owns the ids of calls across the conversation."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._ids = UniqueCallIds()

    def of(self, each: TimedMessage, time: int) -> Iterator[JsonObject]:
        """Yield what pi has for a message; each result of a tool is a message of its own."""
        message = each.message
        parts = [part for part in message.parts if not leaves_out(message, part)]
        if isinstance(message, AssistantMessage):
            # Elsewhere pi keeps something of its own under that name.
            is_sealed = self._export.protocols.get(message.provider) == "messages"
            content = [
                block for part in parts for block in self._answer_block(part, is_sealed=is_sealed)
            ]
            if content:
                yield self._answer(message, each, time) | {"content": content}
            return
        for part in parts:
            if isinstance(part, ToolResultPart):
                yield self._result(part, time)
        blocks = [self._content(part) for part in parts if isinstance(part, TextPart | MediaPart)]
        if blocks:
            yield {"role": "user", "content": blocks, "timestamp": time}

    def _answer(self, message: AssistantMessage, each: TimedMessage, time: int) -> JsonObject:
        stop = "toolUse" if message.tool_calls else _STOPS.get(message.finish_reason or "", "stop")
        return {
            "role": "assistant",
            "api": _APIS[self._export.protocols.get(message.provider, "chat")],
            "provider": message.provider,
            "model": message.model,
            "usage": _usage_fields(message.usage or Usage(), each),
            "stopReason": "aborted" if message.interrupted else stop,
            "timestamp": time,
        }

    def _answer_block(self, part: Part, *, is_sealed: bool) -> Iterator[JsonObject]:
        match part:
            case TextPart(text=text) | CompactionPart(text=text):
                yield {"type": "text", "text": text}
            case ReasoningPart(text=text):
                sealed = (
                    {"thinkingSignature": part.signature} if is_sealed and part.signature else {}
                )
                yield {"type": "thinking", "thinking": text, **sealed}
            case ToolCallPart():
                named = {"id": self._ids.of_call(part.call_id), "name": tool_name(part.name)}
                yield {"type": "toolCall", **named, "arguments": argument_object(part)}
            case _:
                return

    def _result(self, part: ToolResultPart, time: int) -> JsonObject:
        content = [self._content(piece) for piece in part.content]
        if not content and part.is_error:
            content = [{"type": "text", "text": part.outcome.replace("_", " ")}]
        return {
            "role": "toolResult",
            "toolCallId": self._ids.of_result(part.call_id),
            "toolName": tool_name(part.name),
            "content": content,
            "isError": part.is_error,
            "timestamp": time,
        }

    def _content(self, piece: ResultContent) -> JsonObject:
        if isinstance(piece, TextPart):
            return {"type": "text", "text": piece.text}
        part = with_content(piece, self._export)
        if part.data and part.is_readable and part.mime.startswith("image/"):
            return {"type": "image", "data": part.data, "mimeType": part.mime}
        return {"type": "text", "text": stand_in(part)}


def _usage_fields(usage: Usage, each: TimedMessage) -> JsonObject:
    cost = float(each.cost or 0)
    parts = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    return {
        "input": usage.fresh_input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "totalTokens": usage.total,
        "cost": {**parts, "total": cost},
    }


def _read_message(message: JsonObject, builder: MessageBuilder, *, time: int) -> bool:
    """Add a message to the conversation; False if it is of a role that is no part of it."""
    time = milliseconds_of(message.get("timestamp")) or time
    content = message.get("content")
    match message.get("role"):
        case "user":
            builder.user(_parts_of(content, builder), time=time)
        case "assistant":
            parts = _parts_of(content, builder)
            if message.get("api") != "anthropic-messages":
                parts = [_without_seal(part) for part in parts]
            builder.assistant(parts, _facts_of(message), time=time)
        case "toolResult" if text_in(message, "toolCallId"):
            builder.user([_result_of(message, builder)], time=time)
        case "bashExecution":
            builder.user([_shell_note(message)], time=time)
        case "custom" | "branchSummary" if _texts_of(content) or text_in(message, "summary"):
            text = text_in(message, "summary") or "\n".join(_texts_of(content))
            builder.user([ReminderPart(text=text, persisted=True)], time=time)
        case _:
            return False
    return True


def _without_seal(part: Part) -> Part:
    """Drop what pi keeps in that field for other APIs: it is not a signature of the provider."""
    return replace(part, signature=None) if isinstance(part, ReasoningPart) else part


def _texts_of(content: Json) -> list[str]:
    """Return the texts of a message's content, which is a text or a list of blocks."""
    if isinstance(content, str):
        return [content] if content else []
    return [text for block in objects_in(content) if (text := text_in(block, "text"))]


def _facts_of(message: JsonObject) -> AnswerFacts:
    usage = object_in(message, "usage")
    counted = split_usage(
        fresh=number_in(usage, "input"),
        read=number_in(usage, "cacheRead"),
        written=number_in(usage, "cacheWrite"),
        output=number_in(usage, "output"),
        reasoning=number_in(usage, "reasoning"),
    )
    stop = text_in(message, "stopReason")
    return AnswerFacts(
        provider=text_in(message, "provider"),
        model=text_in(message, "model"),
        usage=counted if usage else None,
        finish_reason=text_in(message, "rawStopReason") or stop or None,
        interrupted=stop in {"aborted", "error"},
        cost=cost_in(object_in(usage, "cost"), "total"),
    )


def _parts_of(content: Json, builder: MessageBuilder) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(text=content)]
    blocks = content if isinstance(content, list) else []
    return [_part_of(block) or builder.opaque_part(block) for block in blocks]


def _part_of(block: Json) -> Part | None:
    match text_in(block, "type"):
        case "text" if isinstance(block.get("text"), str):
            return TextPart(text=block["text"])
        case "thinking" if isinstance(block.get("thinking"), str):
            signature = text_in(block, "thinkingSignature") or None
            return ReasoningPart(text=block["thinking"], signature=signature)
        case "toolCall" if text_in(block, "id") and text_in(block, "name"):
            return call_from(block["id"], block["name"], block.get("arguments", {}))
        case "image":
            mime = text_in(block, "mimeType") or "image/png"
            return media_from_data(text_in(block, "data"), mime=mime)
        case _:
            return None


def _result_of(message: JsonObject, builder: MessageBuilder) -> ToolResultPart:
    parts = _parts_of(message.get("content"), builder)
    return ToolResultPart(
        call_id=CallId(text_in(message, "toolCallId")),
        name=text_in(message, "toolName"),
        outcome="error" if message.get("isError") is True else "ok",
        content=tuple(part for part in parts if isinstance(part, TextPart | MediaPart)),
    )


def _shell_note(message: JsonObject) -> TextPart:
    """Return a command that the user ran beside the conversation, as the model is told of it."""
    command, output = text_in(message, "command"), text_in(message, "output")
    return TextPart(text=f"Ran `{command}`\n```\n{output}\n```")
