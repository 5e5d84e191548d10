"""Recorded Anthropic traffic, read in place: our reading of it against the vendor's own."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from haptera.model.errors import ErrorCode
from haptera.model.json_types import JsonObject
from haptera.model.parts import ProviderPart
from haptera.model.usage import Usage
from haptera.providers.wire.anthropic_messages import PROTOCOL
from haptera.testing.decode_reply import DecodedReply, decode_pieces, decode_reply
from tests.fixtures_report import Report

API = "anthropic-messages"
SMALL = 1_200

# What is refused on purpose: the vendor's reading of these would run a call that was cut off.
SPLICED = "ai.spliced_message_start.0"
CUT_CALL = "anthropic-sdk-python.incomplete_partial_json_response.0"

ERROR_CODES = {
    "braintrust-sdk-python.test_anthropic_client_error.0": ErrorCode.MODEL_NOT_FOUND,
    "dd-trace-py.anthropic_completion_error.0": ErrorCode.BAD_REQUEST,
    "dd-trace-py.anthropic_completion_invalid_api_key.0": ErrorCode.AUTH,
    "dd-trace-py.anthropic_v1_messages_beta_true_post_1913e018.0": ErrorCode.AUTH,
    "opencode.rejects_malformed_assistant_tool_order_without_patch.0": ErrorCode.BAD_REQUEST,
    "reported.api_error_500": ErrorCode.SERVER_ERROR,
    "reported.cloudflare_520_empty": ErrorCode.SERVER_ERROR,
    "reported.cloudflare_520_html": ErrorCode.SERVER_ERROR,
    "reported.credit_balance_400": ErrorCode.QUOTA,
    "reported.invalid_json_surrogate_400": ErrorCode.BAD_REQUEST,
    "reported.overloaded_529_request_id": ErrorCode.OVERLOADED,
    "reported.rate_limit_429_account": ErrorCode.RATE_LIMITED,
    "reported.rate_limit_429_input_tokens": ErrorCode.RATE_LIMITED,
    "reported.rate_limit_429_plain": ErrorCode.RATE_LIMITED,
    "rig.error_envelope_nonexistent_model_error_preserves_status_and_body.0": (
        ErrorCode.MODEL_NOT_FOUND
    ),
    "rig.error_identity_edge_auth_rejection_carries_identity.0": ErrorCode.AUTH,
    "ruby_llm.chat_real_error_scenarios_anthropic_claude_haiku_4_5_handles_0dbb596c.0": (
        ErrorCode.CONTEXT_LENGTH
    ),
}


class Recording(msgspec.Struct, frozen=True):
    """One recorded reply with what the vendor's SDK makes of it."""

    name: str
    meta: JsonObject
    expect: JsonObject
    body: bytes

    @property
    def is_stream(self) -> bool:
        return bool(self.meta["kind"] == "stream")


def recordings(wire: Path) -> Iterator[Recording]:
    for folder in sorted((wire / "open" / API).iterdir()):
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        expect = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
        yield Recording(folder.name, meta, expect, (folder / meta["body_file"]).read_bytes())


def inclusive(usage: JsonObject | None) -> Usage:
    """Return the vendor's usage in our terms, as docs/provider-errors.md has it."""
    usage = usage or {}
    read = usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    by_lifetime = usage.get("cache_creation") or {}
    details = usage.get("output_tokens_details") or {}
    return Usage(
        input=(usage.get("input_tokens") or 0) + read + written,
        output=usage.get("output_tokens") or 0,
        cache_read=read,
        cache_write=written,
        cache_write_1h=min(written, by_lifetime.get("ephemeral_1h_input_tokens") or 0),
        reasoning=details.get("thinking_tokens") or 0,
    )


def seen(reply: DecodedReply) -> JsonObject:
    calls = [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "tool_calls": calls,
        "stop_reason": reply.stop_reason,
        "usage": reply.usage,
    }


def expected(recording: Recording) -> JsonObject:
    result = recording.expect["result"]
    calls = [
        {"name": call["name"], "arguments": call["arguments"]} for call in result["tool_calls"]
    ]
    return {
        "text": result["text"],
        "reasoning": result["reasoning"],
        "tool_calls": calls,
        "stop_reason": result["stop_reason"],
        "usage": inclusive(result["usage"]),
    }


def is_comparable(recording: Recording) -> bool:
    return recording.is_stream and recording.name not in {SPLICED, CUT_CALL}


