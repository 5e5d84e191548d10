"""pi's messages: users, answers and results of tools as it keeps them, to parts and back."""

from collections.abc import Iterator

from msgspec.structs import replace

from haptera.formats.forms import (
    UniqueCallIds,
    call_from,
    cost_in,
    leaves_out,
    media_from_data,
    milliseconds_of,
    number_in,
    object_in,
    split_usage,
    stand_in,
    text_in,
    tool_name,
    with_content,
)
from haptera.formats.message_builder import AnswerFacts, MessageBuilder
from haptera.formats.values import SessionExport, TimedMessage
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
from haptera.model.vendors import Protocol

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


class PiMessageWriter:
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


def read_message(message: JsonObject, builder: MessageBuilder, *, time: int) -> bool:
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
        case "custom" | "branchSummary" if texts_of(content) or text_in(message, "summary"):
            text = text_in(message, "summary") or "\n".join(texts_of(content))
            builder.user([ReminderPart(text=text, persisted=True)], time=time)
        case _:
            return False
    return True


def _without_seal(part: Part) -> Part:
    """Drop what pi keeps in that field for other APIs: it is not a signature of the provider."""
    return replace(part, signature=None) if isinstance(part, ReasoningPart) else part


def texts_of(content: Json) -> list[str]:
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
