"""Lowers messages to those of one Chat Completions dialect, each by itself, then side by side."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from holdfast.providers.wire.chat_completions.content import (
    as_content,
    content_of_results,
    lower_part,
    result_text,
)
from holdfast.providers.wire.chat_completions.dialects import Dialect
from holdfast.providers.wire.chat_completions.reasoning_replay import replayed_reasoning
from holdfast.providers.wire.lenient_json import encode_lenient
from holdfast.providers.wire.neutral_forms import argument_object
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.messages import AssistantMessage, Message, UserMessage
from holdfast.vocabulary.parts import CompactionPart, ProviderPart, ToolCallPart, ToolResultPart


def lower_message(dialect: Dialect, message: Message) -> list[JsonObject]:
    """Return what one message becomes: none, one, or several where it holds results of tools.

    The content of a user's message is left as a list, so that others can be joined to it.
    """
    if isinstance(message, AssistantMessage):
        return _lower_assistant(dialect, message)
    return _lower_user(dialect, message)


def join_lowered(dialect: Dialect, lowered: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """Make neighbours take turns, as templates of open models demand."""
    if all(_may_follow(dialect, first, second) for first, second in pairwise(lowered)):
        return lowered
    joined: list[JsonObject] = []
    for item in lowered:
        if not joined or _may_follow(dialect, joined[-1], item):
            joined.append(item)
        elif joined[-1]["role"] == item["role"]:
            joined[-1] = _joined(joined[-1], item)
        else:
            joined.extend((_bridge(dialect), item))
    return joined


def finish_lowered(item: JsonObject) -> JsonObject:
    """Return a lowered message in its final form."""
    if item["role"] != "user":
        return item
    return {**item, "content": as_content(item["content"])}


def _may_follow(dialect: Dialect, first: JsonObject, second: JsonObject) -> bool:
    if second["role"] == "user":
        return first["role"] == "assistant" or not (
            first["role"] == "user" or dialect.tool_to_user_bridge
        )
    both_speak = first["role"] == second["role"] == "assistant"
    return not (both_speak and _is_bare(first) and not isinstance(second["content"], list))


def _is_bare(item: JsonObject) -> bool:
    """Whether an assistant's message is nothing but words."""
    return item.keys() == {"role", "content"} and isinstance(item["content"], str)


def _joined(first: JsonObject, second: JsonObject) -> JsonObject:
    if first["role"] == "user":
        return {**first, "content": [*first["content"], *second["content"]]}
    texts = [text for text in (first["content"], second["content"]) if text]
    return {**second, "content": "\n\n".join(texts)}


def _bridge(dialect: Dialect) -> JsonObject:
    return {"role": "assistant", "content": dialect.tool_to_user_bridge}


def _lower_user(dialect: Dialect, message: UserMessage) -> list[JsonObject]:
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    lowered: list[JsonObject] = [
        {"role": "tool", "tool_call_id": result.call_id, "content": result_text(result)}
        for result in results
    ]
    said = content_of_results(dialect, results)
    for part in message.parts:
        said.extend(lower_part(dialect, part))
    if said and results and dialect.tool_to_user_bridge:
        lowered.append(_bridge(dialect))
    return [*lowered, {"role": "user", "content": said}] if said else lowered


def _lower_assistant(dialect: Dialect, message: AssistantMessage) -> list[JsonObject]:
    payloads = [part.payload for part in message.parts if isinstance(part, ProviderPart)]
    calls = [_lower_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
    content = _content(dialect, message, payloads)
    if not content and not calls:
        return []
    written: JsonObject = {"role": "assistant", "content": content or dialect.empty_content}
    if calls:
        written["tool_calls"] = calls
    for audio in _of_type(payloads, "audio"):
        if "id" in audio:
            written["audio"] = {"id": audio["id"]}
    details = [item for found in _of_type(payloads, "reasoning_details") for item in found]
    return [replayed_reasoning(dialect, message, loose_details=details).add_to(written)]


def _content(
    dialect: Dialect, message: AssistantMessage, payloads: list[JsonObject]
) -> str | list[JsonObject]:
    summary = "".join(part.text for part in message.parts if isinstance(part, CompactionPart))
    said = "\n\n".join(text for text in (summary, message.text) if text)
    refusals = [str(refusal) for refusal in _of_type(payloads, "refusal")]
    if said or not refusals:
        return said
    refusal = "".join(refusals)
    return [{"type": "refusal", "refusal": refusal}] if dialect.refusals else refusal


def _of_type(payloads: list[JsonObject], name: str) -> Iterable[Json]:
    """Yield what payloads of one type hold; it is under the type's own name."""
    return (payload[name] for payload in payloads if payload.get("type") == name)


def _lower_call(part: ToolCallPart) -> JsonObject:
    text = encode_lenient(argument_object(part)).decode()
    written: JsonObject = {
        "id": part.call_id,
        "type": "function",
        "function": {"name": part.name, "arguments": text},
    }
    extra = (part.native or {}).get("extra_content")
    return {**written, "extra_content": extra} if extra else written
