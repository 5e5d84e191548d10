"""JSON Schemas of the public types, for programs in other languages."""

from typing import Any

import msgspec

from holdfast.serialization.session_state import SessionState
from holdfast.vocabulary.approvals import ApprovalRequest
from holdfast.vocabulary.entry_kinds import KnownEntry
from holdfast.vocabulary.errors import ErrorReport
from holdfast.vocabulary.events import (
    CompactionDelta,
    Heartbeat,
    HookFailed,
    NativeNoted,
    ObserverLagged,
    QueryMeasured,
    QuerySummary,
    ReasoningDelta,
    SessionDeleted,
    StatusChanged,
    SubagentChanged,
    SubagentEvent,
    TextDelta,
    ToolFailed,
    ToolInputDelta,
    ToolMeasured,
    ToolProgress,
    TurnMeasured,
)
from holdfast.vocabulary.messages import AssistantMessage, UserMessage
from holdfast.vocabulary.results import AgentResult
from holdfast.vocabulary.settings import RuntimeSettings, Settings
from holdfast.vocabulary.usage import Usage

PUBLIC_TYPES: dict[str, Any] = {
    "AgentResult": AgentResult[Any],
    "ApprovalRequest": ApprovalRequest,
    "Entry": KnownEntry,
    "ErrorReport": ErrorReport,
    "LiveEvent": TextDelta
    | ReasoningDelta
    | CompactionDelta
    | ToolInputDelta
    | ToolProgress
    | ToolFailed
    | StatusChanged
    | SessionDeleted
    | SubagentChanged
    | SubagentEvent
    | NativeNoted
    | Heartbeat
    | QuerySummary
    | TurnMeasured
    | ToolMeasured
    | QueryMeasured
    | HookFailed
    | ObserverLagged,
    "Message": UserMessage | AssistantMessage,
    "RuntimeSettings": RuntimeSettings,
    "SessionState": SessionState,
    "Settings": Settings,
    "Usage": Usage,
}


def json_schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a public type by its name."""
    (schema,), components = msgspec.json.schema_components(
        [PUBLIC_TYPES[name]], ref_template="#/$defs/{name}"
    )
    return {**schema, "$defs": with_inner_events(components)}


def with_inner_events(components: dict[str, Any]) -> dict[str, Any]:
    """Return schemas in which the event inside a sub-agent's event may be any event.

    Without this it would be one of the two base classes, which no event is.
    """
    if (outer := components.get("SubagentEvent")) is not None:
        kind = {"kind": {"type": "string"}}
        inner = {"type": "object", "properties": kind, "required": ["kind"]}
        outer["properties"]["event"] = inner
    return {name: each for name, each in components.items() if name not in _BASES}


_BASES = frozenset({"Entry", "LiveEvent"})
_RESULT = {
    "title": "result",
    "type": "object",
    "properties": {
        "type": {"const": "result"},
        "subtype": {"type": "string"},
        "is_error": {"type": "boolean"},
        "result": {"type": "string"},
        "session_id": {"type": ["string", "null"]},
        "duration_ms": {"type": "integer"},
        "num_turns": {"type": "integer"},
        "stop_reason": {"type": "string"},
        "stop_detail": {"type": "string"},
        "total_cost_usd": {"type": ["number", "null"]},
        "usage": {"$ref": "#/$defs/Usage"},
        "permission_denials": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "tool_name": {"type": "string"},
                    "tool_use_id": {"type": "string"},
                    "tool_input": {},
                },
                "required": ["tool_name", "tool_use_id", "tool_input"],
                "additionalProperties": False,
            },
        },
        "structured_output": {},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "retryable": {"type": "boolean"},
            },
            "required": ["code", "message", "retryable"],
            "additionalProperties": False,
        },
    },
    "required": [
        *("type", "subtype", "is_error", "result", "session_id", "duration_ms", "num_turns"),
        *("stop_reason", "total_cost_usd", "usage", "permission_denials"),
    ],
    "additionalProperties": False,
}
_SESSION = {
    "title": "session",
    "type": "object",
    "properties": {
        "type": {"const": "session"},
        "session_id": {"type": "string"},
        "model": {"type": "string"},
        "permission_mode": {"type": "string"},
    },
    "required": ["type", "session_id", "model", "permission_mode"],
    "additionalProperties": False,
}


def stream_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of `holdfast --output-format stream-json`.

    The first line is a `session`, the last one a `result`, and every line between them an event,
    whose `type` is its `kind`.
    """
    (entry, live, _usage), components = msgspec.json.schema_components(
        [PUBLIC_TYPES["Entry"], PUBLIC_TYPES["LiveEvent"], Usage], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of holdfast --output-format stream-json",
        "type": "object",
        "required": ["type"],
        "oneOf": [_SESSION, _RESULT, *entry["anyOf"], *live["anyOf"]],
        "$defs": with_inner_events(components),
    }
