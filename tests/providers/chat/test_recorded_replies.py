"""Every recorded Chat Completions reply is read as the vendor's own package reads it, or better."""

from collections import Counter
from pathlib import Path

import pytest

from haptera.model.errors import ErrorCode
from haptera.providers.wire.chat_completions.reply_format import ERRORS
from tests.fixtures_report import Report
from tests.providers.chat.recordings import (
    DIALECT_OF_FOLDER,
    REPORTED_IN_STREAM,
    Recording,
    all_recordings,
    expected_usage,
    load,
)
from tests.providers.chat.replies import ReadReply, read_reply

SMALL = 1_700
"""Bodies up to this many bytes are cut at every place."""


def check(recording: Recording, reply: ReadReply) -> None:
    expected = recording.expect["result"]
    assert reply.text == expected["text"]
    if recording.is_cut:
        assert reply.error is not None
        assert reply.error.code is ErrorCode.STREAM_INTERRUPTED
        assert reply.calls == []
        return
    assert reply.reasoning == expected["reasoning"]
    assert reply.payload("refusal") == expected["refusal"]
    if recording.expect["outcome"] == "error_in_stream":
        assert reply.error is not None
        assert reply.error.code is REPORTED_IN_STREAM[recording.folder.name]
        assert reply.finished is None
        return
    check_end(recording, reply)


def check_end(recording: Recording, reply: ReadReply) -> None:
    expected = recording.expect["result"]
    assert reply.error is None
    assert reply.opened is not None
    assert reply.opened.model == expected["model"]
    assert (reply.opened.response_id or "") == expected["id"]
    assert reply.calls == [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
    assert reply.finished is not None
    assert reply.finished.reason == expected["stop_reason"]
    if expected["usage"] is not None:
        assert reply.finished.usage == expected_usage(expected["usage"])


@pytest.mark.parametrize("meta_file", all_recordings())
def test_a_recorded_reply_means_what_the_vendors_package_says(meta_file: Path) -> None:
    recording = load(meta_file)
    if recording.is_stream:
        check(recording, read_reply(recording.body, dialect=recording.dialect))
        return
    error = ERRORS.error_of_reply(
        recording.meta["status"], recording.meta["headers"], recording.body
    )
    assert error.code is recording.error_code
    assert error.basis != "fallback"
    assert error.message


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("meta_file", all_recordings())
def test_the_size_of_reads_changes_nothing(meta_file: Path, size: int) -> None:
    recording = load(meta_file)
    if not recording.is_stream:
        return
    whole = read_reply(recording.body, dialect=recording.dialect)
    pieces = read_reply(recording.body, sizes=size, dialect=recording.dialect)
    assert pieces.stream == whole.stream
    check(recording, pieces)


@pytest.mark.slow
@pytest.mark.parametrize("meta_file", all_recordings())
def test_every_place_to_cut_a_small_reply_gives_the_same(meta_file: Path) -> None:
    recording = load(meta_file)
    body = recording.body
    if not recording.is_stream or len(body) > SMALL:
        return
    whole = read_reply(body, dialect=recording.dialect).stream
    for place in range(1, len(body)):
        assert read_reply(body, sizes=[place], dialect=recording.dialect).stream == whole


def test_a_stopped_call_is_kept_as_it_came(wire: Path) -> None:
    cut = [
        recording
        for recording in map(load, sorted(wire.glob("open/*-chat/*/meta.json")))
        if recording.is_stream and recording.expect["result"]["stop_reason"] == "length"
    ]
    replies = [read_reply(recording.body) for recording in cut]
    broken = [arguments for reply in replies for _, arguments in reply.calls]
    assert {reply.finished.kind for reply in replies if reply.finished} == {"length"}
    assert broken
    assert all("__invalid_json__" in arguments for arguments in broken)


def test_the_billed_cost_is_the_providers(wire: Path) -> None:
    def costs(folder: str) -> dict[str, str]:
        recordings = [load(file) for file in wire.glob(f"open/{folder}/*/meta.json")]
        replies = {
            recording.folder.name: read_reply(recording.body, dialect=recording.dialect)
            for recording in recordings
            if recording.is_stream
        }
        return {
            name: str(reply.finished.cost.normalize())
            for name, reply in replies.items()
            if reply.finished and reply.finished.cost is not None
        }

    assert sorted(costs("xai-chat").values()) == ["0.00016545", "0.00016605"]
    assert costs("openrouter-chat")["fantasy.TestOpenRouterCommon_grok_tool_streaming.1"] == (
        "0.00007585"
    )
    assert costs("azure-chat") == {}


def test_the_recordings_are_counted_by_folder(wire: Path, report: Report) -> None:
    counts: Counter[str] = Counter()
    for folder in DIALECT_OF_FOLDER:
        for meta_file in sorted((wire / "open" / folder).glob("*/meta.json")):
            recording = load(meta_file)
            assert recording.expect.get("outcome") != "sdk_crash", "count it apart"
            counts[folder] += 1
    for folder, count in counts.items():
        report(f"{folder}: {count} of {count} recorded replies")
    assert set(counts) == set(DIALECT_OF_FOLDER)
