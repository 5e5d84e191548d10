"""OpenAI Responses: encodes messages as items, for requests and for exports.

What the same model wrote is sent back with its ids and encrypted reasoning, if all of it can be
sent: a reasoning item must be followed by the item it led to, and an item with an id must be
preceded by its reasoning.
"""

from collections.abc import Iterator

import msgspec

from haptera.formats.lenient_json import with_text_ids
from haptera.formats.tool_texts import argument_text, custom_input, marked_result
from haptera.model.ids import CallId
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

CUSTOM_CALL = "custom_tool_call"
_TEXT_FIELDS = ("type", "id", "call_id", "name", "encrypted_content", "phase", "namespace")
_ANSWERED_BY_CLIENT = frozenset(
    {"apply_patch_call", "computer_call", "local_shell_call", "shell_call"}
)


class ItemRules(msgspec.Struct, frozen=True, kw_only=True):
    """What differs in the items that endpoints take, and those that a file holds."""

    typed_answers: bool = False
    """Whether an answer without an id must be sent as a typed message, not in the short form."""
    plain_items: bool = False
    """Whether only messages and calls are accepted back, without ids and other own fields."""
    calls_last: bool = False
    """Whether the calls of an answer must directly precede their results."""
    image_detail: bool = True
    """Whether a picture says in what detail the model is to look at it."""


def plain_item(value: JsonObject) -> JsonObject:
    """Return an item whose ids and names are text, as logs and servers require."""
    return with_text_ids(value, *_TEXT_FIELDS)


def custom_calls(messages: tuple[Message, ...]) -> frozenset[CallId]:
    """Return the ids of custom tool calls, whose results have another type."""
    return frozenset(
        part.call_id
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.tool_calls
        if is_custom_call(part)
    )


def items_of(message: Message, custom: frozenset[CallId], rules: ItemRules) -> list[JsonObject]:
    """Return the items of one message."""
    if isinstance(message, UserMessage):
        return list(_user_items(message, custom, rules))
    items = _assistant_items(message)
    if rules.plain_items:
        return [plain for item in items if (plain := _plain(item)) is not None]
    if rules.typed_answers:
        items = [_typed(item) for item in items]
    # DeepSeek refuses text between a call and its result. The sort is stable.
    return sorted(items, key=_is_call) if rules.calls_last else items


def _typed(item: JsonObject) -> JsonObject:
    """Return the short form of an answer as a typed message."""
    if "type" in item:
        return item
    content = [{"type": "output_text", "text": item["content"], "annotations": []}]
    return item | {"type": "message", "status": "completed", "content": content}


def _plain(item: JsonObject) -> JsonObject | None:
    """Return an item without anything specific to the server that made it."""
    kind = item.get("type", "message")
    if kind == "function_call":
        return {name: item[name] for name in ("type", "call_id", "name", "arguments")}
    if kind != "message":
        return None
    content = item["content"]
    if not isinstance(content, str):
        content = "".join(piece.get("text", "") for piece in content)
    return {"type": "message", "role": "assistant", "content": content}


def _is_call(item: JsonObject) -> bool:
    return item.get("type") in {"function_call", CUSTOM_CALL}


def is_custom_call(part: ToolCallPart) -> bool:
    """Whether a call is of a custom tool."""
    return (part.native or {}).get("type") == CUSTOM_CALL


def _user_items(
    message: UserMessage, custom: frozenset[CallId], rules: ItemRules
) -> Iterator[JsonObject]:
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            has_media = any(isinstance(each, MediaPart) for each in part.content)
            is_custom = part.call_id in custom
            yield output_item(part, rules, is_custom=is_custom, has_media=has_media)
    content = [piece for part in message.parts if (piece := input_piece(part, rules)) is not None]
    if content:
        yield {"type": "message", "role": "user", "content": content}


def output_item(
    part: ToolResultPart, rules: ItemRules, *, is_custom: bool, has_media: bool
) -> JsonObject:
    """Return the output of a call: a text, or pieces where it has media."""
    kind = f"{CUSTOM_CALL}_output" if is_custom else "function_call_output"
    output: Json = marked_result(part)
    if has_media:
        pieces = [input_piece(each, rules) for each in part.content]
        output = [piece for piece in pieces if piece is not None]
    return {"type": kind, "call_id": part.call_id, "output": output}


def input_piece(part: Part, rules: ItemRules) -> JsonObject | None:
    """Return a piece of a user message; None for parts that are none, and for empty texts."""
    match part:
        case TextPart(text=text) | CompactionPart(text=text) if text:
            return {"type": "input_text", "text": text}
        case ReminderPart(text=text):
            return {"type": "input_text", "text": f"{reminder_text(text)}\n"}
        case MediaPart():
            return _media_piece(part, rules)
        case _:
            return None


