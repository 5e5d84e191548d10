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
    ObserverLagged,
    QueryMeasured,
    QuerySummary,
    ReasoningDelta,
    SessionDeleted,
    StatusChanged,
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
    return {**schema, "$defs": components}
