"""Lowers a conversation to the messages of one Chat Completions dialect."""

import re

import msgspec

from holdfast.providers.wire.chat_completions.content import (
    as_content,
    content_of_results,
    lower_piece,
    result_text,
)
from holdfast.providers.wire.chat_completions.dialects import Dialect
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import AssistantMessage, UserMessage
from holdfast.vocabulary.parts import (
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.vocabulary.requests import ModelRequest

_GO_ON = "Go on."
_READABLE_FIELDS = frozenset({"reasoning_content", "reasoning"})


def lower_messages(
    dialect: Dialect, request: ModelRequest, *, instructions: str = ""
) -> list[JsonObject]:
    """Return the messages of a request; `instructions` are added to the system prompt."""
    mark = _cache_mark(dialect, request)
    written: list[JsonObject] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            _add_assistant(dialect, message, written)
        else:
            _add_user(dialect, message, written)
    if written and written[-1]["role"] == "assistant":
        # Some servers refuse to go on from the model's own words, others need no invitation.
        written.append({"role": "user", "content": [{"type": "text", "text": _GO_ON}]})
    if mark is not None:
        _mark_last_user(written, request, mark)
    for item in written:
        if item["role"] == "user":
            item["content"] = as_content(item["content"])
    system = "\n\n".join(text for text in (*request.system, instructions) if text)
    return [_system(dialect, request.model, system, mark=mark), *written] if system else written


def _system(dialect: Dialect, model: str, text: str, *, mark: JsonObject | None) -> JsonObject:
    pattern = dialect.developer_models
    is_developer = bool(pattern) and re.search(pattern, model.lower()) is not None
    marked = [{"type": "text", "text": text, "cache_control": mark}]
    return {
        "role": "developer" if is_developer else "system",
        "content": text if mark is None else marked,
    }


def _add_user(dialect: Dialect, message: UserMessage, lowered: list[JsonObject]) -> None:
    """Add the results as messages of their own, then what the user said."""
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    lowered.extend(
        {"role": "tool", "tool_call_id": result.call_id, "content": result_text(result)}
        for result in results
    )
    pieces = content_of_results(dialect, results)
    for part in message.parts:
        pieces.extend(lower_piece(dialect, part))
    if not pieces:
        return
    last_role = lowered[-1]["role"] if lowered else ""
    if last_role == "user":
        # Templates of open models demand that roles take turns.
        lowered[-1]["content"].extend(pieces)
        return
    if last_role == "tool" and dialect.tool_to_user_bridge:
        lowered.append({"role": "assistant", "content": dialect.tool_to_user_bridge})
    lowered.append({"role": "user", "content": pieces})


def _add_assistant(dialect: Dialect, message: AssistantMessage, lowered: list[JsonObject]) -> None:
    payloads = _payloads(message)
    calls = [_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
    content = _assistant_content(dialect, message, payloads)
    if not content and not calls:
        return
    written: JsonObject = {"role": "assistant", "content": content or dialect.empty_content}
    if calls:
        written["tool_calls"] = calls
    audio = payloads.get("audio", {}).get("audio", {}).get("id")
    if audio:
        written["audio"] = {"id": audio}
    reasoning = _reasoning_fields(dialect, message, payloads)
    thinking = reasoning.pop("thinking_parts", None)
    if thinking and content:
        written["content"] = [*thinking, {"type": "text", "text": content}]
    written.update(reasoning)
    _append_assistant(lowered, written)


def _append_assistant(lowered: list[JsonObject], written: JsonObject) -> None:
    """Append a message; what follows bare words of the assistant is one message with them."""
    last = lowered[-1] if lowered else {}
    said, says = last.get("content"), written["content"]
    if last.keys() == {"role", "content"} and last["role"] == "assistant" and isinstance(said, str):
        if not says:
            written["content"] = said
            lowered[-1] = written
            return
        if isinstance(says, str):
            written["content"] = f"{said}\n\n{says}"
            lowered[-1] = written
            return
    lowered.append(written)


def _assistant_content(
    dialect: Dialect, message: AssistantMessage, payloads: dict[str, JsonObject]
) -> str | list[JsonObject]:
    refusal = payloads.get("refusal", {}).get("refusal")
    if message.text or not refusal:
        return message.text
    return [{"type": "refusal", "refusal": refusal}] if dialect.refusals else str(refusal)


def _payloads(message: AssistantMessage) -> dict[str, JsonObject]:
    """Return what the server sent beside its text, by its type."""
    return {
        str(part.payload.get("type")): part.payload
        for part in message.parts
        if isinstance(part, ProviderPart)
    }


def _call(part: ToolCallPart) -> JsonObject:
    # Servers that parse the arguments refuse the whole history when they are not an object.
    arguments = part.arguments if isinstance(part.arguments, dict) else {"value": part.arguments}
    if part.invalid is not None:
        arguments = {"invalid_json": part.invalid}
    written: JsonObject = {
        "id": part.call_id,
        "type": "function",
        "function": {"name": part.name, "arguments": msgspec.json.encode(arguments).decode()},
    }
    extra = (part.native or {}).get("extra_content")
    return {**written, "extra_content": extra} if extra else written


def _reasoning_fields(
    dialect: Dialect, message: AssistantMessage, payloads: dict[str, JsonObject]
) -> JsonObject:
    """Return the reasoning of `message` where the dialect wants it back."""
    parts = [part for part in message.parts if isinstance(part, ReasoningPart)]
    text = "".join(part.text for part in parts)
    field = dialect.reasoning_replay
    if field == "as_received":
        return _as_received(message, parts, text)
    if field == "reasoning_details":
        details = [item for part in parts for item in _details(part.native)]
        details.extend(_details(payloads.get("reasoning_details")))
        return {"reasoning_details": details} if details else {}
    if field == "thinking_parts" and text:
        thoughts = [{"type": "text", "text": text}]
        return {"thinking_parts": [{"type": "thinking", "thinking": thoughts}]}
    if field in _READABLE_FIELDS and (text or dialect.reasoning_on_every_message):
        return {field: text}
    return {}


def _as_received(message: AssistantMessage, parts: list[ReasoningPart], text: str) -> JsonObject:
    """Send reasoning back in its own field, within a tool loop only: there it may be demanded."""
    fields = [str((part.native or {}).get("field", "")) for part in parts]
    known = next((field for field in fields if field in _READABLE_FIELDS), "")
    return {known: text} if known and text and message.tool_calls else {}


def _details(container: JsonObject | None) -> list[JsonObject]:
    found = (container or {}).get("reasoning_details")
    return found if isinstance(found, list) else []


def _cache_mark(dialect: Dialect, request: ModelRequest) -> JsonObject | None:
    pattern = dialect.cache_mark_models
    if request.cache_ttl is None or not pattern or not re.search(pattern, request.model.lower()):
        return None
    mark: JsonObject = {"type": "ephemeral"}
    return {**mark, "ttl": "1h"} if request.cache_ttl == "1h" else mark


def _mark_last_user(lowered: list[JsonObject], request: ModelRequest, mark: JsonObject) -> None:
    """Mark the last piece that will be the same in the next request: reminders will not."""
    last = lowered[-1]
    if last["role"] != "user":
        return
    fleeting = _trailing_reminders(request.messages[-1].parts)
    stable = last["content"][: len(last["content"]) - fleeting]
    if stable:
        stable[-1]["cache_control"] = mark


def _trailing_reminders(parts: tuple[Part, ...]) -> int:
    count = 0
    for part in reversed(parts):
        if not isinstance(part, ReminderPart) or part.persisted:
            break
        count += bool(part.text)
    return count
