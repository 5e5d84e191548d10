"""Errors of Anthropic Messages: how they are read; all of their typed codes are shared ones."""

from holdfast.providers.wire.failures import (
    Failure,
    FailureRules,
    code_table,
    error_object,
    text_of,
)
from holdfast.vocabulary.errors import ErrorCode
from holdfast.vocabulary.json_types import Json

_SPEND_LIMIT = "spend_limit"
CODES = code_table({ErrorCode.QUOTA: _SPEND_LIMIT})


def _read(report: Json) -> Failure:
    error = error_object(report)
    details = error.get("details")
    detail = text_of(details.get("error_code")) if isinstance(details, dict) else ""
    kind = text_of(error.get("type"))
    return Failure(
        # The code of a limit on spending has the limit's name around it.
        codes=(_SPEND_LIMIT, kind) if _SPEND_LIMIT in detail else (kind,) if kind else (),
        message=text_of(error.get("message")),
        request_id=text_of(report.get("request_id")) or None if isinstance(report, dict) else None,
    )


ERRORS = FailureRules(read=_read, codes=CODES)
