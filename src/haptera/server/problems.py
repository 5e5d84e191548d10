"""Problems: every failure of a request as RFC 9457 `application/problem+json`."""

import msgspec

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.secrets import scrub

PROBLEM_TYPE = "application/problem+json"

_STATUS = {
    ErrorCode.CONFIG_INVALID: 400,
    ErrorCode.TOOL_INVALID_INPUT: 400,
    ErrorCode.MODEL_NOT_FOUND: 400,
    ErrorCode.ACCESS_DENIED: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.MESSAGE_NOT_FOUND: 404,
    ErrorCode.NOTHING_TO_SEND: 409,
    ErrorCode.BUSY: 409,
    ErrorCode.CONFLICT: 409,
    ErrorCode.STREAM_BUSY: 409,
    ErrorCode.CLOSED: 409,
    ErrorCode.FENCED: 409,
    ErrorCode.CONTEXT_LENGTH: 413,
    ErrorCode.VERSION_UNSUPPORTED: 422,
    ErrorCode.CORRUPT: 422,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.QUOTA: 429,
    ErrorCode.ABORTED: 499,
    ErrorCode.HOOK_FAILED: 500,
    ErrorCode.TOOL_FAILED: 500,
    ErrorCode.TOOL_NOT_FOUND: 500,
    ErrorCode.TOOL_TIMEOUT: 500,
    ErrorCode.POOL_FULL: 503,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.CONFIG_MISSING: 503,
    ErrorCode.TIMEOUT: 504,
    ErrorCode.FULL: 507,
}
_FROM_PROVIDER = 502
_UNAVAILABLE = 503
_RETRY_AFTER_SECONDS = 1.0
TITLES = {
    400: "Invalid request",
    401: "Token required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported content type",
    422: "Cannot be read",
    429: "Too many requests",
    431: "Headers too large",
    499: "Aborted",
    500: "Internal error",
    502: "Provider error",
    503: "Unavailable",
    504: "Timeout",
    507: "Disk full",
}


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every response that reports a failure."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """The code of the error, as in the library."""
    retryable: bool
    """Whether the same request may succeed later."""
    retry_after: float | None = None
    """Seconds to wait before."""
    head: int | None = None
    """Where the log ends, when a `seq` is beyond it."""
    request_id: str | None = None
    """The `X-Request-Id` of the response, which the log of the server has, too."""


class ProblemError(Exception):
    """A failure of a request, with everything that its response says."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        head: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.body = ProblemBody(
            type="about:blank",
            title=TITLES.get(status, "Error"),
            status=status,
            detail=scrub(detail),
            code=code,
            retryable=retryable,
            retry_after=retry_after,
            head=head,
        )


def problem_of(error: AgentError) -> ProblemError:
    """Return an error of the library as the problem of a request."""
    status, retry_after = _STATUS.get(error.code, _FROM_PROVIDER), error.retry_after
    if retry_after is None and error.retryable and status == _UNAVAILABLE:
        retry_after = _RETRY_AFTER_SECONDS
    return ProblemError(
        status,
        error.code.value,
        error.message,
        retryable=error.retryable,
        retry_after=retry_after,
    )
