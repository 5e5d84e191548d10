"""Content for spans: messages, arguments and results as JSON, in the form of the conventions."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from haptera.model.events import Measured, ToolMeasured, TurnMeasured
from haptera.model.messages import AssistantMessage, Message
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
)
from haptera.model.secrets import scrub
from haptera.ports.telemetry import Begun, QueryBegun, ToolBegun, TurnBegun

_Plain: TypeAlias = dict[str, Any]


def begun_content(begun: Begun) -> dict[str, str]:
    """Return what is sent: a prompt, a request's messages, or the arguments of a tool."""
    match begun:
        case QueryBegun(prompt=prompt):
            return {"gen_ai.input.messages": _as_json([_message_form(prompt)])} if prompt else {}
        case TurnBegun(request=request):
            system = [{"type": "text", "content": text} for text in request.system]
            tools = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                }
                for tool in request.tools
            ]
            forms = {
                "gen_ai.input.messages": [_message_form(item) for item in request.messages],
                "gen_ai.system_instructions": system,
                "gen_ai.tool.definitions": tools,
            }
            return {name: _as_json(form) for name, form in forms.items() if form}
        case ToolBegun(arguments=arguments):
            return {"gen_ai.tool.call.arguments": _as_json(arguments)}


def ended_content(measured: Measured, parts: Sequence[Part]) -> dict[str, str]:
    """Return what came back: the answer of a model, or the result of a tool."""
    if isinstance(measured, TurnMeasured) and parts:
        answer = {
            "role": "assistant",
            "parts": [_part_form(part) for part in parts],
            "finish_reason": measured.finish_reason or "",
        }
        return {"gen_ai.output.messages": _as_json([answer])}
    if isinstance(measured, ToolMeasured) and parts:
        return {"gen_ai.tool.call.result": _as_json([_part_form(part) for part in parts])}
    return {}


def _message_form(message: Message) -> _Plain:
    parts = [_part_form(part) for part in message.parts]
    role = "assistant" if isinstance(message, AssistantMessage) else "user"
    # The conventions have a role for results of tools, which are user messages here.
    if parts and all(isinstance(part, ToolResultPart) for part in message.parts):
        role = "tool"
    return {"role": role, "parts": parts}


def _part_form(part: Part) -> _Plain:
    form: _Plain
    match part:
        case TextPart(text=text) | ReminderPart(text=text) | CompactionPart(text=text):
            form = {"type": "text", "content": text}
        case ReasoningPart(text=text):
            form = {"type": "reasoning", "content": text}
        case ToolCallPart(call_id=call_id, name=name):
            arguments = part.arguments if part.invalid is None else part.invalid
            form = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case ToolResultPart(call_id=call_id, text=text):
            form = {"type": "tool_call_response", "id": call_id, "response": text}
        case MediaPart(mime=mime, url=str() as url):
            form = {"type": "uri", "mime_type": mime, "uri": url}
        case MediaPart(mime=mime):  # its bytes would make spans as large as files
            form = {"type": "file", "mime_type": mime, "file_id": part.blob or ""}
        # Its content is opaque, and only its provider can read it.
        case ProviderPart(provider=provider):
            form = {"type": "provider", "provider": provider}
    return form


def _as_json(value: object) -> str:
    return scrub(msgspec.json.encode(value).decode())
