"""Haptera: LLM agent sessions that hold."""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names
from haptera.model.own_name import OWN_VERSION

if TYPE_CHECKING:
    from haptera.access.administration import list_local_models, pull_model, remove_local_model
    from haptera.access.descriptions import (
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
    from haptera.kernel.blocks.error_classification import to_agent_error
    from haptera.kernel.blocks.tool_registry.tool import tool
    from haptera.kernel.session.session_descriptions import Unfinished
    from haptera.model.approvals import ApprovalRequest, Approve, Deny
    from haptera.model.errors import (
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
    from haptera.model.events import (
        Event,
        ObserverLagged,
        ReasoningDelta,
        StatusChanged,
        TextDelta,
        ToolProgress,
    )
    from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
    from haptera.model.log.queries import QueryEnded, QueryStarted
    from haptera.model.log.tools import ToolEnded, ToolStarted, ToolWaiting
    from haptera.model.log.turns import (
        PartEnded,
        PartStarted,
        RetryScheduled,
        TurnDiscarded,
        TurnEnded,
        TurnStarted,
    )
    from haptera.model.messages import AssistantMessage, Message, UserMessage
    from haptera.model.outcomes import Err, Ok
    from haptera.model.parts import MediaPart, TextPart, ToolCallPart, ToolResultPart
    from haptera.model.results import AgentResult
    from haptera.model.session_state import SessionState
    from haptera.model.settings import Limits, ModelStep, RetrySettings, Settings, Timeouts
    from haptera.model.tools import WaitingCall
    from haptera.model.usage import Usage
    from haptera.ports.runner import Retry
    from haptera.ports.tools import Later, ToolContext
    from haptera.system.abort import AbortController, AbortSignal

__version__ = OWN_VERSION

# A name is imported when it is first used, with what it needs and no more: a module of tools
# loads no engine, and a command line no agent before it makes one.
# Made by scripts/write_late_names.py.
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
    "Later",
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
    "Retry",
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
    "ToolWaiting",
    "TurnDiscarded",
    "TurnEnded",
    "TurnStarted",
    "Unfinished",
    "Usage",
    "UserMessage",
    "WaitingCall",
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
            "AbortController": "haptera.system.abort",
            "AbortSignal": "haptera.system.abort",
            "ActiveContext": "haptera.access.descriptions",
            "Agent": "haptera.agent.agent",
            "AgentError": "haptera.model.errors",
            "AgentRemote": "haptera.agent.remote",
            "AgentResult": "haptera.model.results",
            "AgentSession": "haptera.agent.session",
            "AgentSessions": "haptera.agent.sessions",
            "ApprovalRequest": "haptera.model.approvals",
            "ApprovalRequested": "haptera.model.log.approvals",
            "ApprovalSettled": "haptera.model.log.approvals",
            "Approve": "haptera.model.approvals",
            "AssistantMessage": "haptera.model.messages",
            "ConfigError": "haptera.model.errors",
            "Deny": "haptera.model.approvals",
            "Err": "haptera.model.outcomes",
            "ErrorCode": "haptera.model.errors",
            "Event": "haptera.model.events",
            "HookError": "haptera.model.errors",
            "Later": "haptera.ports.tools",
            "Limits": "haptera.model.settings",
            "MediaPart": "haptera.model.parts",
            "Message": "haptera.model.messages",
            "ModelStep": "haptera.model.settings",
            "ObserverLagged": "haptera.model.events",
            "Ok": "haptera.model.outcomes",
            "PartEnded": "haptera.model.log.turns",
            "PartStarted": "haptera.model.log.turns",
            "ProviderError": "haptera.model.errors",
            "QueryEnded": "haptera.model.log.queries",
            "QueryStarted": "haptera.model.log.queries",
            "QueryStream": "haptera.agent.query_stream",
            "ReasoningDelta": "haptera.model.events",
            "RequestError": "haptera.model.errors",
            "Retry": "haptera.ports.runner",
            "RetryScheduled": "haptera.model.log.turns",
            "RetrySettings": "haptera.model.settings",
            "SessionDescription": "haptera.access.descriptions",
            "SessionError": "haptera.model.errors",
            "SessionState": "haptera.model.session_state",
            "SessionSummary": "haptera.access.descriptions",
            "Settings": "haptera.model.settings",
            "StatusChanged": "haptera.model.events",
            "StoreError": "haptera.model.errors",
            "TextDelta": "haptera.model.events",
            "TextPart": "haptera.model.parts",
            "Timeouts": "haptera.model.settings",
            "ToolCallPart": "haptera.model.parts",
            "ToolContext": "haptera.ports.tools",
            "ToolEnded": "haptera.model.log.tools",
            "ToolError": "haptera.model.errors",
            "ToolProgress": "haptera.model.events",
            "ToolResultPart": "haptera.model.parts",
            "ToolStarted": "haptera.model.log.tools",
            "ToolWaiting": "haptera.model.log.tools",
            "TurnDiscarded": "haptera.model.log.turns",
            "TurnEnded": "haptera.model.log.turns",
            "TurnStarted": "haptera.model.log.turns",
            "Unfinished": "haptera.kernel.session.session_descriptions",
            "Usage": "haptera.model.usage",
            "UserMessage": "haptera.model.messages",
            "WaitingCall": "haptera.model.tools",
            "create_agent_session": "haptera.agent.agent",
            "is_agent_error": "haptera.model.errors",
            "list_local_models": "haptera.access.administration",
            "pull_model": "haptera.access.administration",
            "remove_local_model": "haptera.access.administration",
            "run_agent": "haptera.agent.agent",
            "run_agent_result": "haptera.agent.agent",
            "run_agent_stream": "haptera.agent.agent",
            "to_agent_error": "haptera.kernel.blocks.error_classification",
            "tool": "haptera.kernel.blocks.tool_registry.tool",
            "with_retry": "haptera.agent.retrying",
        },
    )
# End.


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
