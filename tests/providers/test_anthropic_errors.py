"""Anthropic's errors, row by row of docs/provider-errors-anthropic.md."""

import json
from pathlib import Path

import pytest

from holdfast.providers.wire.anthropic_messages import PROTOCOL
from holdfast.testing.decode_reply import decode_reply
from holdfast.vocabulary.errors import AgentError, ErrorCode

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "provider-errors-anthropic.md"
API = "anthropic-messages"


def rows() -> list[list[str]]:
    """Return the cells of the first table."""
    text = DOCUMENT.read_text(encoding="utf-8")
    lines = text.split("\n|---", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def error_of(status: str, kind: str, message: str) -> AgentError:
    error = {"message": message} | ({"type": kind} if kind else {})
    body = json.dumps({"type": "error", "error": error, "request_id": "req_1"})
    if status == "200":
        reply = decode_reply(API, f"event: error\ndata: {body}\n\n".encode())
        assert reply.error is not None
        return reply.error
    return PROTOCOL.classify(int(status), {"retry-after": "3"}, body.encode())


@pytest.mark.parametrize("row", rows(), ids=lambda row: " ".join(row[:3])[:60])
def test_an_error_is_what_the_table_says(row: list[str]) -> None:
    status, kind, message, family, code, retryable, basis = row
    error = error_of(status, kind, message)
    assert (type(error).__name__, error.code) == (family, code)
    assert error.retryable == (retryable == "yes")
    assert (error.basis, error.message, error.request_id) == (basis, message, "req_1")
    sent = (None, None) if status == "200" else (int(status), 3)
    assert (error.status, error.retry_after) == sent


def test_every_typed_code_is_in_the_table() -> None:
    kinds = {row[1] for row in rows()}
    from holdfast.providers.wire.anthropic_messages.errors import CODES

    assert kinds >= set(CODES)


def test_a_limit_on_spending_is_a_quota_at_any_status() -> None:
    error = {
        "type": "rate_limit_error",
        "message": "No more",
        "details": {"error_code": "enforced_spend_limit_reached"},
    }
    body = json.dumps({"type": "error", "error": error}).encode()
    assert PROTOCOL.classify(429, {}, body).code is ErrorCode.QUOTA


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the provider answered with status 520 and nothing else"),
        (b"<html><head><title> 520:\n Web </title></head></html>", "520: Web"),
        (b"<p>plain <b>page</b></p>", "plain page"),
        (b'{"error":"in a string"}', "in a string"),
        (b'["not an object"]', '["not an object"]'),
        (b"\xff\xfe", "��"),
    ],
)
def test_a_body_of_any_kind_gives_a_line_for_people(body: bytes, message: str) -> None:
    error = PROTOCOL.classify(520, {"request-id": "req_2"}, body)
    assert (error.message, error.code) == (message, ErrorCode.SERVER_ERROR)
    assert error.request_id == "req_2"


def test_a_long_message_is_cut() -> None:
    body = json.dumps({"error": {"message": "x" * 9000}}).encode()
    assert len(PROTOCOL.classify(400, {}, body).message) == 500


def test_a_request_id_is_never_taken_for_a_status() -> None:
    body = b'{"error":{"message":"request_id=req_0114290x"}}'
    assert PROTOCOL.classify(400, {}, body).code is ErrorCode.BAD_REQUEST
