"""Every recorded reply of an endpoint that speaks OpenAI Responses, against its vendor's client."""

from pathlib import Path

import pytest

from haptera.model.errors import ErrorCode
from haptera.providers.wire.openai_responses import PROTOCOL
from tests.providers.recorded import cases, differing_splits, result_of, usage_of_responses
from tests.providers.replies import body_of, decode, read_json

FOLDERS = (
    "openai-responses",
    "azure-responses",
    "compat-responses",
    "deepseek-responses",
    "openrouter-responses",
    "xai-responses",
)
FAILED = {"derived.mid_stream_response_failed_rate_limit": ErrorCode.RATE_LIMITED}
"""Streams that report a failure, which the vendor's client hands on as if it were an answer."""

ERRORS = {
    "dd-trace-py.response_create_error.0": ErrorCode.MODEL_NOT_FOUND,
    "dd-trace-py.response_error.0": ErrorCode.AUTH,
    "opentelemetry-python-contrib.test_responses_create_api_error_content_mode0.0": (
        ErrorCode.MODEL_NOT_FOUND
    ),
    "pydantic-ai.test_inferred_model_name_suggestion.0": ErrorCode.MODEL_NOT_FOUND,
    "reported.insufficient_quota_429": ErrorCode.QUOTA,
    "rig.error_envelope_nonexistent_model_error_preserves_status_and_body.0": (
        ErrorCode.MODEL_NOT_FOUND
    ),
    "rig.error_identity_edge_auth_rejection_carries_identity.0": ErrorCode.AUTH,
    "rig.error_identity_edge_nonexistent_previous_response_reference_carries_identity.0": (
        ErrorCode.BAD_REQUEST
    ),
    "rig.websocket_error_identity_matrix_handshake_rejection_carries__2ac6fc3a.0": ErrorCode.AUTH,
    "ruby_llm.chat_error_handling_with_openai_gpt_5_nano_raises_appropriate_auth_error.0": (
        ErrorCode.AUTH
    ),
    "ruby_llm.context_context_chat_operations_uses_context_specific_api_keys.0": ErrorCode.AUTH,
    "pydantic-ai.test_deepseek_responses_rejects_interleaved_function_calls.0": (
        ErrorCode.BAD_REQUEST
    ),
    "rig.response_identity_auth_rejection_classifies_with_contract.0": ErrorCode.AUTH,
}

STREAMS = cases(*FOLDERS, kind="stream")


@pytest.mark.parametrize("meta", STREAMS)
def test_a_recorded_stream_says_what_the_vendors_client_makes_of_it(meta: Path) -> None:
    case = meta.parent
    reply, expected = decode(PROTOCOL, body_of(case)), result_of(case)
    if (code := FAILED.get(case.name)) is not None:
        assert reply.error is not None
        assert (reply.error.code, reply.error.retry_after, reply.finished) == (code, 6.0, None)
        return
    assert reply.error is None
    assert reply.finished is not None
    assert reply.text == expected["text"]
    assert reply.reasoning == expected["reasoning"]
    assert [(call.name, call.arguments) for call in reply.calls] == [
        (call["name"], call["arguments"]) for call in expected["tool_calls"]
    ]
    assert [call.call_id for call in reply.calls] == [call["id"] for call in expected["tool_calls"]]
    assert reply.finished.reason == expected["stop_reason"]
    assert reply.finished.usage == usage_of_responses(expected["usage"])
    assert (reply.finished.native or {}).get("refusal") == expected["refusal"]
    served = [part["type"] for part in reply.opaque if part["type"] != "message"]
    assert served == [tool["name"] for tool in expected["server_tools"]]
    assert reply.opened is not None
    assert (reply.opened.response_id, reply.opened.model) == (expected["id"], expected["model"])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("meta", STREAMS)
def test_reads_of_any_size_give_the_same_parts(meta: Path, size: int) -> None:
    body = body_of(meta.parent)
    whole, cut = decode(PROTOCOL, body), decode(PROTOCOL, body, size)
    assert cut.stream == whole.stream
    assert (cut.error and cut.error.to_dict()) == (whole.error and whole.error.to_dict())


@pytest.mark.slow
@pytest.mark.parametrize("meta", STREAMS)
def test_a_small_stream_can_be_split_anywhere(meta: Path) -> None:
    assert differing_splits(PROTOCOL, body_of(meta.parent)) == []


@pytest.mark.parametrize("meta", STREAMS)
def test_a_stream_without_its_end_is_interrupted(meta: Path) -> None:
    body = body_of(meta.parent)
    end = max(body.rfind(b'"response.completed"'), body.rfind(b'"response.incomplete"'))
    if end < 0:
        end = body.rfind(b'"response.failed"')
    reply = decode(PROTOCOL, body[: body.rfind(b"\n\n", 0, end)])
    assert reply.finished is None
    assert reply.error is not None
    assert reply.error.code is ErrorCode.STREAM_INTERRUPTED


@pytest.mark.parametrize("meta", cases(*FOLDERS, kind="error"))
def test_a_recorded_error_gets_its_code(meta: Path) -> None:
    case, facts = meta.parent, read_json(meta)
    error = PROTOCOL.classify(facts["status"], facts.get("headers") or {}, body_of(case))
    assert error.code is ERRORS.get(case.name, ErrorCode.MODEL_NOT_FOUND)
    assert error.status == facts["status"]
    assert error.basis in {"code", "status", "pattern"}
    assert error.message
