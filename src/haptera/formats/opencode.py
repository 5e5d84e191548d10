"""opencode's exports: one JSON document of messages with parts, in and out."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from haptera.formats.bounded_input import (
    ByteStream,
    checked_count,
    document_of,
    refused,
)
from haptera.formats.forms import (
    UniqueCallIds,
    call_from,
    cost_in,
    leaves_out,
    media_from_url,
    milliseconds_of,
    number_in,
    object_in,
    result_as_text,
    session_uuid,
    split_usage,
    stand_in,
    text_in,
    tool_name,
    with_content,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.values import (
    LIMITS,
    ImportedSession,
    ImportLimits,
    SessionExport,
    TimedMessage,
)
from haptera.model.ids import CallId, parse_session_id
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
from haptera.model.vendors import split_model

__all__ = ["FORMAT", "leaves_out", "read_opencode", "write_opencode"]

FORMAT = "opencode"

_SESSION = "ses_"
_STEPS_PER_MILLISECOND = 0x1000
_HEAD = 0xFFFFFFFFFFFF


def write_opencode(export: SessionExport) -> Iterator[bytes]:
    """Write the document that `opencode import FILE` takes."""
    writer = _Writer(export)
    yield b'{"info":' + msgspec.json.encode(writer.session()) + b',"messages":['
    comma = b"\n"
    for message in writer.messages():
        yield comma + msgspec.json.encode(message)
        comma = b",\n"
    yield b"\n]}\n"


class _Ids:
    """Makes ids that sort in the order in which they are made: opencode sorts messages by them."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._last = 0

    def new(self, prefix: str, time: int) -> str:
        # As opencode makes them: milliseconds times 0x1000 and a counter, of which 48 bits are
        # kept.
        self._last = max(time * _STEPS_PER_MILLISECOND, self._last + 1)
        tail = sha256(f"{self._session}/{prefix}/{self._last}".encode()).hexdigest()[:14]
        return f"{prefix}_{self._last & _HEAD:012x}{tail}"


