"""Sends a model's reasoning back to it, where and how its server wants that."""

import msgspec

from holdfast.providers.wire.chat_completions.dialects import Dialect
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import AssistantMessage
from holdfast.vocabulary.parts import ReasoningPart

_READABLE_FIELDS = frozenset({"reasoning_content", "reasoning"})


class ReplayedReasoning(msgspec.Struct, frozen=True, kw_only=True):
    """Reasoning on its way back: fields beside the content, or items before it."""

    fields: JsonObject = msgspec.field(default_factory=dict)
    items: list[JsonObject] = msgspec.field(default_factory=list)

    def add_to(self, written: JsonObject) -> JsonObject:
        """Return an assistant's message with the reasoning in it."""
        content = written["content"]
        if self.items and isinstance(content, str):
            spoken = [{"type": "text", "text": content}] if content else []
            written = {**written, "content": [*self.items, *spoken]}
        return {**written, **self.fields}


def replayed_reasoning(
    dialect: Dialect, message: AssistantMessage, *, loose_details: list[JsonObject]
) -> ReplayedReasoning:
    """Return the reasoning of `message` as the dialect wants it back.

    `loose_details` are sealed ones that came without any reasoning to read.
    """
    parts = [part for part in message.parts if isinstance(part, ReasoningPart)]
    text = "".join(part.text for part in parts)
    field = dialect.reasoning_replay
    if field == "as_received":
        return _as_received(message, parts, text)
    if field == "reasoning_details":
        details = [item for part in parts for item in _details(part)] + loose_details
        return ReplayedReasoning(fields={"reasoning_details": details} if details else {})
    if field == "thinking_parts" and text:
        thoughts = [{"type": "text", "text": text}]
        return ReplayedReasoning(items=[{"type": "thinking", "thinking": thoughts}])
    if field in _READABLE_FIELDS and (text or dialect.reasoning_on_every_message):
        return ReplayedReasoning(fields={field: text})
    return ReplayedReasoning()


def _as_received(
    message: AssistantMessage, parts: list[ReasoningPart], text: str
) -> ReplayedReasoning:
    """Send reasoning back in its own field, within a tool loop only: there it may be demanded."""
    fields = [str((part.native or {}).get("field", "")) for part in parts]
    known = next((field for field in fields if field in _READABLE_FIELDS), "")
    wanted = bool(known and text and message.tool_calls)
    return ReplayedReasoning(fields={known: text} if wanted else {})


def _details(part: ReasoningPart) -> list[JsonObject]:
    found = (part.native or {}).get("reasoning_details")
    return found if isinstance(found, list) else []
