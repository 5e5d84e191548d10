"""Errors of Chat Completions servers, row by row of docs/provider-errors-chat.md."""

import json
from pathlib import Path

import pytest

from holdfast.providers.wire.chat_completions.errors import CODES, classify
from holdfast.vocabulary.errors import AgentError, ErrorCode
from tests.providers.chat.replies import read_reply, sse

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "provider-errors-chat.md"


def rows() -> list[list[str]]:
    """Return the cells of the table."""
    text = DOCUMENT.read_text(encoding="utf-8")
    lines = text.split("\n|---", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def error_of(status: str, typed: str, message: str) -> AgentError:
    code: str | int = int(typed) if typed.isdigit() else typed
    error = {"message": message} | ({"code": code} if typed else {})
    if status != "200":
        return classify(int(status), {"Retry-After": "3"}, json.dumps({"error": error}).encode())
    found = read_reply(sse({"error": error})).error
    assert found is not None
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: " ".join(row[:3])[:60])
def test_an_error_is_what_the_table_says(row: list[str]) -> None:
    status, typed, message, family, code, retryable, basis = row
    error = error_of(status, typed, message)
    assert (type(error).__name__, error.code) == (family, code)
    assert error.retryable == (retryable == "yes")
    assert (error.basis, error.message) == (basis, message)
    if status != "200":
        assert (error.status, error.retry_after) == (int(status), 3.0)


def test_every_typed_code_is_in_the_table() -> None:
    assert set(CODES) <= {row[1].lower() for row in rows()}


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b'{"error": "model not found"}', "model not found", ErrorCode.MODEL_NOT_FOUND),
        (b'{"detail": "Invalid API Key"}', "Invalid API Key", ErrorCode.AUTH),
        (b'{"detail": [{"msg": "no"}]}', '[{"msg":"no"}]', ErrorCode.BAD_REQUEST),
        (b'{"message": "no", "type": "invalid_model"}', "no", ErrorCode.MODEL_NOT_FOUND),
        (b'[{"error": {"message": "no", "code": 400}}]', "no", ErrorCode.BAD_REQUEST),
        (b"<title>Sorry</title>", "Sorry", ErrorCode.BAD_REQUEST),
        (b"\xff", "\ufffd", ErrorCode.BAD_REQUEST),
        (
            b'{"error": {"message": "no", "code": "x", "innererror": {"code": "content_filter"}}}',
            "no",
            ErrorCode.CONTENT_FILTER,
        ),
        (
            b'{"error": {"message": "Provider returned error", "code": 400, '
            b'"metadata": {"raw": "prompt is too long: 9 tokens > 8 maximum"}}}',
            "Provider returned error: prompt is too long: 9 tokens > 8 maximum",
            ErrorCode.CONTEXT_LENGTH,
        ),
    ],
)
def test_an_error_is_found_in_any_shape_of_body(body: bytes, message: str, code: ErrorCode) -> None:
    error = classify(400, {}, body)
    assert (error.message, error.code) == (message, code)


def test_an_empty_body_still_says_something() -> None:
    assert "503" in classify(503, {}, b"").message


def test_the_milliseconds_of_a_wait_win_over_its_seconds() -> None:
    headers = {"retry-after": "4", "Retry-After-Ms": "3890"}
    assert classify(429, headers, b"").retry_after == 3.89


def test_a_number_inside_an_id_is_not_a_status() -> None:
    body = b'{"error": {"message": "failed (req_0114290x)", "code": "req_429"}}'
    assert classify(500, {}, body).code is ErrorCode.SERVER_ERROR
