"""Errors of OpenAI Responses: how they are read, and the typed codes that only they have."""

from holdfast.providers.wire.failures import (
    Failure,
    FailureRules,
    code_table,
    status_among,
    text_of,
)
from holdfast.vocabulary.errors import ErrorCode
from holdfast.vocabulary.json_types import Json

CODES = code_table(
    {
        ErrorCode.AUTH: "invalid_authentication",
        ErrorCode.QUOTA: "usage_limit_reached",
        ErrorCode.RATE_LIMITED: "slow_down",
        ErrorCode.OVERLOADED: "server_is_overloaded",
        ErrorCode.MODEL_NOT_FOUND: "unsupported_model",
        ErrorCode.CONTEXT_LENGTH: "string_above_max_length",
        ErrorCode.CONTENT_FILTER: "image_content_policy_violation invalid_prompt bio_policy"
        " cyber_policy",
        ErrorCode.SERVER_ERROR: "internal_error vector_store_timeout",
        ErrorCode.BAD_REQUEST: "previous_response_not_found",
    }
)


def _read(report: Json) -> Failure:
    outer = report if isinstance(report, dict) else {}
    inner = outer.get("error")
    # xAI puts the code outside and the words, as plain text, under `error`.
    found = inner if isinstance(inner, dict) else outer
    return Failure(
        codes=tuple(str(found[name]) for name in ("code", "type") if found.get(name)),
        message=inner if isinstance(inner, str) else text_of(found.get("message")),
        status=status_among(found.get("code"), outer.get("status"), outer.get("status_code")),
    )


ERRORS = FailureRules(read=_read, codes=CODES)
