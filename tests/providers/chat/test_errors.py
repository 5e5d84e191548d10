"""Errors of Chat Completions servers come in many shapes; docs/provider-errors.md has the rest."""

import pytest

from haptera.model.errors import ErrorCode
from haptera.providers.wire.chat_completions.reply_format import ERRORS


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
    error = ERRORS.error_of_reply(400, {}, body)
    assert (error.message, error.code) == (message, code)
