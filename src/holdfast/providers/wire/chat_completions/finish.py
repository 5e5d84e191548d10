"""Why a Chat Completions answer ended: the servers' words, in ours."""

from holdfast.vocabulary.errors import AgentError, ErrorCode, error_of
from holdfast.vocabulary.stream_parts import FinishKind

_KINDS: dict[str, FinishKind] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "context_window",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
}

_FAILURES = {
    "error": ErrorCode.SERVER_ERROR,
    "network_error": ErrorCode.SERVER_ERROR,
    "insufficient_system_resource": ErrorCode.OVERLOADED,
}
"""Words for an answer that the server gave up; what came before is not an answer."""


def finish_kind(reason: str, *, has_calls: bool, is_refused: bool) -> FinishKind:
    """Return why the model stopped.

    Servers say `stop` after a tool call that was demanded and after a refusal; what the answer
    holds tells more than the word.
    """
    kind = _KINDS.get(reason.lower(), "other")
    if kind == "stop":
        if has_calls:
            return "tool_calls"
        return "refusal" if is_refused else "stop"
    if kind == "tool_calls" and not has_calls:
        return "stop"
    return kind


def failed_finish(reason: str) -> AgentError | None:
    """Return the error that `reason` stands for, if it does."""
    code = _FAILURES.get(reason.lower())
    if code is None:
        return None
    return error_of(code, f"The provider gave up its answer ({reason}).", basis="code")
