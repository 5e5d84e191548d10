"""Makes typed errors of what Chat Completions servers say when they fail.

By the typed code first, then by phrases that are known to mean one thing, then by the status.
The table in docs/provider-errors-chat.md is the promise; a test reads it.
"""

import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

import msgspec

from holdfast.vocabulary.errors import AgentError, Basis, ErrorCode, error_of
from holdfast.vocabulary.json_types import Json, JsonObject

_LONGEST_MESSAGE = 2_000
_FIRST_SERVER_STATUS = 500

_BY_CODE: dict[str, ErrorCode] = {
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
    "timeout": ErrorCode.TIMEOUT,
    "server_error": ErrorCode.SERVER_ERROR,
    "internal_server_error": ErrorCode.SERVER_ERROR,
}

_PATTERNS: tuple[tuple[re.Pattern[str], ErrorCode], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"exceeds the available context size", ErrorCode.CONTEXT_LENGTH),
        (r"maximum context length|maximum prompt length", ErrorCode.CONTEXT_LENGTH),
        (r"prompt is too long|input (?:length|tokens) exceed", ErrorCode.CONTEXT_LENGTH),
        (r"exceeds the (?:model's )?(?:context window|context length)", ErrorCode.CONTEXT_LENGTH),
        (r"request too large for model|request too large for gpt", ErrorCode.CONTEXT_LENGTH),
        (
            r"greater than the context length|context size has been exceeded",
            ErrorCode.CONTEXT_LENGTH,
        ),
        (
            r"not a valid model id|model not found|does not exist or you do not have access",
            ErrorCode.MODEL_NOT_FOUND,
        ),
        (r"model ['\"`]?[\w./:-]+['\"`]? not found", ErrorCode.MODEL_NOT_FOUND),
        (r"incorrect api key|invalid api key|no auth credentials", ErrorCode.AUTH),
        (r"insufficient (?:balance|credits?)|exceeded your current quota", ErrorCode.QUOTA),
        (r"requires moderation|input was flagged", ErrorCode.CONTENT_FILTER),
    )
)

_REFINED_STATUSES = frozenset({400, 403, 404, 413, 422, 429, 500})
"""Statuses that servers use for many things; at others the phrase is not asked."""

_BY_STATUS: dict[int, ErrorCode] = {
    401: ErrorCode.AUTH,
    402: ErrorCode.QUOTA,
    403: ErrorCode.AUTH,
    404: ErrorCode.MODEL_NOT_FOUND,
    408: ErrorCode.TIMEOUT,
    409: ErrorCode.SERVER_ERROR,
    413: ErrorCode.CONTEXT_LENGTH,
    429: ErrorCode.RATE_LIMITED,
    498: ErrorCode.OVERLOADED,
    502: ErrorCode.OVERLOADED,
    503: ErrorCode.OVERLOADED,
    529: ErrorCode.OVERLOADED,
}

_REQUEST_ID_HEADERS = (
    "x-request-id",
    "request-id",
    "mistral-correlation-id",
    "apim-request-id",
    "x-ds-trace-id",
)


class _Report(msgspec.Struct, frozen=True):
    """What a body says of its failure."""

    message: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None


def classify(status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
    """Make the error of a reply whose status is not a success."""
    lowered = {name.lower(): value for name, value in headers.items()}
    report = _read(body)
    code, basis = _decide(report, status)
    request_id = next((lowered[name] for name in _REQUEST_ID_HEADERS if name in lowered), None)
    return error_of(
        code,
        report.message or f"The provider answered with status {status}.",
        basis=basis,
        status=status,
        request_id=request_id,
        retry_after=retry_after(lowered),
    )


def error_in_stream(data: bytes) -> AgentError:
    """Make the error that a frame of a reply with status 200 reports."""
    report = _read(data)
    code, basis = _decide(report, report.status)
    message = report.message or "The provider reported an error inside its stream."
    return error_of(code, message, basis=basis, status=report.status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that lower-cased `headers` ask for."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after")
    seconds = _number(asked)
    if seconds is not None or asked is None:
        return seconds
    try:
        # Both by the server's clock: ours may be wrong, and is not asked.
        until = parsedate_to_datetime(asked)
        now = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):
        return None


def _decide(report: _Report, status: int | None) -> tuple[ErrorCode, Basis]:
    typed = next((_BY_CODE[code] for code in report.codes if code in _BY_CODE), None)
    phrase = next((code for pattern, code in _PATTERNS if pattern.search(report.message)), None)
    if typed is ErrorCode.RATE_LIMITED and phrase is ErrorCode.CONTEXT_LENGTH:
        # More than a minute's allowance in one request: waiting does not make it smaller.
        return phrase, "pattern"
    if typed is not None:
        return typed, "code"
    if phrase is not None and (status is None or status in _REFINED_STATUSES):
        return phrase, "pattern"
    if status is None:
        return ErrorCode.SERVER_ERROR, "fallback"
    return _by_status(status), "status"


def _by_status(status: int) -> ErrorCode:
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    return ErrorCode.SERVER_ERROR if status >= _FIRST_SERVER_STATUS else ErrorCode.BAD_REQUEST


def _read(body: bytes) -> _Report:
    """Read an error body of any of the shapes that are in use; what is not JSON says nothing."""
    try:
        value: Json = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Report()
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return _Report()
    error = value.get("error", value)
    details: JsonObject = error if isinstance(error, dict) else value
    message = error if isinstance(error, str) else _message(details)
    codes = tuple(_codes(details))
    return _Report(
        message=message[:_LONGEST_MESSAGE],
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
            if isinstance(found, str | int) and not isinstance(found, bool):
                yield str(found)


def _status(details: JsonObject, codes: tuple[str, ...]) -> int | None:
    """Return the HTTP status that an error inside a stream stands for, if it names one."""
    named = [str(details.get("status_code", "")), *codes]
    return next((int(code) for code in named if re.fullmatch(r"[45]\d\d", code)), None)


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"\d+(\.\d+)?", text) else None
