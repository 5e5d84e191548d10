"""Holdfast: LLM agent sessions that hold."""

from typing import TYPE_CHECKING

from holdfast.vocabulary.late_names import late_names

if TYPE_CHECKING:
    from holdfast.administration import list_local_models, pull_model, remove_local_model
    from holdfast.administration.descriptions import (
        ActiveContext,
        SessionDescription,
        SessionSummary,
    )
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
    from holdfast.agent.sessions import AgentSessions
    from holdfast.blocks.error_classification import to_agent_error
    from holdfast.blocks.tool_registry.tool import tool
    from holdfast.ports.abort import AbortController, AbortSignal
    from holdfast.ports.tools import ToolContext
    from holdfast.serialization.session_state import SessionState
    from holdfast.session.session_descriptions import Unfinished
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
        ObserverLagged,
        ReasoningDelta,
        StatusChanged,
        TextDelta,
        ToolProgress,
    )
    from holdfast.vocabulary.messages import AssistantMessage, Message, UserMessage
    from holdfast.vocabulary.outcomes import Err, Ok
    from holdfast.vocabulary.parts import MediaPart, TextPart, ToolCallPart, ToolResultPart
    from holdfast.vocabulary.results import AgentResult
    from holdfast.vocabulary.settings import Limits, ModelStep, RetrySettings, Settings, Timeouts
    from holdfast.vocabulary.usage import Usage

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
    "ObserverLagged",
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
    "Unfinished",
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
    # A name is imported when it is first used, with what it needs and no more: a module of tools
    # loads no engine, and a command line no agent before it makes one.
    __getattr__ = late_names(
        __name__,
        {
            "AbortController": "holdfast.ports.abort",
            "AbortSignal": "holdfast.ports.abort",
            "ActiveContext": "holdfast.administration.descriptions",
            "Agent": "holdfast.agent.agent",
            "AgentError": "holdfast.vocabulary.errors",
            "AgentRemote": "holdfast.agent.remote",
            "AgentResult": "holdfast.vocabulary.results",
            "AgentSession": "holdfast.agent.session",
            "AgentSessions": "holdfast.agent.sessions",
            "ApprovalRequest": "holdfast.vocabulary.approvals",
            "ApprovalRequested": "holdfast.vocabulary.entries",
            "ApprovalSettled": "holdfast.vocabulary.entries",
            "Approve": "holdfast.vocabulary.approvals",
            "AssistantMessage": "holdfast.vocabulary.messages",
            "ConfigError": "holdfast.vocabulary.errors",
            "Deny": "holdfast.vocabulary.approvals",
            "Err": "holdfast.vocabulary.outcomes",
            "ErrorCode": "holdfast.vocabulary.errors",
            "Event": "holdfast.vocabulary.events",
            "HookError": "holdfast.vocabulary.errors",
            "Limits": "holdfast.vocabulary.settings",
            "MediaPart": "holdfast.vocabulary.parts",
            "Message": "holdfast.vocabulary.messages",
            "ModelStep": "holdfast.vocabulary.settings",
            "ObserverLagged": "holdfast.vocabulary.events",
            "Ok": "holdfast.vocabulary.outcomes",
            "PartEnded": "holdfast.vocabulary.entries",
            "PartStarted": "holdfast.vocabulary.entries",
            "ProviderError": "holdfast.vocabulary.errors",
            "QueryEnded": "holdfast.vocabulary.entries",
            "QueryStarted": "holdfast.vocabulary.entries",
            "QueryStream": "holdfast.agent.query_stream",
            "ReasoningDelta": "holdfast.vocabulary.events",
            "RequestError": "holdfast.vocabulary.errors",
            "RetryScheduled": "holdfast.vocabulary.entries",
            "RetrySettings": "holdfast.vocabulary.settings",
            "SessionDescription": "holdfast.administration.descriptions",
            "SessionError": "holdfast.vocabulary.errors",
            "SessionState": "holdfast.serialization.session_state",
            "SessionSummary": "holdfast.administration.descriptions",
            "Settings": "holdfast.vocabulary.settings",
            "StatusChanged": "holdfast.vocabulary.events",
            "StoreError": "holdfast.vocabulary.errors",
            "TextDelta": "holdfast.vocabulary.events",
            "TextPart": "holdfast.vocabulary.parts",
            "Timeouts": "holdfast.vocabulary.settings",
            "ToolCallPart": "holdfast.vocabulary.parts",
            "ToolContext": "holdfast.ports.tools",
            "ToolEnded": "holdfast.vocabulary.entries",
            "ToolError": "holdfast.vocabulary.errors",
            "ToolProgress": "holdfast.vocabulary.events",
            "ToolResultPart": "holdfast.vocabulary.parts",
            "ToolStarted": "holdfast.vocabulary.entries",
            "TurnDiscarded": "holdfast.vocabulary.entries",
            "TurnEnded": "holdfast.vocabulary.entries",
            "TurnStarted": "holdfast.vocabulary.entries",
            "Unfinished": "holdfast.session.session_descriptions",
            "Usage": "holdfast.vocabulary.usage",
            "UserMessage": "holdfast.vocabulary.messages",
            "create_agent_session": "holdfast.agent.agent",
            "is_agent_error": "holdfast.vocabulary.errors",
            "list_local_models": "holdfast.administration",
            "pull_model": "holdfast.administration",
            "remove_local_model": "holdfast.administration",
            "run_agent": "holdfast.agent.agent",
            "run_agent_result": "holdfast.agent.agent",
            "run_agent_stream": "holdfast.agent.agent",
            "to_agent_error": "holdfast.blocks.error_classification",
            "tool": "holdfast.blocks.tool_registry.tool",
            "with_retry": "holdfast.agent.retrying",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
