"""How a command ended: its exit code, and the result object of `--output-format json`."""

import enum
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from haptera.model.approvals import ApprovalRequest
from haptera.model.errors import AgentError, ErrorCode
from haptera.model.results import AgentResult
from haptera.model.usage import Usage


class Exit(enum.IntEnum):
    """What the exit code of `haptera` says."""

    OK = 0
    ERROR = 1
    USAGE = 2
    """A flag, a value or the configuration is wrong, or lacks something, such as a key."""
    LIMIT = 3
    """A timeout, a budget or another limit ended the query."""
    NO_SESSION = 4
    PERMISSION = 5
    """A tool call needed an approval and no person could be asked."""
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


_BY_CODE = {
    ErrorCode.TIMEOUT: Exit.LIMIT,
    ErrorCode.NOT_FOUND: Exit.NO_SESSION,
    ErrorCode.CONFIG_INVALID: Exit.USAGE,
    ErrorCode.CONFIG_MISSING: Exit.USAGE,
    ErrorCode.ABORTED: Exit.INTERRUPTED,
}
_SUBTYPES = {
    "complete": "success",
    "max_tokens": "error_max_tokens",
    "limit": "error_limit",
    "approval": "error_permission",
    "waiting": "error_waiting",
    "loop": "error_loop",
    "refusal": "error_refusal",
}


class Denial(msgspec.Struct, frozen=True, kw_only=True, rename={"tool": "tool_name"}):
    """A tool call that was not run as no person could be asked, as the result object has it."""

    tool: str
    tool_use_id: str
    tool_input: Any

    @classmethod
    def of(cls, request: ApprovalRequest) -> "Denial":
        """Return the denial of what was asked."""
        return cls(tool=request.tool, tool_use_id=request.call_id, tool_input=request.arguments)


class OneShotOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one query, whether it ended, failed or was stopped."""

    result: AgentResult[Any] | None = None
    error: AgentError | None = None
    denials: tuple[Denial, ...] = ()
    signal: Exit | None = None
    """HUNG_UP, INTERRUPTED or TERMINATED, when a signal stopped it."""

    @property
    def exit(self) -> Exit:
        """The exit code."""
        if self.signal is not None:
            return self.signal
        if self.error is not None:
            return exit_of(self.error)
        stop = self.result.stop_reason if self.result else "complete"
        if self.denials or stop == "approval":
            return Exit.PERMISSION
        return {"complete": Exit.OK, "max_tokens": Exit.OK, "limit": Exit.LIMIT}.get(
            stop, Exit.ERROR
        )

    @property
    def text(self) -> str:
        """The text of the last answer, also of one that was cut off."""
        return self.result.text if self.result else ""


def exit_of(error: AgentError) -> Exit:
    """Return the exit code that an error gives."""
    return _BY_CODE.get(error.code, Exit.ERROR)


def one_shot_outcome(
    result: AgentResult[Any] | None,
    error: AgentError | None,
    *,
    denials: Sequence[ApprovalRequest] = (),
    signal: Exit | None = None,
) -> OneShotOutcome:
    """Join what a query gave back and what it failed with."""
    partial = result
    if partial is None and error is not None:
        partial = error.result
    return OneShotOutcome(
        result=partial, error=error, denials=tuple(map(Denial.of, denials)), signal=signal
    )


def result_object(
    outcome: OneShotOutcome, *, session_id: str | None, duration_ms: int
) -> dict[str, Any]:
    """Return the last line of `stream-json`, and all of `json`: the field names are Claude's."""
    result, error = outcome.result, outcome.error
    fields: dict[str, Any] = {
        "type": "result",
        "subtype": _subtype(outcome),
        "is_error": outcome.exit is not Exit.OK,
        "result": outcome.text,
        "session_id": (result.session_id if result else None) or session_id,
        "duration_ms": (result.duration_ms if result else 0) or duration_ms,
        "num_turns": result.turns if result else 0,
        "stop_reason": result.stop_reason if result else "error",
        "total_cost_usd": _dollars(result.cost if result else None),
        "usage": msgspec.to_builtins(result.usage if result else Usage()),
        "permission_denials": msgspec.to_builtins(outcome.denials),
    }
    if result is not None and result.stop_detail:
        fields["stop_detail"] = result.stop_detail
    if result is not None and result.output is not None:  # only `--output-schema` has one
        fields["structured_output"] = result.output
    # An abort is no failure: `stop_reason` says it.
    if error is not None and error.code is not ErrorCode.ABORTED:
        fields["error"] = {
            "code": error.code.value,
            "message": error.message,
            "retryable": error.retryable,
        }
    return fields


def _subtype(outcome: OneShotOutcome) -> str:
    if outcome.error is not None and outcome.error.code is not ErrorCode.ABORTED:
        return "error_during_execution"
    stop = outcome.result.stop_reason if outcome.result else "aborted"
    return _SUBTYPES.get(stop, f"error_{stop}")


def _dollars(cost: Decimal | None) -> float | None:
    return None if cost is None else float(cost)