class _Writer:
    """Writes a session; a result of a tool goes into the call that it answers."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._id = _SESSION + session_uuid(export.session_id).replace("-", "")
        self._ids = _Ids(self._id)
        self._parts = _PartWriter(export)
        self._provider, self._model = split_model(export.model)
        self._prompt = ""

    def session(self) -> JsonObject:
        export = self._export
        return {
            "id": self._id,
            "slug": self._id[-12:],
            "projectID": "global",
            "directory": export.cwd or "/",
            "title": export.title or "Imported session",
            "version": "1.0.0",
            "cost": float(export.cost or 0),
            "tokens": _token_fields(export.usage),
            "time": {"created": export.created, "updated": export.updated or export.created},
        }

    def messages(self) -> Iterator[JsonObject]:
        messages = self._export.messages
        for index, each in enumerate(messages):
            if isinstance(each.message, AssistantMessage):
                following = messages[index + 1].message.parts if index + 1 < len(messages) else ()
                yield from self._answer(each, each.message, following)
            else:
                yield from self._said(each)

    def _said(self, each: TimedMessage) -> Iterator[JsonObject]:
        parts = [part for part in each.message.parts if not isinstance(part, ToolResultPart)]
        for summary in (part for part in parts if isinstance(part, CompactionPart) and part.text):
            yield from self._compaction(summary, each)
        written = [
            fields
            for part in parts
            if not isinstance(part, CompactionPart)
            for fields in self._parts.said(part)
        ]
        if written:
            yield self._user(written, each)

    def _user(self, written: list[JsonObject], each: TimedMessage) -> JsonObject:
        time = each.time or self._export.created
        own = self._prompt = self._ids.new("msg", time)
        # opencode demands both, so a dash stands for what is not known.
        using = {"providerID": self._provider or "-", "modelID": self._model or "-"}
        about = {"id": own, "role": "user", "agent": "build", "model": using}
        info = {**about, "sessionID": self._id, "time": {"created": time}}
        return {"info": info, "parts": self._numbered(written, own, time)}

    def _compaction(self, part: CompactionPart, each: TimedMessage) -> Iterator[JsonObject]:
        """Write a request for a summary and the answer that is one."""
        yield self._user([{"type": "compaction", "auto": False}], each)
        answer = AssistantMessage(id=each.message.id, parts=(), model=self._model)
        written = [{"type": "text", "text": part.text}]
        yield self._assistant(answer, each, written, summary=True)

    def _answer(
        self, each: TimedMessage, message: AssistantMessage, following: tuple[Part, ...]
    ) -> Iterator[JsonObject]:
        results = {part.call_id: part for part in following if isinstance(part, ToolResultPart)}
        written = [
            fields
            for part in message.parts
            for fields in self._parts.answered(part, results, each.time or self._export.created)
        ]
        if written:
            yield self._assistant(message, each, written)

    def _assistant(
        self,
        message: AssistantMessage,
        each: TimedMessage,
        written: list[JsonObject],
        *,
        summary: bool = False,
    ) -> JsonObject:
        time = each.time or self._export.created
        own, cost = self._ids.new("msg", time), float(each.cost or 0)
        finish = "tool-calls" if message.tool_calls else "stop"
        tokens, folder = _token_fields(message.usage or Usage()), self._export.cwd or "/"
        about = {
            "id": own,
            "sessionID": self._id,
            "role": "assistant",
            "parentID": self._prompt or own,
            "modelID": message.model or self._model or "-",
            "providerID": message.provider or self._provider or "-",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": folder, "root": folder},
            "cost": cost,
            "tokens": tokens,
            "time": {"created": time, "completed": time},
            "finish": finish,
            **({"summary": True} if summary else {}),
        }
        ended = {"type": "step-finish", "reason": finish, "cost": cost, "tokens": tokens}
        parts = [{"type": "step-start"}, *written, ended]
        return {"info": about, "parts": self._numbered(parts, own, time)}

    def _numbered(self, parts: list[JsonObject], message: str, time: int) -> list[JsonObject]:
        ids = {"sessionID": self._id, "messageID": message}
        return [{**part, "id": self._ids.new("prt", time), **ids} for part in parts]


def _token_fields(usage: Usage) -> JsonObject:
    return {
        "input": usage.fresh_input,
        "output": usage.visible_output,
        "reasoning": usage.reasoning,
        "cache": {"read": usage.cache_read, "write": usage.cache_write},
    }


def read_opencode(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read what `opencode export` wrote.

    Raises:
        ConfigError: CONFIG_INVALID if it is no such document, or exceeds a limit.

    """
    document = document_of(stream, limits)
    messages = document.get("messages") if isinstance(document, dict) else None
    if not isinstance(messages, list):
        raise refused("this is not an export of opencode: it has no list of messages")
    builder = MessageBuilder(FORMAT)
    _note_facts(object_in(document, "info"), builder)
    for place, message in enumerate(checked_count(messages, limits), start=1):
        builder.records += 1
        role = text_in(object_in(message, "info"), "role")
        if role == "user":
            _add_said(message, builder)
        elif role == "assistant":
            _add_answer(message, builder)
        else:
            raw = msgspec.json.encode(message)
            builder.opaque(role, "not understood", place=place, raw=raw)
    return builder.finish("an export of opencode")


def _note_facts(info: JsonObject, builder: MessageBuilder) -> None:
    facts, times = builder.facts, object_in(info, "time")
    name = text_in(info, "id").removeprefix(_SESSION)
    # The id in our own exports is the UUID of the session without its dashes.
    dashed = f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"
    facts.source_id = parse_session_id(dashed) or text_in(info, "id")
    facts.title, facts.cwd = text_in(info, "title") or None, text_in(info, "directory")
    facts.created = milliseconds_of(times.get("created"))
    facts.updated = milliseconds_of(times.get("updated"))
    model = object_in(info, "model")
    if text_in(model, "id", "modelID"):
        facts.model = f"{text_in(model, 'providerID')}/{text_in(model, 'id', 'modelID')}"


