"""JSON Schemas of the public types, for programs in other languages."""

from typing import Any, get_args

import msgspec

from haptera.model.approvals import ApprovalRequest
from haptera.model.errors import ErrorReport
from haptera.model.known_events import KnownEntry, KnownLiveEvent
from haptera.model.messages import AssistantMessage, UserMessage
from haptera.model.results import AgentResult
from haptera.model.session_state import SessionState
from haptera.model.settings import PoolSettings, RuntimeSettings, Settings
from haptera.model.source_names import NATIVE_ID_NAMES
from haptera.model.usage import Usage

PUBLIC_TYPES: dict[str, Any] = {
    "AgentResult": AgentResult[Any],
    "ApprovalRequest": ApprovalRequest,
    "Entry": KnownEntry,
    "ErrorReport": ErrorReport,
    "LiveEvent": KnownLiveEvent,
    "Message": UserMessage | AssistantMessage,
    "PoolSettings": PoolSettings,
    "RuntimeSettings": RuntimeSettings,
    "SessionState": SessionState,
    "Settings": Settings,
    "Usage": Usage,
}


def as_written(components: dict[str, Any]) -> dict[str, Any]:
    """Return schemas of events as `encode_event` writes them.

    - No entry has a field `raw`: what it keeps is written in place of the entry.
    - An entry that names a native session names it in all ways.
    - The event inside a sub-agent's event may be any event. It would be one of the two base
      classes, which no event is.
    """
    if (outer := components.get("SubagentEvent")) is not None:
        kind = {"kind": {"type": "string"}}
        inner = {"type": "object", "properties": kind, "required": ["kind"]}
        outer["properties"]["event"] = inner
    for name, shape in components.items():
        if "kind" in (fields := shape.get("properties", {})):
            fields.pop("raw", None)
        if name in _NAMING_NATIVE_SESSIONS:
            fields.update({alias: {"type": "string"} for alias in NATIVE_ID_NAMES})
    return {name: each for name, each in components.items() if name not in _BASES}


def later_entry() -> dict[str, Any]:
    """Return the schema of an entry of a kind that this version does not know, as it was stored."""
    kinds = {"enum": [kind.__struct_config__.tag for kind in get_args(KnownEntry | KnownLiveEvent)]}
    return {
        "title": "UnknownEntry",
        "description": "An entry that a later version stored, as it was stored.",
        "type": "object",
        "properties": {
            "kind": {"type": "string", "not": kinds},
            "id": {"type": "string"},
            "time": {"type": "integer"},
            "seq": {"type": "integer"},
        },
        "required": ["kind", "id", "time", "seq"],
    }


_BASES = frozenset({"Entry", "LiveEvent", "NamedEvent"})
_NAMING_NATIVE_SESSIONS = frozenset({"QueryEnded", "SessionChanged", "SessionOpened"})
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
    """Return the JSON Schema of one line of `haptera --output-format stream-json`.

    The first line is a `session`, the last one a `result`, and every line between them an event,
    whose `type` is its `kind`. An event that this version does not know is an `UnknownEntry`.
    """
    (entry, live, _usage), components = msgspec.json.schema_components(
        [PUBLIC_TYPES["Entry"], PUBLIC_TYPES["LiveEvent"], Usage], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of haptera --output-format stream-json",
        "type": "object",
        "required": ["type"],
        "oneOf": [_SESSION, _RESULT, *entry["anyOf"], *live["anyOf"], later_entry()],
        "$defs": as_written(components),
    }
