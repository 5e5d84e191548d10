"""Problems: every failure of a request as RFC 9457 `application/problem+json`."""

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.vocabulary.errors import AgentError, ErrorCode

PROBLEM_TYPE = "application/problem+json"

_STATUS = {
    ErrorCode.CONFIG_INVALID: 400,
    ErrorCode.NOTHING_TO_SEND: 409,
    ErrorCode.TOOL_INVALID_INPUT: 400,
    ErrorCode.CONTEXT_LENGTH: 413,
    ErrorCode.ACCESS_DENIED: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.MESSAGE_NOT_FOUND: 404,
    ErrorCode.BUSY: 409,
    ErrorCode.CONFLICT: 409,
    ErrorCode.STREAM_BUSY: 409,
    ErrorCode.CLOSED: 409,
    ErrorCode.FENCED: 409,
    ErrorCode.VERSION_UNSUPPORTED: 422,
    ErrorCode.CORRUPT: 422,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.QUOTA: 429,
    ErrorCode.ABORTED: 499,
    ErrorCode.TIMEOUT: 504,
    ErrorCode.POOL_FULL: 503,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.CONFIG_MISSING: 503,
    ErrorCode.FULL: 507,
}
_FROM_PROVIDER = 502
_TITLES = {
    400: "The request is not valid",
    401: "A token is needed",
    403: "This is not allowed",
    404: "There is no such thing",
    405: "This method is not offered here",
    406: "This cannot be sent in that form",
    409: "This conflicts with what is there",
    413: "This is too large",
    415: "This content type is not taken",
    422: "This cannot be read",
    429: "Too many requests",
    499: "It was aborted",
    500: "Something went wrong here",
    502: "The provider failed",
    503: "Not available now",
    504: "It took too long",
    507: "The disk is full",
}


class Problem(Exception):
    """A failure of a request, with everything that its answer says."""

    def __init__(self, status: int, code: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.more = more

    def answer(self) -> Response:
        """Return the answer to the request."""
        told = {
            "type": "about:blank",
            "title": _TITLES.get(self.status, "It failed"),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "retryable": False,
            **self.more,
        }
        headers = {"content-type": PROBLEM_TYPE}
        if (after := told.get("retry_after")) is not None:
            headers["retry-after"] = str(max(1, round(float(after))))
        if self.status == 401:
            headers["www-authenticate"] = 'Bearer realm="holdfast"'
        return Response(msgspec.json.encode(told), status_code=self.status, headers=headers)


def problem_of(error: AgentError) -> Problem:
    """Return an error of the library as the problem of a request; it holds no secret."""
    more: dict[str, Any] = {"retryable": error.retryable}
    if error.retry_after is not None:
        more["retry_after"] = error.retry_after
    return Problem(_STATUS.get(error.code, _FROM_PROVIDER), error.code.value, error.message, **more)