def _add_said(message: JsonObject, builder: MessageBuilder) -> None:
    info = object_in(message, "info")
    model = object_in(info, "model")
    if text_in(model, "modelID") not in {"", "-"} and not builder.facts.model:
        builder.facts.model = f"{text_in(model, 'providerID')}/{text_in(model, 'modelID')}"
    parts = objects_in(message.get("parts"))
    # The answer to a request for a summary is the summary; the request says nothing.
    prompt_parts = [part for part in parts if part.get("type") != "compaction"]
    time = milliseconds_of(object_in(info, "time").get("created"))
    builder.user([_read_said_part(part, builder) for part in prompt_parts], time=time)


def _add_answer(message: JsonObject, builder: MessageBuilder) -> None:
    """Add an answer; one of several steps is several answers with results in between."""
    info = object_in(message, "info")
    time = milliseconds_of(object_in(info, "time").get("created"))
    parts, facts = objects_in(message.get("parts")), _facts_of(info)
    if info.get("summary") is True:
        texts = [text_in(part, "text") for part in parts if part.get("type") == "text"]
        builder.compaction("".join(texts), time=time)
        return
    step = _Settled([], [])
    for part in parts:
        if part.get("type") == "step-start" and step.results:
            _add_step(step, facts, builder, time=time)
            # The usage is that of the whole message, so only the first of its answers has it.
            step, facts = _Settled([], []), replace(facts, usage=None, cost=None)
        answer_parts, results = _read_answer_part(part, builder)
        step.said.extend(answer_parts)
        step.results.extend(results)
    _add_step(step, facts, builder, time=time)


def _add_step(step: "_Settled", facts: AnswerFacts, builder: MessageBuilder, *, time: int) -> None:
    builder.assistant(step.said, facts, time=time)
    builder.user(step.results, time=time)


def _facts_of(info: JsonObject) -> AnswerFacts:
    tokens, error = object_in(info, "tokens"), object_in(info, "error")
    cache, reasoning = object_in(tokens, "cache"), number_in(tokens, "reasoning")
    usage = split_usage(
        fresh=number_in(tokens, "input"),
        read=number_in(cache, "read"),
        written=number_in(cache, "write"),
        # opencode counts reasoning apart from the output.
        output=number_in(tokens, "output") + reasoning,
        reasoning=reasoning,
    )
    return AnswerFacts(
        provider=text_in(info, "providerID"),
        model=text_in(info, "modelID"),
        usage=usage if tokens else None,
        finish_reason=text_in(info, "finish") or None,
        interrupted=bool(error),
        cost=cost_in(info, "cost"),
    )


_SILENT = frozenset({"step-start", "step-finish"})
"""Parts that say when a turn began and what it used; the message says so, too."""


class _Settled(NamedTuple):
    """What a part of an answer is for us: something said, and the result of a tool."""

    said: list[Part]
    results: list[ToolResultPart]