def _media_piece(part: MediaPart, rules: ItemRules) -> JsonObject:
    where = part.url or part.data_url
    if part.mime.startswith("image/"):
        detail = {"detail": "auto"} if rules.image_detail else {}
        return {"type": "input_image", "image_url": where, **detail}
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.filename or "file.pdf", "file_data": where}


def _assistant_items(message: AssistantMessage) -> list[JsonObject]:
    """Return the items of an answer; reasoning only if the item that it led to follows."""
    items: list[JsonObject] = []
    waiting: list[JsonObject] = []
    sent: set[str] = set()
    for part in message.parts:
        if isinstance(part, ReasoningPart):
            _add_reasoning(waiting, part)
            continue
        item = _answer_item(part, message)
        if item is None:
            continue
        # An item with neither says nothing to a server that does not keep answers.
        ready = [each for each in waiting if "encrypted_content" in each or "content" in each]
        items += ready
        sent |= {each["id"] for each in ready}
        waiting.clear()
        _add_item(items, item, sent)
    return items


def _add_item(items: list[JsonObject], item: JsonObject, sent: set[str]) -> None:
    """Add an item; it keeps its id only if its reasoning is sent, too."""
    wanted = item.pop("reasoning", None)
    if wanted is not None and wanted not in sent:
        item = _without_id(item)
    if items and "id" in item and items[-1].get("id") == item["id"]:
        # Two texts of one message; the API refuses an id that occurs twice.
        if item["type"] == items[-1]["type"] == "message":
            items[-1]["content"] += item["content"]
        else:
            items.append(_without_id(item))
    else:
        items.append(item)


def _without_id(item: JsonObject) -> JsonObject:
    if item["type"] != "message":
        return {name: value for name, value in item.items() if name != "id"}
    text = "".join(piece.get("text") or piece.get("refusal") or "" for piece in item["content"])
    phase: JsonObject = {"phase": item["phase"]} if "phase" in item else {}
    return {"role": "assistant", "content": text} | phase


def _add_reasoning(waiting: list[JsonObject], part: ReasoningPart) -> None:
    """Add a piece of reasoning to its item; the pieces of one item follow each other."""
    native = part.native or {}
    name = native.get("id")
    if not name:
        return
    if not waiting or waiting[-1]["id"] != name:
        item = {"type": "reasoning", "id": name, "summary": []}
        # OpenRouter says in which format another provider sealed or signed it.
        waiting.append(item | _facts(native, "format", "signature"))
    item = waiting[-1]
    if native.get("raw"):
        item.setdefault("content", []).append({"type": "reasoning_text", "text": part.text})
    elif part.text:
        item["summary"].append({"type": "summary_text", "text": part.text})
    if part.signature is not None:
        item["encrypted_content"] = part.signature


def _answer_item(part: Part, message: AssistantMessage) -> JsonObject | None:
    match part:
        case TextPart(text=text) if text:
            return _text_item(part)
        case CompactionPart(text=text) if text:
            return {"role": "assistant", "content": text}
        case ToolCallPart():
            return call_item(part)
        case ProviderPart(payload=payload):
            return dict(plain_item(payload)) if _is_answered(payload, message) else None
        case _:
            return None


def _text_item(part: TextPart) -> JsonObject:
    native = part.native or {}
    if not native.get("id"):
        return {"role": "assistant", "content": part.text} | _facts(native, "phase")
    annotations = native.get("annotations", [])
    content = [{"type": "output_text", "text": part.text, "annotations": annotations}]
    item: JsonObject = {"type": "message", "role": "assistant", "status": "completed"}
    return item | {"content": content} | _facts(native, "id", "phase", "reasoning")


def call_item(part: ToolCallPart) -> JsonObject:
    """Return a call of a function, or of a custom tool, whose input is free text."""
    item: JsonObject = {"type": "function_call", "call_id": part.call_id, "name": part.name}
    custom = custom_input(part) if is_custom_call(part) else None
    if custom is None:
        item["arguments"] = argument_text(part)
    else:
        item |= {"type": CUSTOM_CALL, "input": custom}
    return item | _facts(part.native or {}, "id", "namespace", "caller", "reasoning")


def _facts(native: JsonObject, *names: str) -> JsonObject:
    return {name: native[name] for name in names if native.get(name)}


def _is_answered(payload: JsonObject, message: AssistantMessage) -> bool:
    """Whether an item may be sent: a call for the client to run needs its output beside it."""
    if payload.get("type") not in _ANSWERED_BY_CLIENT:
        return True
    wanted = f"{payload['type']}_output"
    return any(
        isinstance(part, ProviderPart)
        and part.payload.get("type") == wanted
        and part.payload.get("call_id") == payload.get("call_id")
        for part in message.parts
    )
