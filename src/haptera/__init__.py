"""Haptera: LLM agent sessions that hold."""

from typing import TYPE_CHECKING

from haptera.vocabulary.late_names import late_names
from haptera.vocabulary.own_name import OWN_VERSION

if TYPE_CHECKING:
    from haptera.administration import list_local_models, pull_model, remove_local_model
    from haptera.administration.descriptions import (
        ActiveContext,
        SessionDescription,
        SessionSummary,
    )
    from haptera.agent.agent import (
        Agent,
        create_agent_session,
        run_agent,
        run_agent_result,
        run_agent_stream,
    )
    from haptera.agent.query_stream import QueryStream
    from haptera.agent.remote import AgentRemote
    from haptera.agent.retrying import with_retry
    from haptera.agent.session import AgentSession
    from haptera.agent.sessions import AgentSessions
    from haptera.blocks.error_classification import to_agent_error
    from haptera.blocks.tool_registry.tool import tool
    from haptera.ports.abort import AbortController, AbortSignal
    from haptera.ports.tools import ToolContext
    from haptera.serialization.session_state import SessionState
    from haptera.session.session_descriptions import Unfinished
    from haptera.vocabulary.approvals import ApprovalRequest, Approve, Deny
    from haptera.vocabulary.entries import (
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
    from haptera.vocabulary.errors import (
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
    from haptera.vocabulary.events import (
        Event,
        ObserverLagged,
        ReasoningDelta,
        StatusChanged,
        TextDelta,
        ToolProgress,
    )
    from haptera.vocabulary.messages import AssistantMessage, Message, UserMessage
    from haptera.vocabulary.outcomes import Err, Ok
    from haptera.vocabulary.parts import MediaPart, TextPart, ToolCallPart, ToolResultPart
    from haptera.vocabulary.results import AgentResult
    from haptera.vocabulary.settings import Limits, ModelStep, RetrySettings, Settings, Timeouts
    from haptera.vocabulary.usage import Usage

__version__ = OWN_VERSION

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
            "AbortController": "haptera.ports.abort",
            "AbortSignal": "haptera.ports.abort",
            "ActiveContext": "haptera.administration.descriptions",
            "Agent": "haptera.agent.agent",
            "AgentError": "haptera.vocabulary.errors",
            "AgentRemote": "haptera.agent.remote",
            "AgentResult": "haptera.vocabulary.results",
            "AgentSession": "haptera.agent.session",
            "AgentSessions": "haptera.agent.sessions",
            "ApprovalRequest": "haptera.vocabulary.approvals",
            "ApprovalRequested": "haptera.vocabulary.entries",
            "ApprovalSettled": "haptera.vocabulary.entries",
            "Approve": "haptera.vocabulary.approvals",
            "AssistantMessage": "haptera.vocabulary.messages",
            "ConfigError": "haptera.vocabulary.errors",
            "Deny": "haptera.vocabulary.approvals",
            "Err": "haptera.vocabulary.outcomes",
            "ErrorCode": "haptera.vocabulary.errors",
            "Event": "haptera.vocabulary.events",
            "HookError": "haptera.vocabulary.errors",
            "Limits": "haptera.vocabulary.settings",
            "MediaPart": "haptera.vocabulary.parts",
            "Message": "haptera.vocabulary.messages",
            "ModelStep": "haptera.vocabulary.settings",
            "ObserverLagged": "haptera.vocabulary.events",
            "Ok": "haptera.vocabulary.outcomes",
            "PartEnded": "haptera.vocabulary.entries",
            "PartStarted": "haptera.vocabulary.entries",
            "ProviderError": "haptera.vocabulary.errors",
            "QueryEnded": "haptera.vocabulary.entries",
            "QueryStarted": "haptera.vocabulary.entries",
            "QueryStream": "haptera.agent.query_stream",
            "ReasoningDelta": "haptera.vocabulary.events",
            "RequestError": "haptera.vocabulary.errors",
            "RetryScheduled": "haptera.vocabulary.entries",
            "RetrySettings": "haptera.vocabulary.settings",
            "SessionDescription": "haptera.administration.descriptions",
            "SessionError": "haptera.vocabulary.errors",
            "SessionState": "haptera.serialization.session_state",
            "SessionSummary": "haptera.administration.descriptions",
            "Settings": "haptera.vocabulary.settings",
            "StatusChanged": "haptera.vocabulary.events",
            "StoreError": "haptera.vocabulary.errors",
            "TextDelta": "haptera.vocabulary.events",
            "TextPart": "haptera.vocabulary.parts",
            "Timeouts": "haptera.vocabulary.settings",
            "ToolCallPart": "haptera.vocabulary.parts",
            "ToolContext": "haptera.ports.tools",
            "ToolEnded": "haptera.vocabulary.entries",
            "ToolError": "haptera.vocabulary.errors",
            "ToolProgress": "haptera.vocabulary.events",
            "ToolResultPart": "haptera.vocabulary.parts",
            "ToolStarted": "haptera.vocabulary.entries",
            "TurnDiscarded": "haptera.vocabulary.entries",
            "TurnEnded": "haptera.vocabulary.entries",
            "TurnStarted": "haptera.vocabulary.entries",
            "Unfinished": "haptera.session.session_descriptions",
            "Usage": "haptera.vocabulary.usage",
            "UserMessage": "haptera.vocabulary.messages",
            "create_agent_session": "haptera.agent.agent",
            "is_agent_error": "haptera.vocabulary.errors",
            "list_local_models": "haptera.administration",
            "pull_model": "haptera.administration",
            "remove_local_model": "haptera.administration",
            "run_agent": "haptera.agent.agent",
            "run_agent_result": "haptera.agent.agent",
            "run_agent_stream": "haptera.agent.agent",
            "to_agent_error": "haptera.blocks.error_classification",
            "tool": "haptera.blocks.tool_registry.tool",
            "with_retry": "haptera.agent.retrying",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
