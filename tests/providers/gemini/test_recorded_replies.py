"""Every recorded reply of the Gemini API and of Vertex AI, against the vendor's client."""

from pathlib import Path

import pytest

from haptera.model.errors import ErrorCode
from haptera.providers.wire.gemini import PROTOCOL
from tests.providers.recorded import cases, differing_splits, result_of, usage_of_gemini
from tests.providers.replies import body_of, decode, decode_frames, read_json

FOLDERS = ("gemini-generatecontent", "vertex-generatecontent")
STREAMS = cases(*FOLDERS, kind="stream")

JOINED_CALLS = {
    "ai.google_stream_no_args_tool_call.0": [
        ("read_theme", {}),
        ("read_screen", {"id": "A"}),
        ("read_screen", {"id": "B"}),
        ("read_screen", {"id": "C"}),
    ]
}
"""Calls whose arguments come in pieces, which the vendor's client does not put together."""

BY_WORDS = {
    "ai.google_429_retry_info.0": (ErrorCode.RATE_LIMITED, 34.4),
    "ruby_llm.chat_real_error_scenarios_gemini_gemini_2_5_flash_handles_co_b2a6c76a.0": (
        ErrorCode.RATE_LIMITED,
        48.0,
    ),
    "ruby_llm.chat_real_error_scenarios_vertexai_gemini_2_5_flash_handles__82f4d62f.1": (
        ErrorCode.CONTEXT_LENGTH,
        None,
    ),
    "vertexai-sdk-test-data.vertexai_unary_failure_context_cache_not_found.0": (
        ErrorCode.BAD_REQUEST,
        None,
    ),
    "rig.response_identity_auth_rejection_keeps_transport_shape.0": (ErrorCode.AUTH, None),
    "ruby_llm.chat_error_handling_with_gemini_gemini_2_5_flash_raises_appropriate_auth_error.0": (
        ErrorCode.AUTH,
        None,
    ),
}
BY_STATUS = {
    400: ErrorCode.BAD_REQUEST,
    403: ErrorCode.AUTH,
    404: ErrorCode.MODEL_NOT_FOUND,
    429: ErrorCode.RATE_LIMITED,
    503: ErrorCode.OVERLOADED,
}


@pytest.mark.parametrize("meta", STREAMS)
def test_a_recorded_stream_says_what_the_vendors_client_makes_of_it(meta: Path) -> None:
    case = meta.parent
    reply, expected = decode(PROTOCOL, body_of(case)), result_of(case)
    assert reply.text == expected["text"]
    assert reply.reasoning == expected["reasoning"]
    calls = [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
    assert [(call.name, call.arguments) for call in reply.calls] == JOINED_CALLS.get(
        case.name, calls
    )
    assert len({call.call_id for call in reply.calls}) == len(reply.calls)
    is_failed = read_json(case / "expect.json")["outcome"] == "error_in_stream"
    assert (reply.error is not None) == is_failed
    if is_failed:
        assert reply.finished is None
        return
    assert reply.finished is not None
    assert reply.finished.reason == expected["stop_reason"]
    assert reply.finished.usage == usage_of_gemini(expected["usage"])
    assert reply.opened is not None
    assert reply.opened.response_id == expected["id"]
    native = reply.finished.native or {}
    assert ("groundingMetadata" in native) == bool(expected.get("grounding"))


@pytest.mark.parametrize("meta", STREAMS)
def test_no_signature_is_lost(meta: Path) -> None:
    reply, expected = decode(PROTOCOL, body_of(meta.parent)), result_of(meta.parent)
    kept = [part for part in reply.opaque if "thoughtSignature" in part]
    on_parts = [
        part
        for part in reply.parts
        if getattr(part, "signature", None)
        or "thoughtSignature" in (getattr(part, "native", None) or {})
    ]
    assert len(kept) + len(on_parts) == expected["signatures"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("meta", STREAMS)
def test_reads_of_any_size_give_the_same_parts(meta: Path, size: int) -> None:
    body = body_of(meta.parent)
    assert decode(PROTOCOL, body, size).stream == decode(PROTOCOL, body).stream


@pytest.mark.slow
@pytest.mark.parametrize("meta", STREAMS)
def test_a_small_stream_can_be_split_anywhere(meta: Path) -> None:
    assert differing_splits(PROTOCOL, body_of(meta.parent)) == []


@pytest.mark.parametrize("meta", STREAMS)
def test_a_stream_without_its_end_is_interrupted(meta: Path) -> None:
    body = body_of(meta.parent)
    reply = decode(PROTOCOL, body[: body.find(b'"finishReason"')])
    assert reply.finished is None
    assert reply.error is not None
    assert reply.error.code is ErrorCode.STREAM_INTERRUPTED


def test_an_error_inside_a_stream_is_raised_after_what_came_before_it() -> None:
    said = {"candidates": [{"content": {"parts": [{"text": "First "}]}, "finishReason": "STOP"}]}
    error = {"error": {"code": 499, "message": "cancelled.", "status": "CANCELLED"}}
    reply = decode_frames(PROTOCOL, [said, said, error], batch=3)
    assert reply.text == "First First "
    assert reply.error is not None
    assert reply.error.code is ErrorCode.STREAM_INTERRUPTED


@pytest.mark.parametrize("meta", cases(*FOLDERS, kind="error"))
def test_a_recorded_error_gets_its_code(meta: Path) -> None:
    case, facts = meta.parent, read_json(meta)
    error = PROTOCOL.classify(facts["status"], facts.get("headers") or {}, body_of(case))
    code, wait = BY_WORDS.get(case.name, (BY_STATUS[facts["status"]], None))
    assert (error.code, error.retry_after) == (code, wait)
    assert error.status == facts["status"]
