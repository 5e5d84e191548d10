"""Makes typed errors of what Chat Completions servers say when they fail.

By the typed code first, then by phrases that are known to mean one thing, then by the status.
The table in docs/provider-errors-chat.md is the promise; a test reads it.
"""

import re
from collections.abc import Iterator, Mapping

import msgspec

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
from holdfast.vocabulary.json_types import JsonObject

CODES: dict[str, ErrorCode] = {
    "invalid_api_key": ErrorCode.AUTH,
    "authentication_error": ErrorCode.AUTH,
    "permission_error": ErrorCode.AUTH,
    "account_deactivated": ErrorCode.AUTH,
    "unsupported_country_region_territory": ErrorCode.AUTH,
    "insufficient_quota": ErrorCode.QUOTA,
    "insufficient_balance": ErrorCode.QUOTA,
    "billing_hard_limit_reached": ErrorCode.QUOTA,
    "billing_not_active": ErrorCode.QUOTA,
    "exceeded_current_quota_error": ErrorCode.QUOTA,
    "rate_limit_exceeded": ErrorCode.RATE_LIMITED,
    "rate_limit_error": ErrorCode.RATE_LIMITED,
    "too_many_requests": ErrorCode.RATE_LIMITED,
    "overloaded_error": ErrorCode.OVERLOADED,
    "engine_overloaded_error": ErrorCode.OVERLOADED,
    "server_overloaded": ErrorCode.OVERLOADED,
    "service_unavailable": ErrorCode.OVERLOADED,
    "model_not_found": ErrorCode.MODEL_NOT_FOUND,
    "invalid_model": ErrorCode.MODEL_NOT_FOUND,
    "not_found_error": ErrorCode.MODEL_NOT_FOUND,
    "deploymentnotfound": ErrorCode.MODEL_NOT_FOUND,
    "model_decommissioned": ErrorCode.MODEL_NOT_FOUND,
    "context_length_exceeded": ErrorCode.CONTEXT_LENGTH,
    "exceed_context_size_error": ErrorCode.CONTEXT_LENGTH,
    "too_many_prompt_tokens": ErrorCode.CONTEXT_LENGTH,
    "request_too_large": ErrorCode.CONTEXT_LENGTH,
    "content_filter": ErrorCode.CONTENT_FILTER,
    "content_policy_violation": ErrorCode.CONTENT_FILTER,
    "moderation_blocked": ErrorCode.CONTENT_FILTER,
    "server_error": ErrorCode.SERVER_ERROR,
    "internal_server_error": ErrorCode.SERVER_ERROR,
}

_BY_PHRASE = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"request too large for (?:model|gpt)", ErrorCode.CONTEXT_LENGTH),
        (r"maximum prompt length|greater than the context length", ErrorCode.CONTEXT_LENGTH),
        (r"is not a valid model id|model not found", ErrorCode.MODEL_NOT_FOUND),
        (r"model [`'\"]?[\w./:@-]+[`'\"]? (?:not found|does not exist)", ErrorCode.MODEL_NOT_FOUND),
        (r"incorrect api key|invalid api key|no auth credentials", ErrorCode.AUTH),
        (r"requires moderation|input was flagged", ErrorCode.CONTENT_FILTER),
    )
)

_VAGUE_STATUSES = frozenset({None, 400, 403, 404, 413, 422, 429, 500})
"""Statuses that servers use for many things; at others the phrase is not asked."""

_FLEX_CAPACITY_EXCEEDED = 498
_FIRST_ERROR_STATUS = 400
_REQUEST_ID_HEADERS = ("x-request-id", "mistral-correlation-id", "apim-request-id", "x-ds-trace-id")


class _Report(msgspec.Struct, frozen=True):
    """What a body says of its failure."""

    message: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None


def classify(status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
    """Make the error of a reply that is not a success, which some gateways send with status 200."""
    lowered = {name.lower(): value for name, value in headers.items()}
    report = _read(body)
    code, basis = _decide(report, status if status >= _FIRST_ERROR_STATUS else report.status)
    reply = ErrorReply(
        message=report.message or readable(body, status),
        status=status,
        request_id=next((lowered[name] for name in _REQUEST_ID_HEADERS if name in lowered), None),
        retry_after=retry_after(lowered),
    )
    return reply.to_error(code, basis)


def error_in_stream(data: bytes) -> AgentError:
    """Make the error that a frame of a reply with status 200 reports."""
    report = _read(data)
    code, basis = _decide(report, report.status)
    message = report.message or "the provider reported an error inside its stream"
    return ErrorReply(message=message, status=report.status).to_error(code, basis)


def _decide(report: _Report, status: int | None) -> tuple[ErrorCode, Basis]:
    typed = next((CODES[code] for code in report.codes if code in CODES), None)
    phrase = _by_phrase(report.message) if status in _VAGUE_STATUSES else None
    if typed is ErrorCode.RATE_LIMITED and phrase is ErrorCode.CONTEXT_LENGTH:
        # More than a minute's allowance in one request: waiting does not make it smaller.
        return phrase, "pattern"
    if typed is not None:
        return typed, "code"
    if phrase is not None:
        return phrase, "pattern"
    if status == _FLEX_CAPACITY_EXCEEDED:
        return ErrorCode.OVERLOADED, "status"
    if status is None:
        # Without a word of an error it was an answer, but not one that could be read.
        is_error = bool(report.message or report.codes)
        return (ErrorCode.SERVER_ERROR if is_error else ErrorCode.PROTOCOL), "fallback"
    return code_of_status(status), "status"


def _by_phrase(message: str) -> ErrorCode | None:
    shared = code_of_message(message)
    if shared is not None:
        return shared
    return next((code for pattern, code in _BY_PHRASE if pattern.search(message)), None)


def _read(body: bytes) -> _Report:
    """Read an error body of any of the shapes that are in use; what is not JSON says nothing."""
    value = parse_body(body)
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return _Report()
    error = value.get("error", value)
    details: JsonObject = error if isinstance(error, dict) else value
    message = error if isinstance(error, str) else _message(details)
    codes = tuple(_codes(details))
    return _Report(
        message=shortened(message),
        codes=tuple(code.lower() for code in codes),
        status=_status(details, codes),
    )


def _message(details: JsonObject) -> str:
    found = details.get("message") or details.get("detail") or details.get("msg") or ""
    message = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    metadata = details.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    # A router puts what the model's own server said beside its own words.
    return f"{message}: {raw}" if isinstance(raw, str) and raw else message


def _codes(details: JsonObject) -> Iterator[str]:
    inner = details.get("innererror")
    for container in (details, inner if isinstance(inner, dict) else {}):
        for name in ("code", "type"):
            found = container.get(name)
            if isinstance(found, str | int):
                yield str(found)


def _status(details: JsonObject, codes: tuple[str, ...]) -> int | None:
    """Return the HTTP status that an error inside a stream stands for, if it names one."""
    named = [str(details.get("status_code", "")), *codes]
    return next((int(code) for code in named if re.fullmatch(r"[45]\d\d", code)), None)
