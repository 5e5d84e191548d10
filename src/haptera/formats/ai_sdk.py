"""The AI SDK: a list of `UIMessage`, as `useChat` keeps it, read."""

import msgspec

from haptera.formats.bounded_input import ByteStream, checked_count, document_of, refused
from haptera.formats.forms import (
    call_from,
    media_from_url,
    milliseconds_of,
    object_in,
    text_in,
    value_content,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.values import LIMITS, ImportedSession, ImportLimits
from haptera.model.ids import CallId
from haptera.model.json_types import Json, JsonObject, objects_in
from haptera.model.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)

FORMAT = "ai-sdk"
_ENDS: dict[str, ToolOutcome] = {
    "output-available": "ok",
    "output-error": "error",
    "output-denied": "denied",
}
_TOOL = "tool-"


def read_ai_sdk(stream: ByteStream, limits: ImportLimits = LIMITS) -> ImportedSession:
    """Read a list of messages, or an object such as the body of a request that has one.

    Raises:
        ConfigError: CONFIG_INVALID if it is no such document, or exceeds a limit.

    """
    document = document_of(stream, limits)
    messages = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(messages, list):
        raise refused("this is not a document of the AI SDK: it has no list of messages")
    builder = MessageBuilder(FORMAT)
    for place, message in enumerate(checked_count(messages, limits), start=1):
        builder.records += 1
        role = text_in(message, "role")
        parts = message.get("parts") if isinstance(message, dict) else None
        if not isinstance(parts, list) or role not in {"system", "user", "assistant"}:
            raw = msgspec.json.encode(message)
            builder.opaque(role, "not understood", place=place, raw=raw)
            continue
        metadata = object_in(message, "metadata")
        time = milliseconds_of(metadata.get("createdAt"))
        if set(metadata) - {"createdAt"}:
            builder.leave_out("metadata of messages")
        if role == "assistant":
            _Answer(builder, time).read(parts)
        elif role == "user":
            builder.user([_part_of(part) or builder.opaque_part(part) for part in parts], time=time)
        else:
            builder.system(text_in(part, "text") for part in parts)
    return builder.finish("a list of messages of the AI SDK")


class _Answer:
    """Reads one answer, whose calls have their results in them: several messages for us."""

    def __init__(self, builder: MessageBuilder, time: int) -> None:
        self._builder = builder
        self._time = time
        self._parts: list[Part] = []
        self._results: list[Part] = []

    def read(self, parts: list[Json]) -> None:
        """Add the messages of the answer."""
        for part in parts:
            kind = text_in(part, "type")
            if kind == "step-start":
                self._end_step()
            elif kind == "steering-message":
                self._end_step()
                steering = objects_in(part.get("parts") if isinstance(part, dict) else None)
                self._builder.user([_part_of(each) or self._opaque(each) for each in steering])
            elif kind == "dynamic-tool" or kind.startswith(_TOOL):
                self._add_call(part if isinstance(part, dict) else {}, kind)
            else:
                if self._results:  # it was said after the results were known
                    self._end_step()
                self._parts.append(_part_of(part) or self._opaque(part))
        self._end_step()

    def _end_step(self) -> None:
        self._builder.assistant(self._parts, AnswerFacts(), time=self._time)
        self._builder.user(self._results, time=self._time)
        self._parts, self._results = [], []

    def _opaque(self, part: Json) -> Part:
        return self._builder.opaque_part(part)

    def _add_call(self, part: JsonObject, kind: str) -> None:
        call_id, state = text_in(part, "toolCallId"), text_in(part, "state")
        name = text_in(part, "toolName") or kind.removeprefix(_TOOL)
        if not call_id or part.get("providerExecuted") is True:
            self._parts.append(self._opaque(part))
            return
        if "approval" in part:
            self._builder.leave_out("approvals of tool calls")
        arguments, raw = part.get("input"), text_in(part, "rawInput")
        if state == "input-streaming" or (arguments is None and raw):
            # It was never whole, so it is never run.
            unfinished = raw or msgspec.json.encode(arguments).decode()
            call = ToolCallPart(call_id=CallId(call_id), name=name, invalid=unfinished)
        else:
            call = call_from(call_id, name, {} if arguments is None else arguments)
        self._parts.append(call)
        if (outcome := _ENDS.get(state)) is not None:
            value = part.get("output") if outcome == "ok" else _reason(part)
            self._results.append(
                ToolResultPart(
                    call_id=CallId(call_id),
                    name=name,
                    outcome=outcome,
                    content=value_content(value),
                )
            )


def _reason(part: JsonObject) -> str:
    return text_in(part, "errorText") or text_in(object_in(part, "approval"), "reason")


def _part_of(part: Json) -> Part | None:
    match text_in(part, "type"):
        case "text" if isinstance(part, dict) and isinstance(part.get("text"), str):
            return TextPart(text=part["text"])
        case "reasoning" if isinstance(part, dict) and isinstance(part.get("text"), str):
            sealed = object_in(object_in(part, "providerMetadata"), "anthropic")
            return ReasoningPart(text=part["text"], signature=text_in(sealed, "signature") or None)
        case "file":
            name, mime = text_in(part, "filename") or None, text_in(part, "mediaType")
            return media_from_url(text_in(part, "url"), mime=mime, filename=name)
        case _:
            return None