class _PartWriter:
    """Writes parts as opencode keeps them. Owns the ids of calls across the conversation."""

    def __init__(self, export: SessionExport) -> None:
        self._export = export
        self._ids = UniqueCallIds()

    def said(self, part: Part) -> Iterator[JsonObject]:
        """Yield the part of a user message."""
        match part:
            case TextPart(text=text) if text:
                yield {"type": "text", "text": text}
            case ReminderPart(text=text) if text:
                yield {"type": "text", "text": text, "synthetic": True}
            case MediaPart():
                yield self._file(part) or {"type": "text", "text": stand_in(part)}
            case _:
                return

    def answered(
        self, part: Part, results: Mapping[CallId, ToolResultPart], time: int
    ) -> Iterator[JsonObject]:
        """Yield the part of an answer; a call has its result in it."""
        times = {"start": time, "end": time}
        match part:
            case TextPart(text=text) | CompactionPart(text=text) if text:
                yield {"type": "text", "text": text, "time": times}
            case ReasoningPart(text=text) if text:
                yield {"type": "reasoning", "text": text, "time": times}
            case ToolCallPart():
                state = self._state(part, results.get(part.call_id), times)
                call_id = self._ids.of_call(part.call_id)
                yield {"type": "tool", "callID": call_id, "tool": tool_name(part.name)} | {
                    "state": state
                }
            case _:
                return

    def _state(
        self, call: ToolCallPart, result: ToolResultPart | None, times: JsonObject
    ) -> JsonObject:
        state: JsonObject = {"input": argument_object(call), "time": times}
        if result is None:
            return {**state, "status": "error", "error": "There is no result of this call."}
        if result.is_error:
            return {**state, "status": "error", "error": result_as_text(result)}
        files = [
            each
            for piece in result.content
            if isinstance(piece, MediaPart) and (each := self._file(piece)) is not None
        ]
        texts = [
            piece.text if isinstance(piece, TextPart) else stand_in(piece)
            for piece in result.content
            if isinstance(piece, TextPart) or self._file(piece) is None
        ]
        return {
            **state,
            "status": "completed",
            "output": "".join(texts),
            "title": call.name,
            "metadata": {},
            **({"attachments": files} if files else {}),
        }

    def _file(self, part: MediaPart) -> JsonObject | None:
        part = with_content(part, self._export)
        where = part.url or (part.data_url if part.data and part.is_readable else None)
        if where is None:
            return None
        named = {"filename": part.filename} if part.filename else {}
        return {"type": "file", "mime": part.mime, "url": where, **named}


def _read_said_part(part: JsonObject, builder: MessageBuilder) -> Part:
    """Return a part of a user message."""
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        if part.get("synthetic") is True:
            return ReminderPart(text=part["text"], persisted=True)
        return TextPart(text=part["text"])
    if kind == "file" and (media := _media_of(part)) is not None:
        return media
    return builder.opaque_part(part)


def _read_answer_part(part: JsonObject, builder: MessageBuilder) -> _Settled:
    """Return what a part of an answer is for us."""
    match text_in(part, "type"):
        case "text" if isinstance(part.get("text"), str):
            return _Settled([TextPart(text=part["text"])], [])
        case "reasoning" if isinstance(part.get("text"), str):
            return _Settled([ReasoningPart(text=part["text"])], [])
        case "tool" if text_in(part, "callID") and text_in(part, "tool"):
            return _tool_of(part)
        case kind if kind in _SILENT:
            return _Settled([], [])
        case _:
            return _Settled([builder.opaque_part(part)], [])


def _tool_of(part: JsonObject) -> _Settled:
    name, state = text_in(part, "tool"), object_in(part, "state")
    call = call_from(text_in(part, "callID"), name, _arguments_of(state))
    content: list[ResultContent] = []
    match state.get("status"):
        case "completed":
            media = map(_media_of, objects_in(state.get("attachments")))
            content = [TextPart(text=text_in(state, "output")), *filter(None, media)]
            result = ToolResultPart(call_id=call.call_id, name=name, content=tuple(content))
        case "error":
            content = [TextPart(text=text_in(state, "error"))]
            result = ToolResultPart(
                call_id=call.call_id, name=name, outcome="error", content=tuple(content)
            )
        case _:
            return _Settled([call], [])  # it was still to be settled
    return _Settled([call], [result])


def _arguments_of(state: JsonObject) -> Json:
    return state.get("input", {})


def _media_of(part: JsonObject) -> MediaPart | None:
    mime, name = text_in(part, "mime"), text_in(part, "filename") or None
    return media_from_url(text_in(part, "url"), mime=mime, filename=name)
