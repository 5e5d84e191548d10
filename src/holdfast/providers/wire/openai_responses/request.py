"""Lowers a neutral request to the body of an OpenAI Responses call.

History goes as items. What the same model wrote goes back with its ids and sealed reasoning, as
long as the whole of it can be sent: a reasoning item must be followed by what it led to, and an
item that names its id wants the reasoning before it.
"""

import re
from collections.abc import Iterator

import msgspec

from holdfast.providers.wire.neutral_text import reminder_text, result_text
from holdfast.providers.wire.openai_responses.dialects import OPENAI, ResponsesDialect
from holdfast.providers.wire.openai_responses.items import CUSTOM_INPUT
from holdfast.providers.wire.protocol import WireRequest
from holdfast.vocabulary.json_types import Json, JsonObject
from holdfast.vocabulary.messages import AssistantMessage, Message, UserMessage
from holdfast.vocabulary.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.vocabulary.requests import ModelRequest, OutputSchema

BODY_SWITCHES = frozenset({"store", "background"})
SERVER_TOOLS: dict[str, JsonObject] = {
    "web_search": {"type": "web_search"},
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "image_generation": {"type": "image_generation"},
}
"""Tools that the provider runs itself, by the switch that turns each on."""
CHAIN = "previous_response_id"
"""The switch that lets the provider keep the history, so that only what is new is sent."""

_ANSWERED_BY_CLIENT = frozenset(
    {"apply_patch_call", "computer_call", "local_shell_call", "shell_call"}
)
_SCHEMA_NAME = re.compile(r"[^A-Za-z0-9_-]")


def encode_request(request: ModelRequest, dialect: ResponsesDialect = OPENAI) -> WireRequest:
    """Lower `request`, whose history already meets the protocol's rules."""
    switches = request.betas
    chain = switches.get(CHAIN, False)
    after, previous = _last_kept(request.messages) if chain else (0, None)
    body: JsonObject = {
        "model": request.model,
        "input": input_items(request.messages, after),
        "stream": True,
        "store": chain or switches.get("background", False),
    }
    if previous is not None:
        body["previous_response_id"] = previous
    if request.system:
        body["instructions"] = "\n\n".join(request.system)
    body |= _limits(request, dialect) | _reasoning(request, dialect) | _tools(request)
    if request.output_schema is not None:
        body["text"] = {"format": _format(request.output_schema)}
    if request.compaction.enabled:
        rule: JsonObject = {"type": "compaction"}
        if request.compaction.input_tokens is not None:
            rule["compact_threshold"] = request.compaction.input_tokens
        body["context_management"] = [rule]
    body |= {name: value for name, value in switches.items() if name in BODY_SWITCHES}
    known = BODY_SWITCHES | SERVER_TOOLS.keys() | {CHAIN}
    betas = [name for name, is_on in switches.items() if is_on and name not in known]
    headers = {"OpenAI-Beta": ",".join(betas)} if betas else {}
    return WireRequest(path=dialect.path, body=msgspec.json.encode(body), headers=headers)


_NOT_COUNTED = ("stream", "store", "include", "max_output_tokens", "temperature", "background")


def encode_count(request: ModelRequest, dialect: ResponsesDialect = OPENAI) -> WireRequest:
    """Lower `request` to the call that counts its tokens."""
    body: JsonObject = msgspec.json.decode(encode_request(request, dialect).body)
    for name in (*_NOT_COUNTED, "context_management"):
        body.pop(name, None)
    return WireRequest(path=f"{dialect.path}/input_tokens", body=msgspec.json.encode(body))


def _last_kept(messages: tuple[Message, ...]) -> tuple[int, str | None]:
    """Find the last answer that the provider keeps: what follows it, and its response's id."""
    if any(isinstance(part, CompactionPart) for message in messages for part in message.parts):
        return 0, None
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage) and not message.interrupted:
            for part in message.parts:
                native = getattr(part, "native", None) or {}
                if isinstance(native.get("response_id"), str):
                    return index + 1, native["response_id"]
    return 0, None


# Settings


def _limits(request: ModelRequest, dialect: ResponsesDialect) -> JsonObject:
    body: JsonObject = {}
    if request.max_tokens:
        body["max_output_tokens"] = max(request.max_tokens, dialect.smallest_output)
    levels = dialect.reasoning_of(request.model)
    refuses_temperature = levels is not None and levels.sealed and dialect.name != "xai"
    if request.temperature is not None and not refuses_temperature:
        body["temperature"] = request.temperature
    return body


def _reasoning(request: ModelRequest, dialect: ResponsesDialect) -> JsonObject:
    levels = dialect.reasoning_of(request.model)
    if levels is None:
        return {}
    body: JsonObject = {"include": ["reasoning.encrypted_content"]} if levels.sealed else {}
    effort = levels.levels.get(request.thinking) if request.thinking else None
    if effort is not None:
        body["reasoning"] = {"effort": effort}
        if dialect.summaries and request.thinking != "off":
            body["reasoning"]["summary"] = "auto"
    return body


def _tools(request: ModelRequest) -> JsonObject:
    tools: list[JsonObject] = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
            # Said aloud, because the default would rewrite the schema.
            "strict": False,
        }
        for tool in request.tools
    ]
    tools += [tool for name, tool in SERVER_TOOLS.items() if request.betas.get(name)]
    if not tools:
        return {}
    body: JsonObject = {"tools": tools, "parallel_tool_calls": request.parallel_tool_calls}
    if request.require_tool is not None:
        body["tool_choice"] = {"type": "function", "name": request.require_tool}
    return body


