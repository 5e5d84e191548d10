"""Anthropic Messages: errors, by their typed code, then their status.

The table is `docs/provider-errors-anthropic.md`.
"""

from collections.abc import Mapping

from holdfast.blocks.error_classification import code_of_status
from holdfast.providers.wire.error_replies import (
    ErrorReply,
    code_of_message,
    parse_body,
    readable,
    retry_after,
    shortened,
)
from holdfast.vocabulary.errors import AgentError, Basis, ErrorCode
from holdfast.vocabulary.json_types import Json, JsonObject

CODES = {
    "authentication_error": ErrorCode.AUTH,
    "permission_error": ErrorCode.AUTH,
    "billing_error": ErrorCode.QUOTA,
    "not_found_error": ErrorCode.MODEL_NOT_FOUND,
    "request_too_large": ErrorCode.CONTEXT_LENGTH,
    "rate_limit_error": ErrorCode.RATE_LIMITED,
    "api_error": ErrorCode.SERVER_ERROR,
    "timeout_error": ErrorCode.TIMEOUT,
    "overloaded_error": ErrorCode.OVERLOADED,
    "exceed_context_size_error": ErrorCode.CONTEXT_LENGTH,
}
_GENERAL = "invalid_request_error"
_FIRST_ERROR_STATUS = 400


def classify(status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
    """Make the typed error of a reply that is not a success."""
    parsed = parse_body(body)
    error = _error_object(parsed)
    message = error.get("message")
    reply = ErrorReply(
        message=shortened(message) if isinstance(message, str) else readable(body, status),
        status=status,
        request_id=_request_id(parsed) or headers.get("request-id"),
        retry_after=retry_after(headers),
    )
    code, basis = _code(error, reply.message, status)
    return reply.to_error(code, basis)


def error_of_event(error: JsonObject, request_id: str | None) -> AgentError:
    """Make the typed error of an error that came inside a reply that began as a success."""
    message = error.get("message")
    reply = ErrorReply(
        message=shortened(message) if isinstance(message, str) else "the answer failed",
        request_id=request_id,
    )
    code, basis = _code(error, reply.message, None)
    return reply.to_error(code, basis)


def _code(error: JsonObject, message: str, status: int | None) -> tuple[ErrorCode, Basis]:
    kind = error.get("type")
    details = error.get("details")
    if isinstance(details, dict) and "spend_limit" in str(details.get("error_code")):
        return ErrorCode.QUOTA, "code"
    if kind in CODES:
        return CODES[kind], "code"
    if by_text := code_of_message(message):
        return by_text, "pattern"
    if status is not None and status >= _FIRST_ERROR_STATUS:
        return code_of_status(status), "status"
    if kind == _GENERAL:
        return ErrorCode.BAD_REQUEST, "code"
    # A success that is no stream, or an error of a kind nobody has told us about.
    return (
        (ErrorCode.PROTOCOL, "fallback") if kind is None else (ErrorCode.SERVER_ERROR, "fallback")
    )


def _error_object(parsed: Json) -> JsonObject:
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _request_id(parsed: Json) -> str | None:
    request_id = parsed.get("request_id") if isinstance(parsed, dict) else None
    return request_id if isinstance(request_id, str) else None
