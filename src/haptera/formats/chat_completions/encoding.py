"""Chat Completions: encodes messages, for requests of any dialect and for exports.

Each message is lowered by itself; then neighbours are joined where a server demands that roles
alternate. Reasoning goes back in the field that the rules name.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import msgspec

from haptera.formats.tool_texts import argument_text, custom_input
from haptera.model.json_types import Json, JsonObject
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    reminder_text,
)

ReasoningReplay: TypeAlias = Literal[
    "never", "as_received", "reasoning_content", "reasoning", "reasoning_details", "thinking_parts"
]
"""Where reasoning is sent back; `as_received` means in the field that it came in."""


class MessageRules(msgspec.Struct, frozen=True, kw_only=True):
    """What differs in the messages that servers take, and those that a document holds."""

    reasoning_replay: ReasoningReplay = "never"
    reasoning_on_every_message: bool = False
    """Whether an assistant message without reasoning must have the field, empty."""
    refusals: bool = False
    """Whether a refusal can be sent back as one; otherwise it is sent as text."""
    tool_to_user_bridge: str = ""
    """The assistant message to insert if a user message may not follow a tool message."""
    empty_content: str | None = None
    """The content of an assistant message that only calls tools."""
    media_urls: bool = True
    """Whether images can be sent as a URL; other media are always sent as content."""
    is_simplified: bool = True
    """Whether texts are joined, text files become text, and results say that a call failed.

    Every server reads that. In a document each text and each file stays what it is.
    """


def lower_message(rules: MessageRules, message: Message) -> list[JsonObject]:
    """Return what one message becomes: none, one, or several if it holds tool results.

    The content of a user message stays a list, so that another can be joined to it.
    """
    if isinstance(message, AssistantMessage):
        return _lower_assistant(rules, message)
    return _lower_user(rules, message)


def join_lowered(rules: MessageRules, lowered: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """Join neighbours of one role: chat templates of open models demand that roles alternate."""
    # Nearly all histories alternate already, and are passed on without a copy.
    if all(_may_follow(rules, first, second) for first, second in pairwise(lowered)):
        return lowered
    joined: list[JsonObject] = []
    for item in lowered:
        if not joined or _may_follow(rules, joined[-1], item):
            joined.append(item)
        elif joined[-1]["role"] == item["role"]:
            joined[-1] = _joined(joined[-1], item)
        else:
            joined.extend((_bridge(rules), item))
    return joined


def finish_lowered(rules: MessageRules, item: JsonObject) -> JsonObject:
    """Return a lowered message in its final form."""
    if item["role"] != "user":
        return item
    return {**item, "content": as_content(rules, item["content"])}


def _may_follow(rules: MessageRules, first: JsonObject, second: JsonObject) -> bool:
    if second["role"] == "user":
        return first["role"] == "assistant" or not (
            first["role"] == "user" or rules.tool_to_user_bridge
        )
    # Two answers are joined only if the first is plain text: calls and reasoning belong to one
    # message.
    both_speak = first["role"] == second["role"] == "assistant"
    return not (both_speak and _is_bare(first) and not isinstance(second["content"], list))


def _is_bare(item: JsonObject) -> bool:
    """Whether an assistant message holds text only."""
    return item.keys() == {"role", "content"} and isinstance(item["content"], str)


def _joined(first: JsonObject, second: JsonObject) -> JsonObject:
    if first["role"] == "user":
        return {**first, "content": [*first["content"], *second["content"]]}
    texts = [text for text in (first["content"], second["content"]) if text]
    return {**second, "content": "\n\n".join(texts)}


def _bridge(rules: MessageRules) -> JsonObject:
    return {"role": "assistant", "content": rules.tool_to_user_bridge}


def _lower_user(rules: MessageRules, message: UserMessage) -> list[JsonObject]:
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    lowered: list[JsonObject] = [
        {
            "role": "tool",
            "tool_call_id": result.call_id,
            "content": tool_message_text(result) if rules.is_simplified else result.text,
        }
        for result in results
    ]
    content = content_of_results(rules, results)
    for part in message.parts:
        content.extend(lower_part(rules, part))
    if content and results and rules.tool_to_user_bridge:
        lowered.append(_bridge(rules))
    return [*lowered, {"role": "user", "content": content}] if content else lowered


def _lower_assistant(rules: MessageRules, message: AssistantMessage) -> list[JsonObject]:
    payloads = [part.payload for part in message.parts if isinstance(part, ProviderPart)]
    calls = [_lower_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
    content = _content(rules, message, payloads)
    if not content and not calls:
        return []
    written: JsonObject = {"role": "assistant", "content": content or rules.empty_content}
    if calls:
        written["tool_calls"] = calls
    for audio in _of_type(payloads, "audio"):
        if "id" in audio:
            written["audio"] = {"id": audio["id"]}
    for extra in _of_type(payloads, "extra_content"):
        written["extra_content"] = extra
    details = [item for listed in _of_type(payloads, "reasoning_details") for item in listed]
    return [replayed_reasoning(rules, message, detached_details=details).add_to(written)]


def _content(
    rules: MessageRules, message: AssistantMessage, payloads: list[JsonObject]
) -> str | list[JsonObject]:
    if not rules.is_simplified:
        texts = [part for part in message.parts if isinstance(part, TextPart | CompactionPart)]
        return as_content(rules, [_text(part.text) for part in texts])
    summary = "".join(part.text for part in message.parts if isinstance(part, CompactionPart))
    whole = "\n\n".join(text for text in (summary, message.text) if text)
    refusals = [str(refusal) for refusal in _of_type(payloads, "refusal")]
    if whole or not refusals:
        return whole
    refusal = "".join(refusals)
    return [{"type": "refusal", "refusal": refusal}] if rules.refusals else refusal


def _of_type(payloads: list[JsonObject], name: str) -> Iterable[Json]:
    """Yield the content of the payloads of one type; it is under the type's own name."""
    return (payload[name] for payload in payloads if payload.get("type") == name)