def _format(output: OutputSchema) -> JsonObject:
    return {
        "type": "json_schema",
        "name": _SCHEMA_NAME.sub("_", output.name)[:64] or "output",
        "schema": output.schema,
        "strict": is_strict(output.schema),
    }


def is_strict(schema: Json) -> bool:
    """Whether every object in `schema` is closed and demands all it names, as strict mode wants."""
    if isinstance(schema, list):
        return all(is_strict(each) for each in schema)
    if not isinstance(schema, dict):
        return True
    if "properties" in schema or schema.get("type") == "object":
        names = schema.get("properties", {})
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(names):
            return False
    if schema.keys() & {"allOf", "oneOf", "not", "patternProperties", "default", "if"}:
        return False
    return all(is_strict(value) for name, value in schema.items() if name not in {"enum", "const"})


# History


def input_items(messages: tuple[Message, ...], after: int = 0) -> list[JsonObject]:
    """Return the items of all messages from index `after` on."""
    custom = frozenset(
        part.call_id
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.tool_calls
        if _is_custom(part)
    )
    items: list[JsonObject] = []
    for message in messages[after:]:
        if isinstance(message, UserMessage):
            items += _user_items(message, custom)
        else:
            items += _assistant_items(message)
    return items


def _is_custom(part: ToolCallPart) -> bool:
    return (part.native or {}).get("type") == "custom_tool_call"


def _user_items(message: UserMessage, custom: frozenset[str]) -> Iterator[JsonObject]:
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            kind = "custom_tool_call_output" if part.call_id in custom else "function_call_output"
            yield {"type": kind, "call_id": part.call_id, "output": _output_of(part)}
    content = [piece for part in message.parts if (piece := _input_piece(part)) is not None]
    if content:
        yield {"type": "message", "role": "user", "content": content}


def _input_piece(part: Part) -> JsonObject | None:
    match part:
        case TextPart(text=text) | CompactionPart(text=text) if text:
            return {"type": "input_text", "text": text}
        case ReminderPart(text=text):
            return {"type": "input_text", "text": reminder_text(text)}
        case MediaPart():
            return _media_piece(part)
        case _:
            return None


def _media_piece(part: MediaPart) -> JsonObject:
    where = part.url or f"data:{part.mime};base64,{part.data or ''}"
    if part.mime.startswith("image/"):
        return {"type": "input_image", "image_url": where, "detail": "auto"}
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.filename or "file.pdf", "file_data": where}


def _output_of(part: ToolResultPart) -> Json:
    if any(isinstance(each, MediaPart) for each in part.content):
        return [piece for each in part.content if (piece := _input_piece(each)) is not None]
    return result_text(part)


def _assistant_items(message: AssistantMessage) -> list[JsonObject]:
    """Return an answer's items; reasoning only where something it led to follows."""
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
        ready = [each for each in waiting if "encrypted_content" in each or "content" in each]
        items += ready
        sent |= {each["id"] for each in ready}
        waiting.clear()
        _add_item(items, item, sent)
    return items


def _add_item(items: list[JsonObject], item: JsonObject, sent: set[str]) -> None:
    """Add an item; with its id only if the reasoning that it wants is there, too."""
    wanted = item.pop("reasoning", None)
    if wanted is not None and wanted not in sent:
        item = _without_id(item)
    if items and "id" in item and items[-1].get("id") == item["id"]:
        # Two texts of one message: an id must not come twice.
        items[-1]["content"] += item["content"]
    else:
        items.append(item)


def _without_id(item: JsonObject) -> JsonObject:
    if item["type"] != "message":
        return {name: value for name, value in item.items() if name != "id"}
    text = "".join(piece["text"] for piece in item["content"])
    phase: JsonObject = {"phase": item["phase"]} if "phase" in item else {}
    return {"role": "assistant", "content": text} | phase


def _add_reasoning(waiting: list[JsonObject], part: ReasoningPart) -> None:
    """Add a piece of reasoning to the item it is of; pieces of one item follow each other."""
    native = part.native or {}
    name = native.get("id")
    if not name:
        return
    if not waiting or waiting[-1]["id"] != name:
        waiting.append({"type": "reasoning", "id": name, "summary": []})
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
            return _call_item(part)
        case ProviderPart(payload=payload):
            return dict(payload) if _is_answered(payload, message) else None
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


def _call_item(part: ToolCallPart) -> JsonObject:
    item: JsonObject = {"type": "function_call", "call_id": part.call_id, "name": part.name}
    if _is_custom(part) and isinstance(part.arguments, dict):
        item |= {"type": "custom_tool_call", "input": str(part.arguments.get(CUSTOM_INPUT, ""))}
    else:
        item["arguments"] = msgspec.json.encode(part.arguments).decode()
    return item | _facts(part.native or {}, "id", "namespace", "caller", "reasoning")


def _facts(native: JsonObject, *names: str) -> JsonObject:
    return {name: native[name] for name in names if native.get(name)}


def _is_answered(payload: JsonObject, message: AssistantMessage) -> bool:
    """Whether a call that the client should have run has its output beside it."""
    if payload.get("type") not in _ANSWERED_BY_CLIENT:
        return True
    wanted = f"{payload['type']}_output"
    return any(
        isinstance(part, ProviderPart)
        and part.payload.get("type") == wanted
        and part.payload.get("call_id") == payload.get("call_id")
        for part in message.parts
    )
