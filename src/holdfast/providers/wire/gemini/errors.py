"""Errors of Gemini generateContent: how they are read, and the typed codes that only they have."""

import re

from holdfast.providers.wire.failures import (
    Failure,
    FailureRules,
    code_table,
    error_object,
    objects_in,
    status_among,
    text_of,
)
from holdfast.vocabulary.errors import ErrorCode
from holdfast.vocabulary.json_types import Json, JsonObject

_QUOTA_OF_THE_DAY = "QUOTA_OF_THE_DAY"
CODES = code_table(
    {
        ErrorCode.AUTH: "API_KEY_INVALID API_KEY_SERVICE_BLOCKED SERVICE_DISABLED CONSUMER_INVALID"
        " ACCESS_TOKEN_EXPIRED UNAUTHENTICATED PERMISSION_DENIED",
        ErrorCode.QUOTA: f"BILLING_DISABLED {_QUOTA_OF_THE_DAY}",
        ErrorCode.RATE_LIMITED: "RESOURCE_EXHAUSTED",
        ErrorCode.SERVER_ERROR: "INTERNAL UNKNOWN ABORTED",
        ErrorCode.OVERLOADED: "UNAVAILABLE",
        ErrorCode.TIMEOUT: "DEADLINE_EXCEEDED",
        ErrorCode.STREAM_INTERRUPTED: "CANCELLED",
        ErrorCode.BAD_REQUEST: "FAILED_PRECONDITION OUT_OF_RANGE",
    }
)
# A key that is wrong is an invalid argument, too, and not only models can be missing.
GENERAL_CODES = code_table(
    {ErrorCode.BAD_REQUEST: "INVALID_ARGUMENT", ErrorCode.MODEL_NOT_FOUND: "NOT_FOUND"}
)

_LONG_TERM = re.compile(r"per_?(day|month)", re.IGNORECASE)
_NO_PLAN = re.compile(r"limit: 0\b")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def _read(report: Json) -> Failure:
    # Without server-sent events a stream is one array, its error included.
    error = error_object(report[-1] if isinstance(report, list) and report else report)
    details = objects_in(error.get("details"))
    message, word = text_of(error.get("message")), text_of(error.get("status"))
    codes = [str(each["reason"]) for each in details if each.get("reason")]
    if word == "RESOURCE_EXHAUSTED" and _is_spent(details, message):
        codes.insert(0, _QUOTA_OF_THE_DAY)
    return Failure(
        codes=(*codes, word) if word else tuple(codes),
        message=message,
        status=status_among(error.get("code")),
        retry_after=_retry_delay(details),
    )


def _is_spent(details: list[JsonObject], message: str) -> bool:
    """Whether a quota is used up for so long, or so fully, that waiting does not help."""
    violations = [
        violation for detail in details for violation in objects_in(detail.get("violations"))
    ]
    names = " ".join(str(each.get("quotaId") or "") for each in violations)
    return bool(_LONG_TERM.search(names) or _NO_PLAN.search(message))


def _retry_delay(details: list[JsonObject]) -> float | None:
    for detail in details:
        if found := _SECONDS.fullmatch(str(detail.get("retryDelay") or "")):
            return float(found[1])
    return None


ERRORS = FailureRules(read=_read, codes=CODES, general_codes=GENERAL_CODES)
