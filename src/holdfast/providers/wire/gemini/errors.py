"""Errors of Gemini generateContent; docs/provider-errors-gemini.md has the table."""

import re
from collections.abc import Mapping

from holdfast.providers.wire.error_replies import parse_body, readable
from holdfast.providers.wire.failures import Failure, classify_failure
from holdfast.vocabulary.errors import AgentError, ErrorCode, error_of
from holdfast.vocabulary.json_types import Json, JsonObject

_WORDS: dict[ErrorCode, str] = {
    ErrorCode.AUTH: "API_KEY_INVALID API_KEY_SERVICE_BLOCKED SERVICE_DISABLED CONSUMER_INVALID"
    " ACCESS_TOKEN_EXPIRED UNAUTHENTICATED PERMISSION_DENIED",
    ErrorCode.QUOTA: "BILLING_DISABLED QUOTA_OF_THE_DAY",
    ErrorCode.MODEL_NOT_FOUND: "NOT_FOUND",
    ErrorCode.RATE_LIMITED: "RESOURCE_EXHAUSTED",
    ErrorCode.SERVER_ERROR: "INTERNAL UNKNOWN ABORTED",
    ErrorCode.OVERLOADED: "UNAVAILABLE",
    ErrorCode.TIMEOUT: "DEADLINE_EXCEEDED",
    ErrorCode.STREAM_INTERRUPTED: "CANCELLED",
    ErrorCode.BAD_REQUEST: "FAILED_PRECONDITION OUT_OF_RANGE",
}
CODES = {word: code for code, words in _WORDS.items() for word in words.split()}

# Not only models can be missing.
_CACHE = re.compile(r"cache content", re.IGNORECASE)
_LONG_TERM = re.compile(r"per_?(day|month)", re.IGNORECASE)
_NO_PLAN = re.compile(r"limit: 0\b")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def classify(status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
    """Make the error of a reply that is not a success."""
    report = parse_body(body)
    if isinstance(report, list) and report:
        # Without server-sent events a stream is one array, its error included.
        report = report[-1]
    return error_of_report(report, status, headers, text=readable(body, status))


def error_of_report(
    report: Json,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    text: str = "",
) -> AgentError:
    """Make the error of a report: the body of a reply, or an error found inside a stream."""
    error = report.get("error") if isinstance(report, dict) else None
    found: JsonObject = error if isinstance(error, dict) else {"message": error or text}
    listed = found.get("details")
    details = (
        [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    )
    message = str(found.get("message") or "")
    word = str(found.get("status") or "")
    reasons = [str(each["reason"]) for each in details if each.get("reason")]
    if word == "RESOURCE_EXHAUSTED" and _is_spent(details, message):
        reasons.insert(0, "QUOTA_OF_THE_DAY")
    if word == "NOT_FOUND" and _CACHE.search(message):
        return error_of(ErrorCode.BAD_REQUEST, message, basis="pattern", status=status)
    failure = Failure(
        status=status,
        codes=(*reasons, word),
        message=message,
        headers=headers or {},
        retry_after=_retry_delay(details),
    )
    return classify_failure(failure, CODES)


def _is_spent(details: list[JsonObject], message: str) -> bool:
    """Whether a quota is used up for so long, or so fully, that waiting does not help."""
    violations = [
        violation
        for detail in details
        for violation in detail.get("violations") or ()
        if isinstance(violation, dict)
    ]
    names = " ".join(str(each.get("quotaId") or "") for each in violations)
    return bool(_LONG_TERM.search(names) or _NO_PLAN.search(message))


def _retry_delay(details: list[JsonObject]) -> float | None:
    for detail in details:
        if found := _SECONDS.fullmatch(str(detail.get("retryDelay") or "")):
            return float(found[1])
    return None
