"""Every row of the error tables in the docs, against what the protocols make of it."""

import json
from collections.abc import Callable

import pytest

from holdfast.providers.wire import gemini, ollama, openai_responses
from holdfast.providers.wire.failures import Failure, classify_failure
from holdfast.providers.wire.gemini.errors import error_of_report as gemini_report
from holdfast.providers.wire.ollama import error_of_words
from holdfast.providers.wire.openai_responses.errors import error_of_report as responses_report
from holdfast.providers.wire.protocol import WireProtocol
from holdfast.vocabulary.errors import AgentError
from holdfast.vocabulary.json_types import JsonObject
from tests.providers.error_tables import ErrorRow, rows_of


def _responses(row: ErrorRow) -> AgentError:
    if row.typed == "invalid-argument":
        report: JsonObject = {"code": row.typed, "error": row.words}
    else:
        report = {"error": {"code": row.typed or None, "message": row.words, "param": None}}
    if row.status is None:
        return responses_report(report)
    return openai_responses.PROTOCOL.classify(row.status, {}, json.dumps(report).encode())


def _gemini(row: ErrorRow) -> AgentError:
    error: JsonObject = {"code": row.status, "message": row.words, "status": row.typed}
    if row.words == "quota per day":
        error["details"] = [{"violations": [{"quotaId": "RequestsPerDayPerProject"}]}]
    elif row.typed in {"BILLING_DISABLED", "SERVICE_DISABLED"} or row.typed.startswith("API_"):
        error |= {"status": "INVALID_ARGUMENT", "details": [{"reason": row.typed}]}
    if row.status is None:
        return gemini_report({"error": error})
    return gemini.PROTOCOL.classify(row.status, {}, json.dumps({"error": error}).encode())


def _ollama(row: ErrorRow) -> AgentError:
    if row.status is None:
        return error_of_words(row.words)
    return ollama.PROTOCOL.classify(row.status, {}, json.dumps({"error": row.words}).encode())


TABLES: dict[str, Callable[[ErrorRow], AgentError]] = {
    "openai-responses": _responses,
    "gemini": _gemini,
    "ollama": _ollama,
}
ROWS = [
    pytest.param(classify, row, id=f"{name}-{row.name}")
    for name, classify in TABLES.items()
    for row in rows_of(name)
]


@pytest.mark.parametrize(("classify", "row"), ROWS)
def test_an_error_becomes_what_its_row_says(
    classify: Callable[[ErrorRow], AgentError], row: ErrorRow
) -> None:
    error = classify(row)
    assert (error.code, error.retryable, error.basis) == (row.code, row.is_retryable, row.basis)
    assert error.status == row.status


NOON = "Mon, 02 Nov 2026 12:00"
PAGE = b"<html><title>502 Bad Gateway</title></html>"


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"retry-after-ms": "3890", "retry-after": "14"}, "", 3.89),
        ({"Retry-After": "14"}, "", 14.0),
        (
            {
                "retry-after": "Mon, 02 Nov 2026 10:00:30 GMT",
                "date": "Mon, 02 Nov 2026 10:00:00 GMT",
            },
            "",
            30.0,
        ),
        ({}, "Please try again in 1.898s.", 1.898),
        ({}, "Please try again in 250ms.", 0.25),
        ({}, "Please retry after 6 seconds.", 6.0),
        ({}, "Please try again in 2m.", 120.0),
        ({}, "Please try again later.", None),
    ],
)
def test_the_time_to_wait_is_read_from_headers_first_and_words_last(
    headers: dict[str, str], message: str, seconds: float | None
) -> None:
    failure = Failure(status=429, message=message, headers=headers)
    assert classify_failure(failure, {}).retry_after == seconds


def test_what_the_body_says_goes_before_its_words() -> None:
    report = {
        "error": {
            "status": "RESOURCE_EXHAUSTED",
            "message": "retry in 9s",
            "details": [
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}
            ],
        }
    }
    assert gemini.PROTOCOL.classify(429, {}, json.dumps(report).encode()).retry_after == 34.4


@pytest.mark.parametrize("protocol", [openai_responses.PROTOCOL, gemini.PROTOCOL, ollama.PROTOCOL])
@pytest.mark.parametrize("body", [b"", PAGE, b"\xff", b"[]", b"null", b'"x"', b'{"error": 5}'])
def test_a_body_of_any_kind_gives_an_error_with_words(protocol: WireProtocol, body: bytes) -> None:
    error = protocol.classify(502, {}, body)
    assert error.code == "OVERLOADED"
    assert error.message


def test_the_id_of_a_request_is_kept() -> None:
    error = openai_responses.PROTOCOL.classify(500, {"x-request-id": "req_1"}, b"{}")
    assert error.request_id == "req_1"
