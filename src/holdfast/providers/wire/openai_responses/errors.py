"""Errors of OpenAI Responses; docs/provider-errors-openai-responses.md has the table."""

from collections.abc import Mapping

from holdfast.providers.wire.error_replies import parse_body, readable
from holdfast.providers.wire.failures import Failure, classify_failure
from holdfast.vocabulary.errors import AgentError, ErrorCode
from holdfast.vocabulary.json_types import Json

_WORDS: dict[ErrorCode, str] = {
    ErrorCode.AUTH: "invalid_api_key invalid_authentication authentication_error permission_error"
    " account_deactivated unsupported_country_region_territory",
    ErrorCode.QUOTA: "insufficient_quota billing_hard_limit_reached billing_not_active"
    " usage_limit_reached",
    ErrorCode.RATE_LIMITED: "rate_limit_exceeded rate_limit_error too_many_requests slow_down",
    ErrorCode.MODEL_NOT_FOUND: "model_not_found DeploymentNotFound unsupported_model",
    ErrorCode.CONTEXT_LENGTH: "context_length_exceeded string_above_max_length"
    " exceed_context_size_error",
    ErrorCode.CONTENT_FILTER: "content_filter content_policy_violation"
    " image_content_policy_violation invalid_prompt bio_policy cyber_policy",
    ErrorCode.SERVER_ERROR: "server_error internal_error vector_store_timeout",
    ErrorCode.OVERLOADED: "server_is_overloaded overloaded_error service_unavailable",
    ErrorCode.BAD_REQUEST: "previous_response_not_found",
}
CODES = {word: code for code, words in _WORDS.items() for word in words.split()}


def classify(status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
    """Make the error of a reply that is not a success."""
    report = parse_body(body)
    if report is None:
        report = readable(body, status)
    return error_of_report(report, status, headers)


def error_of_report(
    report: Json, status: int | None = None, headers: Mapping[str, str] | None = None
) -> AgentError:
    """Make the error of a report: the body of a reply, or an error found inside a stream."""
    outer = report if isinstance(report, dict) else {"message": str(report)}
    inner = outer.get("error")
    # xAI puts the code outside and the words, as plain text, under `error`.
    found = inner if isinstance(inner, dict) else outer
    message = inner if isinstance(inner, str) else found.get("message")
    failure = Failure(
        status=status,
        codes=tuple(str(found[name]) for name in ("code", "type") if found.get(name)),
        message=message if isinstance(message, str) else "",
        headers=headers or {},
    )
    return classify_failure(failure, CODES)
