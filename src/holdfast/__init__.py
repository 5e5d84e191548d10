"""Holdfast: LLM agent sessions that hold."""

from typing import TYPE_CHECKING

from holdfast.agent.agent import (
    Agent,
    create_agent_session,
    run_agent,
    run_agent_result,
    run_agent_stream,
)
from holdfast.agent.query_stream import QueryStream
from holdfast.agent.remote import AgentRemote
from holdfast.agent.retrying import with_retry
from holdfast.agent.session import AgentSession
from holdfast.blocks.error_classification import to_agent_error
from holdfast.blocks.tool_registry.tool import tool
from holdfast.ports.abort import AbortController, AbortSignal
from holdfast.ports.tools import ToolContext
from holdfast.serialization.session_state import SessionState
from holdfast.vocabulary.approvals import ApprovalRequest, Approve, Deny
from holdfast.vocabulary.entries import (
    ApprovalRequested,
    ApprovalSettled,
    PartEnded,
    PartStarted,
    QueryEnded,
    QueryStarted,
    RetryScheduled,
    ToolEnded,
    ToolStarted,
    TurnDiscarded,
    TurnEnded,
    TurnStarted,
)
from holdfast.vocabulary.errors import (
    AgentError,
    ConfigError,
    ErrorCode,
    HookError,
    ProviderError,
    RequestError,
    SessionError,
    StoreError,
    ToolError,
    is_agent_error,
)
from holdfast.vocabulary.events import (
    Event,
    ReasoningDelta,
    StatusChanged,
    TextDelta,
    ToolProgress,
)
from holdfast.vocabulary.late_names import late_names
from holdfast.vocabulary.messages import AssistantMessage, Message, UserMessage
from holdfast.vocabulary.outcomes import Err, Ok
from holdfast.vocabulary.parts import MediaPart, TextPart, ToolCallPart, ToolResultPart
from holdfast.vocabulary.results import AgentResult
from holdfast.vocabulary.settings import (
    Limits,
    ModelStep,
    RetrySettings,
    Settings,
    Timeouts,
)
from holdfast.vocabulary.usage import Usage

if TYPE_CHECKING:
    from holdfast.administration import (
        list_local_models,
        pull_model,
        remove_local_model,
    )
    from holdfast.administration.descriptions import (
        ActiveContext,
        SessionDescription,
        SessionSummary,
    )
    from holdfast.agent.sessions import AgentSessions

__version__ = "0.1.0"

__all__ = [
    "AbortController",
    "AbortSignal",
    "ActiveContext",
    "Agent",
    "AgentError",
    "AgentRemote",
    "AgentResult",
    "AgentSession",
    "AgentSessions",
    "ApprovalRequest",
    "ApprovalRequested",
    "ApprovalSettled",
    "Approve",
    "AssistantMessage",
    "ConfigError",
    "Deny",
    "Err",
    "ErrorCode",
    "Event",
    "HookError",
    "Limits",
    "MediaPart",
    "Message",
    "ModelStep",
    "Ok",
    "PartEnded",
    "PartStarted",
    "ProviderError",
    "QueryEnded",
    "QueryStarted",
    "QueryStream",
    "ReasoningDelta",
    "RequestError",
    "RetryScheduled",
    "RetrySettings",
    "SessionDescription",
    "SessionError",
    "SessionState",
    "SessionSummary",
    "Settings",
    "StatusChanged",
    "StoreError",
    "TextDelta",
    "TextPart",
    "Timeouts",
    "ToolCallPart",
    "ToolContext",
    "ToolEnded",
    "ToolError",
    "ToolProgress",
    "ToolResultPart",
    "ToolStarted",
    "TurnDiscarded",
    "TurnEnded",
    "TurnStarted",
    "Usage",
    "UserMessage",
    "create_agent_session",
    "is_agent_error",
    "list_local_models",
    "pull_model",
    "remove_local_model",
    "run_agent",
    "run_agent_result",
    "run_agent_stream",
    "to_agent_error",
    "tool",
    "with_retry",
]

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "ActiveContext": "holdfast.administration.descriptions",
            "AgentSessions": "holdfast.agent.sessions",
            "SessionDescription": "holdfast.administration.descriptions",
            "SessionSummary": "holdfast.administration.descriptions",
            "list_local_models": "holdfast.administration",
            "pull_model": "holdfast.administration",
            "remove_local_model": "holdfast.administration",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
