"""Every recorded reply of every provider, through `decode_reply`: n of n for each folder.

What is expected is what the vendor's own package makes of the same bytes, except where that would
be wrong: a stream that breaks off, a call that was cut short, arguments that come in pieces.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from haptera.model.errors import ErrorCode
from haptera.model.json_types import Json, JsonObject
from haptera.model.usage import Usage
from haptera.testing import DecodedReply, decode_reply
from haptera.testing.decode_reply import PROTOCOLS
from tests.fixtures_report import Report
from tests.fixtures_wire import wire_root
from tests.providers.chat.recordings import ERROR_CODES as CHAT_ERRORS
from tests.providers.chat.recordings import REPORTED_IN_STREAM, expected_usage
from tests.providers.gemini.test_recorded_replies import BY_STATUS, BY_WORDS, JOINED_CALLS
from tests.providers.recorded import usage_of_gemini, usage_of_ollama, usage_of_responses
from tests.providers.responses.test_recorded_replies import ERRORS as RESPONSES_ERRORS
from tests.providers.responses.test_recorded_replies import FAILED
from tests.providers.test_anthropic_recordings import CUT_CALL, SPLICED, inclusive
from tests.providers.test_anthropic_recordings import ERROR_CODES as ANTHROPIC_ERRORS

pytestmark = pytest.mark.slow

LATER = {"claude-agent-sdk-stdio", "gemini-interactions"}
"""Folders of protocols that are not spoken."""
CODES_IN_STREAM = REPORTED_IN_STREAM | {
    "derived.first_event_overloaded": ErrorCode.OVERLOADED,
    "vertexai-sdk-test-data.vertexai_streaming_failure_error_mid_stream.0": (
        ErrorCode.STREAM_INTERRUPTED
    ),
}


class Case(NamedTuple):
    """One recorded reply, and what the vendor's package makes of it."""

    folder: str
    name: str
    meta: JsonObject
    expect: JsonObject
    body: bytes

    def decoded(self, chunk_size: int | None) -> DecodedReply:
        return decode_reply(
            self.folder,
            self.body,
            status=self.meta["status"],
            headers=self.meta.get("headers"),
            chunk_size=chunk_size,
        )


def folders() -> list[str]:
    """Return the folders of the recorded traffic, or those that there should be."""
    root = wire_root() / "open"
    found = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return [name for name in found if name not in LATER] or ["anthropic-messages"]


def cases(wire: Path, folder: str) -> list[Case]:
    made = []
    for path in sorted((wire / "open" / folder).iterdir()):
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        expect = json.loads((path / "expect.json").read_text(encoding="utf-8"))
        body = (path / meta["body_file"]).read_bytes()
        made.append(Case(folder, path.name, meta, expect, body))
    return made


def code_of(case: Case) -> ErrorCode:
    """Return what a recorded error has to be, as the tables have it that came before the code."""
    if case.folder.endswith("-chat"):
        name = f"{case.folder}/{case.name}"
        (code,) = (code for start, code in CHAT_ERRORS.items() if name.startswith(start))
        return code
    if case.folder.endswith("-generatecontent"):
        return BY_WORDS.get(case.name, (BY_STATUS[case.meta["status"]], None))[0]
    if case.folder.endswith("-responses"):
        return RESPONSES_ERRORS.get(case.name, ErrorCode.MODEL_NOT_FOUND)
    return ANTHROPIC_ERRORS[case.name]


def usage_of(case: Case) -> Usage:
    """Return the usage that the vendor's package reports, in our terms."""
    mapping: dict[str, Callable[[JsonObject | None], Usage]] = {
        "chat": expected_usage,
        "generatecontent": usage_of_gemini,
        "messages": inclusive,
        "native": usage_of_ollama,
        "responses": usage_of_responses,
    }
    return mapping[case.folder.rpartition("-")[2]](case.expect["result"]["usage"])


def calls_of(reply: DecodedReply) -> list[tuple[str, Json]]:
    return [
        (call.name, call.arguments if call.invalid is None else {"__invalid_json__": call.invalid})
        for call in reply.tool_calls
    ]


def breaks_off(case: Case) -> bool:
    cautions = case.expect.get("caution") or ()
    return case.name == SPLICED or any("without a stop reason" in words for words in cautions)


def check(case: Case, reply: DecodedReply) -> str:
    """Compare a reply with what is expected of it; return what kind of case it is."""
    if case.meta["status"] != 200:
        assert (reply.outcome, reply.error and reply.error.code) == ("error", code_of(case))
        return "errors"
    result = case.expect["result"]
    if breaks_off(case):
        assert (reply.outcome, reply.tool_calls, reply.stop_reason) == ("interrupted", (), None)
        return "broken off"
    assert (reply.text, reply.reasoning) == (result["text"], result["reasoning"])
    failed = FAILED.get(case.name)
    if failed is not None or case.expect["outcome"] == "error_in_stream":
        assert reply.outcome == "error_in_stream"
        assert reply.error is not None
        assert reply.error.code is (failed or CODES_IN_STREAM[case.name])
        return "errors in a stream"
    expected = [(call["name"], call["arguments"]) for call in result["tool_calls"]]
    if case.name == CUT_CALL:
        expected = []
    assert calls_of(reply) == JOINED_CALLS.get(case.name, expected)
    assert (reply.outcome, reply.error, reply.stop_reason) == (
        *("complete", None),
        result["stop_reason"],
    )
    if result["usage"] is not None:
        assert reply.usage == usage_of(case)
    return "beyond the vendor" if case.expect["outcome"] == "sdk_crash" else "complete"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("folder", folders())
def test_every_recording_of_a_provider_is_read_rightly(
    wire: Path, report: Report, folder: str
) -> None:
    kinds: Counter[str] = Counter()
    found = cases(wire, folder)
    for case in found:
        kinds[check(case, case.decoded(None))] += 1
        for size in (1, 2, 3, 7):
            check(case, case.decoded(size))
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    report(f"decode_reply {folder}: {kinds.total()} of {len(found)} at every size ({listed})")
    assert kinds.total() == len(found)


def test_every_kind_of_recording_has_its_protocol(wire: Path) -> None:
    assert wire.is_dir()
    assert set(folders()) <= PROTOCOLS.keys()


def test_a_call_that_was_cut_short_is_never_one_that_could_run(wire: Path) -> None:
    cut = 0
    for folder in folders():
        for case in cases(wire, folder):
            if any("token limit" in words for words in case.expect.get("caution") or ()):
                reply = case.decoded(None)
                assert all(call.invalid is not None for call in reply.tool_calls)
                assert reply.finish == "length"
                cut += 1
    assert cut
