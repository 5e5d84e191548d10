"""Gemini generateContent: lowers messages to parts."""

from collections.abc import Mapping

from haptera.model.ids import CallId
from haptera.model.json_types import JsonObject
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
    argument_object,
    reminder_text,
)
from haptera.providers.wire.gemini.dialects import is_gemini_3, is_same_gemini_model

UNSIGNED = "skip_thought_signature_validator"
"""What Gemini 3 accepts in place of a signature, for a call of another model."""


def named_calls(messages: tuple[Message, ...]) -> Mapping[CallId, str]:
    """Return the ids that the provider gave to calls; ids that we made are not sent."""
    return {
        part.call_id: str(part.native["id"])
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart) and part.native and part.native.get("id")
    }


def encode_parts(message: Message, model: str, named: Mapping[CallId, str]) -> list[JsonObject]:
    """Return the parts of one message."""
    if isinstance(message, UserMessage):
        return _user_parts(message, model, named)
    return _model_parts(message, model)


def _user_parts(message: UserMessage, model: str, named: Mapping[CallId, str]) -> list[JsonObject]:
    """Return the parts of a user message: tool results first, then media they cannot hold."""
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    parts = [_result_part(part, model, named) for part in results]
    if not is_gemini_3(model):
        # Before Gemini 3 a result holds text only, so its media follow it.
        parts += [_media(each) for part in results for each in _media_in(part)]
    for part in message.parts:
        match part:
            case TextPart(text=text) | CompactionPart(text=text) if text:
                parts.append({"text": text})
            case ReminderPart(text=text):
                parts.append({"text": f"{reminder_text(text)}\n"})
            case MediaPart():
                parts.append(_media(part))
            case _:
                pass
    return parts


def _result_part(part: ToolResultPart, model: str, named: Mapping[CallId, str]) -> JsonObject:
    word = "error" if part.is_error else "output"
    response: JsonObject = {
        "name": part.name,
        "response": {word: part.text or (part.outcome if part.is_error else "")},
    }
    if part.call_id in named:
        response["id"] = named[part.call_id]
    if is_gemini_3(model) and (media := _media_in(part)):
        response["parts"] = [_media(each) for each in media]
    return {"functionResponse": response}


def _media_in(part: ToolResultPart) -> list[MediaPart]:
    return [each for each in part.content if isinstance(each, MediaPart)]


def _media(part: MediaPart) -> JsonObject:
    if part.url is not None:
        return {"fileData": {"mimeType": part.mime, "fileUri": part.url}}
    return {"inlineData": {"mimeType": part.mime, "data": part.data or ""}}


def _model_parts(message: AssistantMessage, model: str) -> list[JsonObject]:
    is_same = not message.model or is_same_gemini_model(message.model, model)
    parts = [
        lowered
        for part in message.parts
        if (lowered := _model_part(part, is_same=is_same)) is not None
    ]
    calls = [part for part in parts if "functionCall" in part]
    # Only the first of parallel calls is signed, and only there a signature is checked.
    if calls and is_gemini_3(model) and "thoughtSignature" not in calls[0]:
        calls[0]["thoughtSignature"] = UNSIGNED
    return parts


def _model_part(part: Part, *, is_same: bool) -> JsonObject | None:
    """Lower one part of an answer; signatures are sent only to the model that made them."""
    native = (getattr(part, "native", None) or {}) if is_same else {}
    signature = native.get("thoughtSignature")
    signed: JsonObject = {"thoughtSignature": signature} if signature else {}
    match part:
        case TextPart(text=text) | CompactionPart(text=text) if text:
            return {"text": text} | signed
        case ReasoningPart(text=text, signature=str(own)):
            return {"text": text, "thought": True, "thoughtSignature": own}
        case ToolCallPart():
            call: JsonObject = {"name": part.name, "args": argument_object(part)}
            if native.get("id"):
                call["id"] = native["id"]
            return {"functionCall": call} | signed
        case ProviderPart(payload=payload):
            return payload
        case _:
            return None
