"""The public names, pinned: adding one is a decision, and there are few enough to learn."""

import inspect

import haptera

MOST = 80

NAMES = {
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
}


def test_the_public_names_are_the_pinned_ones() -> None:
    assert set(haptera.__all__) == NAMES


def test_the_public_names_are_few_and_sorted() -> None:
    assert len(haptera.__all__) <= MOST
    assert haptera.__all__ == sorted(haptera.__all__, key=lambda name: (name.islower(), name))


def test_every_public_name_is_there() -> None:
    assert [name for name in haptera.__all__ if not hasattr(haptera, name)] == []


def test_every_public_class_and_function_says_what_it_is() -> None:
    values = {name: getattr(haptera, name) for name in haptera.__all__}
    undocumented = [
        name
        for name, value in values.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value)
    ]
    assert undocumented == []


def test_what_has_a_default_is_given_by_name() -> None:
    classes = [haptera.Agent, haptera.AgentSession, haptera.AgentRemote, haptera.QueryStream]
    loose = [
        f"{kind.__name__}.{name}({parameter.name})"
        for kind in classes
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        for parameter in list(inspect.signature(method).parameters.values())[2:]
        if parameter.default is not parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
    ]
    assert loose == ["AgentSession.deny(reason)", "AgentRemote.deny(reason)"]