def test_every_stream_is_read_as_the_vendor_reads_it(wire: Path, report: Report) -> None:
    compared = [recording for recording in recordings(wire) if is_comparable(recording)]
    wrong = []
    for recording in compared:
        reply = decode_reply(API, recording.body)
        is_error = recording.expect["outcome"] == "error_in_stream"
        outcome = "error_in_stream" if is_error else "complete"
        if seen(reply) != expected(recording) or reply.outcome != outcome:
            wrong.append(recording.name)
    crashed = [item.name for item in compared if item.expect["outcome"] == "sdk_crash"]
    report(
        f"Anthropic streams: {len(compared) - len(wrong)} of {len(compared)} as the vendor reads "
        f"them ({len(crashed)} of these the vendor's SDK cannot read to the end)"
    )
    assert wrong == []
    assert compared


def test_every_block_of_a_stream_is_kept(wire: Path) -> None:
    kinds = {"text": "text", "thinking": "reasoning", "tool_use": "tool_call"}
    for recording in filter(is_comparable, recordings(wire)):
        reply = decode_reply(API, recording.body)
        wanted = [kinds.get(kind, kind) for kind in recording.expect["result"]["blocks"]]
        got = [
            part.payload["type"] if isinstance(part, ProviderPart) else part.__struct_config__.tag
            for part in reply.parts
        ]
        assert got == wanted, recording.name


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_stream_is_read_the_same_in_small_pieces(wire: Path, size: int) -> None:
    for recording in recordings(wire):
        if recording.is_stream:
            whole = decode_reply(API, recording.body)
            pieces = decode_reply(API, recording.body, chunk_size=size)
            assert seen(pieces) == seen(whole), recording.name
            assert pieces.outcome == whole.outcome


def splits_that_agree(wire: Path, limit: int) -> int:
    """Decode every stream up to `limit` bytes at every split; returns how many splits those are."""
    count = 0
    for recording in recordings(wire):
        body = recording.body
        if not recording.is_stream or len(body) > limit:
            continue
        whole = seen(decode_reply(API, body))
        for place in range(1, len(body)):
            split = decode_pieces(PROTOCOL, [body[:place], body[place:]])
            assert seen(split) == whole, (recording.name, place)
            count += 1
    return count


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_smaller_streams_are_read_the_same_at_every_split(wire: Path, report: Report) -> None:
    count = splits_that_agree(wire, SMALL)
    report(f"Anthropic streams: the same at each of {count} splits")
    assert count


@pytest.mark.soak
def test_every_stream_is_read_the_same_at_every_split(wire: Path, report: Report) -> None:
    report(f"Anthropic streams: the same at each of {splits_that_agree(wire, 40_000)} splits")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_stream_cut_anywhere_never_looks_complete(wire: Path) -> None:
    for recording in recordings(wire):
        end = recording.body.rfind(b'"message_stop"')
        if not recording.is_stream or recording.name == SPLICED or end < 0:
            continue
        for place in range(0, end, max(1, end // 150)):
            reply = decode_reply(API, recording.body[:place])
            assert reply.outcome == "interrupted", (recording.name, place)
            assert reply.stop_reason is None


def test_every_error_has_the_right_code(wire: Path, report: Report) -> None:
    right = 0
    for recording in recordings(wire):
        if recording.is_stream:
            continue
        status, headers = recording.meta["status"], recording.meta["headers"]
        reply = decode_reply(API, recording.body, status=status, headers=headers)
        assert reply.error is not None
        assert reply.error.code is ERROR_CODES[recording.name], recording.name
        assert reply.error.status == status
        # The vendor's SDK asks again exactly when an error may pass.
        assert reply.error.retryable == (recording.expect["sdk_requests"] > 1), recording.name
        right += 1
    report(f"Anthropic error bodies: {right} of {len(ERROR_CODES)} with the right code")
    assert right == len(ERROR_CODES)


def test_a_retry_time_is_taken_from_the_headers(wire: Path) -> None:
    name = "reported.rate_limit_429_input_tokens"
    recording = next(item for item in recordings(wire) if item.name == name)
    reply = decode_reply(API, recording.body, status=429, headers={"Retry-After": "14"})
    assert reply.error is not None
    assert reply.error.retry_after == 14


def test_an_answer_that_begins_twice_is_interrupted_and_gives_no_call(wire: Path) -> None:
    recording = next(item for item in recordings(wire) if item.name == SPLICED)
    reply = decode_reply(API, recording.body)
    assert (reply.outcome, reply.tool_calls) == ("interrupted", ())


def test_a_call_cut_by_the_token_limit_is_no_call(wire: Path) -> None:
    recording = next(item for item in recordings(wire) if item.name == CUT_CALL)
    reply = decode_reply(API, recording.body)
    assert reply.text == recording.expect["result"]["text"]
    assert (reply.stop_reason, reply.finish, reply.tool_calls) == ("max_tokens", "length", ())