def _lower_call(part: ToolCallPart) -> JsonObject:
    native = part.native or {}
    text = custom_input(part) if native.get("type") == "custom" else None
    if text is not None:
        custom = {"name": part.name, "input": text}
        return {"id": part.call_id, "type": "custom", "custom": custom}
    function = {"name": part.name, "arguments": argument_text(part)}
    written: JsonObject = {"id": part.call_id, "type": "function", "function": function}
    extra = native.get("extra_content")
    return {**written, "extra_content": extra} if extra else written


# Content

AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def lower_part(rules: MessageRules, part: Part) -> Iterable[JsonObject]:
    """Yield the content of one part of a user message; tool results are separate messages."""
    if isinstance(part, TextPart | CompactionPart):
        if part.text:
            yield _text(part.text)
    elif isinstance(part, ReminderPart):
        if part.text:
            yield _text(reminder_text(part.text))
    elif isinstance(part, MediaPart):
        yield _media(rules, part)


def as_content(rules: MessageRules, pieces: list[JsonObject]) -> str | list[JsonObject]:
    """Return content that is a single text, or may be joined to one, as that text."""
    can_be_one = rules.is_simplified or len(pieces) == 1
    if can_be_one and all(piece.keys() == {"type", "text"} for piece in pieces):
        return "\n\n".join(piece["text"] for piece in pieces)
    return pieces


def tool_message_text(result: ToolResultPart) -> str:
    """Return a tool result as text; this protocol has no flag for a failed call."""
    text = result.text
    if not text:
        text = "(see below)" if result.content else "(no output)"
    if result.is_error:
        return f"[tool call {result.outcome.replace('_', ' ')}] {text}"
    return text


def content_of_results(rules: MessageRules, results: list[ToolResultPart]) -> list[JsonObject]:
    """Return the media of tool results, for a user message: a tool message holds text only."""
    pieces: list[JsonObject] = []
    for result in results:
        media = [part for part in result.content if isinstance(part, MediaPart)]
        if media:
            pieces.append(_text(f"From the tool {result.name} ({result.call_id}):"))
            pieces.extend(_media(rules, part) for part in media)
    return pieces


def _media(rules: MessageRules, part: MediaPart) -> JsonObject:
    if rules.is_simplified and part.mime.startswith("text/") and part.data is not None:
        text = part.decoded_text
        return _text(f"{part.filename}:\n{text}" if part.filename else text)
    url = _media_url(rules, part)
    if url is None:
        return _text(f"[{part.mime} left out: {part.filename or part.url or 'no content'}]")
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if part.mime in AUDIO_FORMATS and part.data is not None:
        audio = {"data": part.data, "format": AUDIO_FORMATS[part.mime]}
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "file", "file": {"filename": part.filename or "file", "file_data": url}}


def _media_url(rules: MessageRules, part: MediaPart) -> str | None:
    """Return a data URL or, for images only, the part's own URL; None if there is neither."""
    if part.data is not None:
        return part.data_url
    return part.url if rules.media_urls and part.mime.startswith("image/") else None


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


# Reasoning

_TEXT_FIELDS = frozenset({"reasoning_content", "reasoning"})


class ReplayedReasoning(msgspec.Struct, frozen=True, kw_only=True):
    """Reasoning to send back: as fields beside the content, or as items before it."""

    fields: JsonObject = msgspec.field(default_factory=dict)
    items: list[JsonObject] = msgspec.field(default_factory=list)

    def add_to(self, written: JsonObject) -> JsonObject:
        """Return an assistant message with the reasoning added."""
        content = written["content"]
        if self.items and isinstance(content, str):
            spoken = [{"type": "text", "text": content}] if content else []
            written = {**written, "content": [*self.items, *spoken]}
        return {**written, **self.fields}


def replayed_reasoning(
    rules: MessageRules, message: AssistantMessage, *, detached_details: list[JsonObject]
) -> ReplayedReasoning:
    """Return the reasoning of `message` as the rules want it back.

    `detached_details` are encrypted details that came without readable reasoning.
    """
    parts = [part for part in message.parts if isinstance(part, ReasoningPart)]
    text = "".join(part.text for part in parts)
    field = rules.reasoning_replay
    if field == "as_received":
        return _as_received(message, parts, text)
    if field == "reasoning_details":
        details = [item for part in parts for item in _details(part)] + detached_details
        return ReplayedReasoning(fields={"reasoning_details": details} if details else {})
    if field == "thinking_parts" and text:
        thoughts = [{"type": "text", "text": text}]
        return ReplayedReasoning(items=[{"type": "thinking", "thinking": thoughts}])
    if field in _TEXT_FIELDS and (text or rules.reasoning_on_every_message):
        return ReplayedReasoning(fields={field: text})
    return ReplayedReasoning()


def _as_received(
    message: AssistantMessage, parts: list[ReasoningPart], text: str
) -> ReplayedReasoning:
    """Send reasoning back in its own field, but only with tool calls: there it may be required."""
    fields = [str((part.native or {}).get("field", "")) for part in parts]
    text_field = next((field for field in fields if field in _TEXT_FIELDS), "")
    wanted = bool(text_field and text and message.tool_calls)
    return ReplayedReasoning(fields={text_field: text} if wanted else {})


def _details(part: ReasoningPart) -> list[JsonObject]:
    details = (part.native or {}).get("reasoning_details")
    return details if isinstance(details, list) else []
