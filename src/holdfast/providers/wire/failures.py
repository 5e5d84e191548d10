"""From a provider's failure to a typed error: typed code first, then status, words last.

Each protocol reads its own error body into a `Failure` and brings its own table of typed codes;
the order of judgement is the same for all.
"""

import re
from collections.abc import Mapping

import msgspec

from holdfast.providers.wire.error_replies import retry_after, shortened
from holdfast.vocabulary.errors import AgentError, Basis, ErrorCode, error_of

CODE_OF_STATUS: dict[int, ErrorCode] = {
    401: ErrorCode.AUTH,
    402: ErrorCode.QUOTA,
    403: ErrorCode.AUTH,
    404: ErrorCode.MODEL_NOT_FOUND,
    408: ErrorCode.TIMEOUT,
    409: ErrorCode.SERVER_ERROR,
    413: ErrorCode.CONTEXT_LENGTH,
    429: ErrorCode.RATE_LIMITED,
    502: ErrorCode.OVERLOADED,
    503: ErrorCode.OVERLOADED,
    504: ErrorCode.TIMEOUT,
    529: ErrorCode.OVERLOADED,
}
"""Statuses that say enough by themselves; 400 and 500 are left for the words."""

Patterns = tuple[tuple[re.Pattern[str], ErrorCode], ...]

PATTERNS: Patterns = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"(incorrect|invalid) api key|api key (not valid|expired)", ErrorCode.AUTH),
        (r"model\b.{0,80}\b(not found|does not exist)", ErrorCode.MODEL_NOT_FOUND),
        (r"context (length|window|size)|maximum context", ErrorCode.CONTEXT_LENGTH),
        (r"token count .*exceeds|prompt is too long", ErrorCode.CONTEXT_LENGTH),
        (r"content (management|filter|policy)|safety system", ErrorCode.CONTENT_FILTER),
    )
)
"""What is looked for in the words of an error that neither code nor status explains."""

_WAIT = re.compile(
    r"(?:try again|retry) (?:in|after) (\d+(?:\.\d+)?)\s?"
    r"(ms|milliseconds?|s|seconds?|m|minutes?)\b",
    re.IGNORECASE,
)
_SECONDS_IN = {"ms": 0.001, "mil": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0}
_FIRST_SERVER_ERROR = 500


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider said about a failure, read out of its own form."""

    status: int | None = None
    """None for a failure inside a stream that began well."""
    codes: tuple[str, ...] = ()
    """Typed codes, the most telling first."""
    message: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    retry_after: float | None = None
    """What the body says, where it has a field for it."""


def classify_failure(
    failure: Failure, codes: Mapping[str, ErrorCode], patterns: Patterns = PATTERNS
) -> AgentError:
    """Make the error of `failure`, judged by `codes` first, then by status, then by words."""
    code, basis = _judge(failure, codes, patterns)
    headers = {name.lower(): value for name, value in failure.headers.items()}
    return error_of(
        code,
        shortened(failure.message) or f"the provider answered with status {failure.status}",
        basis=basis,
        status=failure.status,
        request_id=headers.get("x-request-id") or headers.get("apim-request-id"),
        retry_after=_wait_of(failure, headers),
    )


def _judge(
    failure: Failure, codes: Mapping[str, ErrorCode], patterns: Patterns
) -> tuple[ErrorCode, Basis]:
    for typed in failure.codes:
        if typed in codes:
            return codes[typed], "code"
    status = failure.status
    if status in CODE_OF_STATUS:
        return CODE_OF_STATUS[status], "status"
    for pattern, code in patterns:
        if pattern.search(failure.message):
            return code, "pattern"
    if status is None:
        return ErrorCode.SERVER_ERROR, "fallback"
    is_theirs = status >= _FIRST_SERVER_ERROR
    return (ErrorCode.SERVER_ERROR if is_theirs else ErrorCode.BAD_REQUEST), "status"


def _wait_of(failure: Failure, headers: Mapping[str, str]) -> float | None:
    if (seconds := retry_after(headers)) is not None:
        return seconds
    if failure.retry_after is not None:
        return failure.retry_after
    if found := _WAIT.search(failure.message):
        return round(float(found[1]) * _SECONDS_IN[found[2].lower()[:3]], 3)
    return None
