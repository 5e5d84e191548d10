"""Errors of Chat Completions: how they are read, and the typed codes that only they have."""

from collections.abc import Iterator

import msgspec

from holdfast.providers.wire.failures import Failure, FailureRules, code_table, status_among
from holdfast.vocabulary.errors import ErrorCode
from holdfast.vocabulary.json_types import Json, JsonObject

CODES = code_table(
    {
        ErrorCode.QUOTA: "insufficient_balance exceeded_current_quota_error",
        ErrorCode.OVERLOADED: "engine_overloaded_error server_overloaded",
        ErrorCode.MODEL_NOT_FOUND: "invalid_model model_decommissioned",
        ErrorCode.CONTEXT_LENGTH: "too_many_prompt_tokens",
        ErrorCode.CONTENT_FILTER: "moderation_blocked",
        ErrorCode.SERVER_ERROR: "internal_server_error",
    }
)


def _read(report: Json) -> Failure:
    """Read an error of any of the shapes that are in use."""
    value = report[0] if isinstance(report, list) and report else report
    if not isinstance(value, dict):
        return Failure()
    error = value.get("error", value)
    details: JsonObject = error if isinstance(error, dict) else value
    codes = tuple(_codes(details))
    return Failure(
        codes=codes,
        message=error if isinstance(error, str) else _message(details),
        status=status_among(details.get("status_code"), *codes),
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


ERRORS = FailureRules(read=_read, codes=CODES)
